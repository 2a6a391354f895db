"""Dependencies of the job API on AWS, created once per cold start."""

from __future__ import annotations

import secrets
from functools import cache

from gpu_recovery.auth.authenticator import TokenAuthenticator
from gpu_recovery.auth.sessions import SESSION_KEY_LABEL
from gpu_recovery.auth.tokens import TokenKind
from gpu_recovery.aws.api_wiring import api_recovery, node_token_key, tokens
from gpu_recovery.aws.attempt_store import DynamoAttemptHistory
from gpu_recovery.aws.console_snapshots import S3ConsoleSnapshots
from gpu_recovery.aws.container_logs import AwsJobLogs
from gpu_recovery.aws.dead_letters import AwsDeadLetters
from gpu_recovery.aws.ecs import task_definition
from gpu_recovery.aws.event_history_wiring import shown_history
from gpu_recovery.aws.ray_client import AwsRayLogs
from gpu_recovery.aws.secret_values import operator_token, signing_key
from gpu_recovery.aws.submission_store import DynamoSubmissions, UserTokensWithSubmission
from gpu_recovery.aws.token_store import DynamoUserTokenStore
from gpu_recovery.aws.verdict_documents import S3VerdictDocuments
from gpu_recovery.aws.wiring import dynamodb, logger, settings
from gpu_recovery.job_api.capacity import Capacity
from gpu_recovery.job_api.dependencies import Dependencies, Deployment
from gpu_recovery.job_api.pagination import CURSOR_KEY_LABEL
from gpu_recovery.job_api.snapshot_cache import SnapshotCache
from gpu_recovery.job_api.task_definition import TaskDefinitionRules


@cache
def dependencies() -> Dependencies:
    """Return the dependencies of the routes, on DynamoDB and AWS."""
    environment, loop, client = settings(), api_recovery(), dynamodb()
    users = DynamoUserTokenStore(client, environment.job_table)
    submissions = DynamoSubmissions(client, environment.job_table, environment.instance_table)

    def user_key() -> bytes:
        return signing_key(environment.signing_key_secret, TokenKind.USER.key_label)

    lookup = UserTokensWithSubmission(users, submissions, loop.clock)
    return Dependencies(
        recovery=loop,
        submissions=submissions,
        attempts=DynamoAttemptHistory(client, environment.job_table),
        capacity=Capacity(lambda statuses: loop.store.instances_in(statuses, [])),
        logs=AwsJobLogs(),
        node_tokens=tokens(),
        user_tokens=users,
        user_directory=users,
        verdicts=S3VerdictDocuments(environment.verdict_bucket, loop.store.launch_key),
        users=TokenAuthenticator(lookup, loop.clock, TokenKind.USER, user_key),
        node_token_key=node_token_key,
        user_token_key=user_key,
        cursor_key=lambda: signing_key(environment.signing_key_secret, CURSOR_KEY_LABEL),
        session_key=lambda: signing_key(environment.signing_key_secret, SESSION_KEY_LABEL),
        dead_letters=lambda: AwsDeadLetters(environment),
        operator_token=lambda: operator_token(environment.operator_token_secret),
        describe=task_definition,
        random=lambda: secrets.token_hex(2),
        job_id_prefix=environment.job_id_prefix,
        deployment=Deployment(
            environment.cluster, environment.event_origin.region, environment.adoption.value, environment.gpu_history
        ),
        log=logger,
        history=shown_history(),
        rules=TaskDefinitionRules(
            environment.training_families, environment.training_roles, environment.training_log_groups
        ),
        priority_max=environment.user_priority_max,
        ray_logs=AwsRayLogs(environment.ray_function) if environment.ray_function else None,
        principals=environment.principals,
        records=f"s3://{environment.verdict_bucket}" if environment.policy.record_attempts else "",
        snapshots=SnapshotCache(S3ConsoleSnapshots(environment.verdict_bucket)),
    )
