"""Settings of a Lambda function, read from its environment variables once per cold start.

A missing required variable is an error, never None.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace

from gpu_recovery.auth.principals import roles_by_principal
from gpu_recovery.auth.roles import Role
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.event_origin import EventOrigin
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import RecoveryPolicy, policy_from
from gpu_recovery.core.queue.priority import Priority

TOPIC_ARN = re.compile(r"arn:[a-z-]+:sns:(?P<region>[a-z0-9-]+):(?P<account>\d{12}):[\w-]+")


class LambdaSettingsInvalid(RecoveryError):
    """A required environment variable is missing, or a variable has an invalid value."""


@frozen_dataclass()
class LambdaSettings:
    """Settings from the environment of every function. The variables of the first five fields keep their names."""

    job_table: str
    instance_table: str
    cluster: str
    check_task_definition: str
    topic_arn: str
    chat_topic_arn: str
    bus_name: str
    scheduler_queue_url: str
    failed_queue_url: str
    undelivered_queue_url: str
    scheduler_dead_letters_url: str
    verdict_bucket: str
    policy: RecoveryPolicy
    adoption: Adoption
    check_level: int
    check_reserves_gpus: bool
    job_id_prefix: str
    managed_tag: tuple[str, str]
    operator_token_secret: str
    node_token_key_secret: str = ""
    """Secret with the issuer key of node tokens. The node API and the job API have the variable."""
    signing_key_secret: str = ""
    """Secret with the keys of user tokens and of cursors. Only the job API has the variable."""
    node_roles: tuple[str, ...] = ()
    agent_role: str = ""
    """Role of the tasks of the node agent's service, "" without one. Only the node API has the variable."""
    agent_family: str = ""
    """Task definition family of that service. Only `ecs_task_handler` has the variable."""
    training_families: tuple[str, ...] = ()
    """ECS families that jobs may run. Only the job API has the variable, and the next two."""
    training_roles: tuple[str, ...] = ()
    """Roles that the deployment may pass to the tasks of jobs."""
    training_log_groups: tuple[str, ...] = ()
    """Log groups of jobs that the deployment may read. Empty: it reads no logs of jobs."""
    user_priority_max: Priority = Priority.NORMAL
    """Highest priority that a user may ask for without a quota of this priority. Only the job API has the variable."""
    principals: Mapping[str, Role] | None = None
    """Role by IAM principal, if callers of the job API sign their requests; None if callers send tokens. Only the job
    API has the variables."""
    ray_queue_url: str = ""
    """Queue of the function that reaches the Ray cluster; "" if there is no Ray cluster."""
    ray_function: str = ""
    """Name of the function that reaches the Ray cluster; "" if there is no Ray cluster."""
    executor_function: str = ""
    """Name of the command executor. Only the two API functions have the variable."""
    event_history_table: str = ""
    """Table of the event history. Only the event recorder and the two API functions have the variable."""
    gpu_history: bool = False
    """Whether the gauges of GPUs are kept. Only the two API functions have the variable."""
    recorder_function: str = ""
    """Name of the event recorder. Only the job API has the variable."""
    console_url: str = ""
    """Address of the web console, for links in messages; "" without a console."""

    @property
    def event_origin(self) -> EventOrigin:
        """Account and region of the deployment: those of its topic.

        Raises:
            LambdaSettingsInvalid: SNS_TOPIC_ARN is no ARN.
        """
        arn = TOPIC_ARN.fullmatch(self.topic_arn)
        if arn is None:
            raise LambdaSettingsInvalid(
                f"environment variable SNS_TOPIC_ARN must be the ARN of a topic, not {self.topic_arn[:80]!r}"
            )
        return EventOrigin(arn["account"], arn["region"])

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> LambdaSettings:
        """Return the settings of `environment`.

        Raises:
            LambdaSettingsInvalid: a variable is missing or invalid. The error names the first such variable.
            PolicyInvalid: RECOVERY_POLICY names an unknown setting, or a setting has a value that is not allowed.
        """

        def need(name: str) -> str:
            value = environment.get(name, "")
            if not value:
                raise LambdaSettingsInvalid(f"environment variable {name} is not set")
            return value

        def one_of(name: str, default: str, allowed: tuple[str, ...]) -> str:
            value = environment.get(name, default)
            if value not in allowed:
                raise LambdaSettingsInvalid(
                    f"environment variable {name} must be one of {', '.join(allowed)}, not {value!r}"
                )
            return value

        return cls(
            job_table=need("TRAINING_JOB_TABLE_NAME"),
            instance_table=need("CONTAINER_INSTANCE_TABLE_NAME"),
            cluster=need("ECS_CLUSTER_NAME"),
            check_task_definition=need("DCGM_HEALTH_CHECK_TASK"),
            topic_arn=need("SNS_TOPIC_ARN"),
            chat_topic_arn=environment.get("CHAT_TOPIC_ARN", ""),
            bus_name=need("EVENT_BUS_NAME"),
            scheduler_queue_url=need("SCHEDULER_QUEUE_URL"),
            failed_queue_url=environment.get("FAILED_QUEUE_URL", ""),
            undelivered_queue_url=environment.get("UNDELIVERED_QUEUE_URL", ""),
            scheduler_dead_letters_url=environment.get("SCHEDULER_DEAD_LETTERS_URL", ""),
            verdict_bucket=need("VERDICT_BUCKET"),
            policy=_with_stale_s(
                _policy(environment.get("RECOVERY_POLICY", "{}")),
                environment.get("GPUTASKER_TASK_HEARTBEAT_STALE_SECONDS", ""),
            ),
            adoption=Adoption(one_of("ADOPT", Adoption.OFF, tuple(Adoption))),
            check_level=int(one_of("CHECK_LEVEL", "2", ("1", "2", "3", "4"))),
            check_reserves_gpus=one_of("CHECK_RESERVES_GPUS", "true", ("true", "false")) == "true",
            job_id_prefix=environment.get("JOB_ID_PREFIX", ""),
            managed_tag=(need("MANAGED_TAG_KEY"), environment.get("MANAGED_TAG_VALUE", "")),
            operator_token_secret=environment.get("OPERATOR_TOKEN_SECRET", ""),
            node_token_key_secret=environment.get("NODE_TOKEN_KEY_SECRET", ""),
            signing_key_secret=environment.get("SIGNING_KEY_SECRET", ""),
            node_roles=tuple(environment.get("NODE_ROLE_ARNS", "").split()),
            agent_role=environment.get("NODE_AGENT_ROLE_ARN", ""),
            agent_family=environment.get("NODE_AGENT_FAMILY", ""),
            training_families=tuple(environment.get("TRAINING_TASK_FAMILIES", "").split()),
            training_roles=tuple(environment.get("TRAINING_ROLE_ARNS", "").split()),
            training_log_groups=tuple(environment.get("TRAINING_LOG_GROUPS", "").split()),
            user_priority_max=Priority[one_of("USER_PRIORITY_MAX", "NORMAL", tuple(Priority.__members__))],
            principals=(
                _principals(environment.get("API_ROLES", ""))
                if one_of("API_AUTH", "token", ("token", "iam")) == "iam"
                else None
            ),
            ray_queue_url=environment.get("RAY_QUEUE_URL", ""),
            ray_function=environment.get("RAY_RUNNER_FUNCTION", ""),
            executor_function=environment.get("COMMAND_EXECUTOR_FUNCTION", ""),
            event_history_table=environment.get("EVENT_HISTORY_TABLE_NAME", ""),
            gpu_history=one_of("GPU_HISTORY", "off", ("on", "off")) == "on",
            recorder_function=environment.get("EVENT_RECORDER_FUNCTION", ""),
            console_url=environment.get("CONSOLE_URL", ""),
        )


