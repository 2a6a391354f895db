"""Environment variables of the functions: the interface between `infra/` and `lambdas/`."""

import json

from gpu_recovery.core.metrics import NAMESPACE, SERVICE

from infra.health_check_task import HealthCheckTask
from infra.lambda_functions import executor_name, recorder_name
from infra.node_agent import NodeAgent
from infra.queues import Queues
from infra.ray_runner import ray_function_name
from infra.settings import DeploymentSettings
from infra.state_stack import StateStack


def function_environment(
    settings: DeploymentSettings, state: StateStack, queues: Queues, check: HealthCheckTask
) -> dict[str, str]:
    """Return the environment variables that every function gets. `aws/settings.py` reads them in Lambda."""
    return {
        "TRAINING_JOB_TABLE_NAME": state.tables.jobs.table_name,
        "CONTAINER_INSTANCE_TABLE_NAME": state.tables.instances.table_name,
        "ECS_CLUSTER_NAME": settings.cluster_name,
        "DCGM_HEALTH_CHECK_TASK": check.definition.task_definition_arn,
        "SNS_TOPIC_ARN": state.topic.topic.topic_arn,
        "CHAT_TOPIC_ARN": state.topic.chat_arn,
        "EVENT_BUS_NAME": state.bus.bus.event_bus_name,
        "SCHEDULER_QUEUE_URL": queues.scheduler.queue_url,
        **(
            {"RAY_QUEUE_URL": queues.ray.queue_url, "RAY_RUNNER_FUNCTION": ray_function_name(settings)}
            if queues.ray is not None
            else {}
        ),
        "VERDICT_BUCKET": state.verdicts.bucket.bucket_name,
        "RECOVERY_POLICY": json.dumps(settings.recovery_policy),
        "ADOPT": settings.adopt,
        "JOB_ID_PREFIX": settings.job_id_prefix,
        "MANAGED_TAG_KEY": settings.managed_tag_key,
        "MANAGED_TAG_VALUE": settings.managed_tag_value,
        "CHECK_LEVEL": str(settings.check_level),
        "CHECK_RESERVES_GPUS": json.dumps(settings.check_reserves_gpus),
        "POWERTOOLS_SERVICE_NAME": SERVICE,
        "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
        "POWERTOOLS_LOG_LEVEL": settings.log_level,
    }


def api_environment(
    settings: DeploymentSettings, state: StateStack, queues: Queues, agent: NodeAgent | None
) -> dict[str, str]:
    """Return the further variables. A function gets those that its row of `infra/functions.py` names."""
    return {
        "NODE_AGENT_ROLE_ARN": agent.task_role.role_arn if agent is not None else "",
        "NODE_AGENT_FAMILY": settings.agent_family if settings.runs_agent else "",
        "OPERATOR_TOKEN_SECRET": state.token.secret_arn,
        "NODE_TOKEN_KEY_SECRET": state.node_token_key.secret_arn,
        "SIGNING_KEY_SECRET": state.signing_key.secret_arn,
        "FAILED_QUEUE_URL": queues.failed.queue_url,
        "UNDELIVERED_QUEUE_URL": queues.undelivered.queue_url,
        "SCHEDULER_DEAD_LETTERS_URL": queues.scheduler_dead_letters.queue_url,
        "NODE_ROLE_ARNS": " ".join(settings.node_role_arns),
        "COMMAND_EXECUTOR_FUNCTION": executor_name(settings),
        "EVENT_HISTORY_TABLE_NAME": state.tables.event_history.table_name,
        "GPU_HISTORY": settings.gpu_history,
        "EVENT_RECORDER_FUNCTION": recorder_name(settings),
        "API_AUTH": settings.api_auth,
        "API_ROLES": json.dumps(settings.api_roles),
        "USER_PRIORITY_MAX": settings.user_priority_max,
        "TRAINING_TASK_FAMILIES": " ".join(settings.training_task_families),
        "TRAINING_ROLE_ARNS": " ".join(settings.training_role_arns),
        "TRAINING_LOG_GROUPS": " ".join(settings.training_log_groups),
    }


def console_environment(settings: DeploymentSettings, api_url: str) -> dict[str, str]:
    """Return the variable of the functions that notify operators. It is known after the API."""
    own = f"{api_url}/console" if settings.serves_console else ""
    return {"CONSOLE_URL": settings.console_url or own}
