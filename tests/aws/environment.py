"""The environment of a function, as the deployment gives it."""

from __future__ import annotations

ACCOUNT, REGION = "123456789012", "us-east-1"
ROLE = f"arn:aws:iam::{ACCOUNT}:role"
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:gpu-training-notifications"
CHECK_TASK = f"arn:aws:ecs:{REGION}:{ACCOUNT}:task-definition/dcgm-health-check:7"
QUEUES = f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}"
QUEUE_URL = f"{QUEUES}/gpu-recovery-scheduler.fifo"
CLUSTER = "nwcd-gpu-testing"

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_REGION": REGION,
}
REQUIRED = {
    "TRAINING_JOB_TABLE_NAME": "ecs-job-sub",
    "CONTAINER_INSTANCE_TABLE_NAME": "ecs_container_instance",
    "ECS_CLUSTER_NAME": CLUSTER,
    "DCGM_HEALTH_CHECK_TASK": CHECK_TASK,
    "SNS_TOPIC_ARN": TOPIC,
    "EVENT_BUS_NAME": "gpu-recovery",
    "SCHEDULER_QUEUE_URL": QUEUE_URL,
    "VERDICT_BUCKET": "verdicts-of-checks",
    "MANAGED_TAG_KEY": "gpu-recovery:managed",
}
CHOSEN = {
    "RECOVERY_POLICY": '{"preset": "adaptive"}',
    "ADOPT": "off",
    "JOB_ID_PREFIX": "",
    "CHECK_LEVEL": "2",
    "CHAT_TOPIC_ARN": "",
    "FAILED_QUEUE_URL": f"{QUEUES}/failed",
    "UNDELIVERED_QUEUE_URL": f"{QUEUES}/undelivered",
    "SCHEDULER_DEAD_LETTERS_URL": f"{QUEUES}/scheduler-dead-letters.fifo",
    "MANAGED_TAG_VALUE": "true",
    "CHECK_RESERVES_GPUS": "true",
    "OPERATOR_TOKEN_SECRET": "operator-token",
    "NODE_TOKEN_KEY_SECRET": "node-token-key",
    "SIGNING_KEY_SECRET": "signing-key",
    "NODE_ROLE_ARNS": "",
    "COMMAND_EXECUTOR_FUNCTION": "gpu-recovery-command_executor",
    "EVENT_HISTORY_TABLE_NAME": "gpu-recovery-event-history",
    "EVENT_RECORDER_FUNCTION": "gpu-recovery-event_recorder",
    "TRAINING_TASK_FAMILIES": "gpu-training llm",
    "TRAINING_ROLE_ARNS": f"{ROLE}/training-task {ROLE}/ecs/training-execution",
    "TRAINING_LOG_GROUPS": "/ecs/gpu-training /ecs/llm",
    "USER_PRIORITY_MAX": "NORMAL",
    "API_AUTH": "token",
    "API_ROLES": "{}",
    "POWERTOOLS_SERVICE_NAME": "gpu-recovery",
    "POWERTOOLS_METRICS_NAMESPACE": "GpuRecovery",
    "POWERTOOLS_LOG_LEVEL": "INFO",
}
FUNCTION = REQUIRED | CHOSEN