def _policy(text: str) -> RecoveryPolicy:
    try:
        settings = json.loads(text)
    except json.JSONDecodeError as error:
        raise LambdaSettingsInvalid(f"environment variable RECOVERY_POLICY is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise LambdaSettingsInvalid("environment variable RECOVERY_POLICY must be a JSON object")
    return policy_from(settings)


def _principals(text: str) -> Mapping[str, Role]:
    try:
        return roles_by_principal(json.loads(text))
    except (ValueError, AttributeError) as error:
        raise LambdaSettingsInvalid(f"environment variable API_ROLES is malformed: {error}") from error


def _with_stale_s(policy: RecoveryPolicy, text: str) -> RecoveryPolicy:
    """Return the policy with the heartbeat timeout of GPUTasker's variable.

    `suspect_s` and `unreachable_s` are reduced to the heartbeat timeout if they would exceed it.

    Args:
        policy: the policy.
        text: the value of the variable, whole seconds; "" to leave the policy unchanged.
    """
    if not text:
        return policy
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise LambdaSettingsInvalid(
            f"environment variable GPUTASKER_TASK_HEARTBEAT_STALE_SECONDS must be whole seconds, not {text[:40]!r}"
        )
    stale_s = int(text)
    return replace(
        policy,
        heartbeat_stale_s=stale_s,
        unreachable_s=min(policy.unreachable_s, stale_s),
        suspect_s=min(policy.suspect_s, stale_s),
    )
