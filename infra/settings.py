"""Everything a deployment may choose, typed and checked before a single resource exists.

Values come from the CDK context, keys `gpu-recovery:<field>`: from cdk.json or `cdk -c gpu-recovery:adopt=observe`.
The defaults stand here and nowhere else; the constructs read these fields and never the process environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.policy import (
    CHECK_MARGIN_S,
    CHECK_S_BY_LEVEL,
    RENAMED,
    RecoveryPolicy,
    policy_from,
    with_present_names,
)

from infra.setting_readers import Reader, boolean, integer, integer_of, items, one_of, text, thresholds

NAMESPACE = "gpu-recovery:"
SWITCHES = ("replace", "observe_only", "record_attempts")
"""Fields of the policy that are settings of their own: what turns them on must be seen at a glance."""
SETTINGS_OF_THEIR_OWN = {**{switch: switch for switch in SWITCHES}, "xid_profile": "xid_policy"}
"""Fields of the policy that the settings beside them decide."""
RAY_NEEDS = ("ray_control_store", "ray_subnet_ids", "ray_security_group_ids")
PROFILE_RETENTION_DAYS = {"dev": 7, "prod": 90}
RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)  # what CloudWatch Logs accepts

_TABLE = text(r"[A-Za-z0-9_.-]{3,255}", "a DynamoDB table name")
_FAMILY = text(r"[A-Za-z0-9_-]{1,255}", "a task definition family")


class DeploymentSettingsError(ValueError):
    """One or more settings are wrong; every line of the message starts with the context key to change."""


def _setting(default: Any, read: Reader) -> Any:
    return field(default=default, metadata={"read": read})


def _time_for_checks(level: int, policy: RecoveryPolicy) -> list[str]:
    """What is wrong with the time that checks get: one that is cut short looks like a hang, and that costs a reboot."""
    needed = CHECK_S_BY_LEVEL[level] + CHECK_MARGIN_S
    return [
        f"{NAMESPACE}policy: {name} must be at least {needed} for check_level {level}, not {getattr(policy, name)}"
        for name in ("check_timeout_s", "verify_timeout_s")
        if getattr(policy, name) < needed
    ]


@dataclass(frozen=True, kw_only=True)
class DeploymentSettings:
    """One deployment: one ECS cluster in one account and region."""

    # What is watched and healed.
    cluster_name: str = _setting("nwcd-gpu-testing", text(r"[A-Za-z0-9_-]{1,255}", "an ECS cluster name"))
    training_task_families: tuple[str, ...] = _setting(("gpu-training",), items(_FAMILY))
    # Roles named in the training task definitions (task and execution role): ECS refuses RunTask unless they are here.
    training_role_arns: tuple[str, ...] = _setting(
        (), items(text(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", "the ARN of an IAM role"))
    )
    # Roles whose instances may sign their reports instead of sending a token; empty: none may.
    node_role_arns: tuple[str, ...] = _setting(
        (), items(text(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+", "the ARN of an IAM role"))
    )
    # Where the training task definitions log to (awslogs), for `gpu-recovery logs`; empty: the API reads no logs.
    training_log_groups: tuple[str, ...] = _setting(
        ("/ecs/gpu-training",), items(text(r"[A-Za-z0-9_./#-]{1,512}", "the name of a log group"))
    )
    adopt: str = _setting("off", one_of("off", "observe", "recover"))
    managed_tag_key: str = _setting("gpu-recovery:managed", text(r"(?!aws:)[\w .:/=+@-]{1,128}", "a tag key"))
    managed_tag_value: str = _setting("true", text(r"[\w .:/=+@-]{0,256}", "a tag value"))

    # How it decides.
    preset: str = _setting("adaptive", one_of("adaptive", "classic"))
    policy: Mapping[str, Any] = field(default_factory=dict, metadata={"read": thresholds})
    # Terminating and stopping instances: the policy's switch and IAM's in one, so that neither is on without the other.
    replace: bool = _setting(False, boolean)
    # What was submitted and each attempt that has ended, as objects under jobs/ of the verdict bucket, for a year.
    record_attempts: bool = _setting(True, boolean)
    # Decide everything and touch nothing: for the first weeks in an account that matters.
    observe_only: bool = _setting(False, boolean)
    job_id_prefix: str = _setting("", text(r"([a-z][a-z0-9-]{0,31})?", "empty or up to 32 of a-z, 0-9 and -"))

    # The health check.
    check_family: str = _setting("gpu-health-check", _FAMILY)
    # Empty: repository gpu-recovery-health-check, tag latest, in this account's own registry.
    health_check_image: str = _setting("", text(r"(\S{1,512})?", "an image reference"))
    check_level: int = _setting(2, integer(1, 4))
    check_reserves_gpus: bool = _setting(True, boolean)
    # Vendors disagree on a few XIDs: NVIDIA's catalogue, or the list that ECS Managed Instances act on. The health
    # check and the control plane follow the same: the policy's `xid_profile` is this.
    xid_policy: str = _setting("nvidia", one_of("nvidia", "aws"))

    # A Ray cluster as a pool of its own. Empty: there is none, and nothing of it is made.
    ray_dashboard: str = _setting("", text(r"(https?://[\w.-]{1,253}(:\d{1,5})?)?", "the URL of a Ray dashboard"))
    ray_control_store: str = _setting("", text(r"([\w.-]{1,253}:\d{1,5})?", "host:port of a Ray control store"))
    # Where the cluster can be reached from: the function that asks it gets an interface there.
    ray_subnet_ids: tuple[str, ...] = _setting((), items(text(r"subnet-[0-9a-f]{8,17}", "the id of a subnet")))
    ray_security_group_ids: tuple[str, ...] = _setting(
        (), items(text(r"sg-[0-9a-f]{8,17}", "the id of a security group"))
    )

    # Names that other systems know.
    stack_name: str = _setting("GpuRecovery", text(r"[A-Za-z][A-Za-z0-9-]{0,99}", "a stack name"))
    function_name_prefix: str = _setting("gpu-recovery-", text(r"[A-Za-z0-9_-]{0,40}", "a prefix of function names"))
    job_table_name: str = _setting("ecs-job-sub", _TABLE)
    instance_table_name: str = _setting("ecs_container_instance", _TABLE)
    topic_name: str = _setting("gpu-training-notifications", text(r"[A-Za-z0-9_-]{1,256}", "a topic name"))
    bus_name: str = _setting("gpu-recovery", text(r"(?!default$)(?!aws)[A-Za-z0-9_.-]{1,256}", "a custom bus name"))
    # A second topic, for Amazon Q in chat applications, which drops messages in any format but its own.
    chat_topic: bool = _setting(False, boolean)
    alert_emails: tuple[str, ...] = _setting((), items(text(r"[^@\s,]+@[^@\s,]+\.[^@\s,]+", "an e-mail address")))

    # How it runs.
    profile: str = _setting("dev", one_of("dev", "prod"))
    # 0: the profile's.
    log_retention_days: int = _setting(0, integer_of((0, *RETENTION_DAYS)))
    log_level: str = _setting("INFO", one_of("DEBUG", "INFO", "WARNING", "ERROR"))
    reconcile_every_minutes: int = _setting(1, integer(1, 5))
    schedule_every_minutes: int = _setting(1, integer(1, 5))
    # `public`: AWS's own layer; `none`: no layer; else the ARN of a layer version with Powertools in it.
    powertools_layer: str = _setting(
        "public",
        text(
            r"public|none|arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:layer:[\w-]+:\d+",
            "public, none or the ARN of a layer",
        ),
    )

    def __post_init__(self) -> None:
        wrong = []
        for each in fields(self):
            try:
                object.__setattr__(self, each.name, each.metadata["read"](getattr(self, each.name)))
            except ValueError as error:
                wrong.append(f"{NAMESPACE}{each.name}: {error}")
        if not wrong and self.check_family in self.training_task_families:
            wrong.append(f"{NAMESPACE}check_family: {self.check_family!r} is also a training family")
        if not wrong and self.job_table_name == self.instance_table_name:
            wrong.append(f"{NAMESPACE}instance_table_name: {self.instance_table_name!r} is also the job table")
        for name in RAY_NEEDS if not wrong and self.has_ray else ():
            if not getattr(self, name):
                wrong.append(f"{NAMESPACE}{name}: is needed with {NAMESPACE}ray_dashboard")
        for switch, setting in SETTINGS_OF_THEIR_OWN.items() if not wrong else ():
            if switch in self.policy:
                wrong.append(f"{NAMESPACE}policy: {switch} is a setting of its own, {NAMESPACE}{setting}")
        if not wrong:
            # The very function that reads them in Lambda: a misspelt threshold must not wait for a cold start.
            try:
                policy = policy_from(self.recovery_policy)
            except PolicyInvalid as error:
                wrong.append(f"{NAMESPACE}policy: {error}")
            else:
                wrong += _time_for_checks(self.check_level, policy)
        if wrong:
            raise DeploymentSettingsError("\n".join(wrong))

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> "DeploymentSettings":
        """Settings from a CDK context; keys outside our namespace belong to others and are passed over."""
        ours = {key.removeprefix(NAMESPACE): value for key, value in context.items() if key.startswith(NAMESPACE)}
        if unknown := sorted(ours.keys() - {each.name for each in fields(cls)}):
            raise DeploymentSettingsError("\n".join(f"{NAMESPACE}{name}: there is no such setting" for name in unknown))
        return cls(**ours)

    @property
    def has_ray(self) -> bool:
        """Whether there is a Ray cluster."""
        return bool(self.ray_dashboard)

    @property
    def is_prod(self) -> bool:
        return self.profile == "prod"

    @property
    def retention_days(self) -> int:
        return self.log_retention_days or PROFILE_RETENTION_DAYS[self.profile]

    @property
    def renamed_policy_settings(self) -> dict[str, str]:
        """The policy settings that are given under a former name, each with its present name."""
        return {old: RENAMED[old] for old in self.policy if old in RENAMED}

    @property
    def recovery_policy(self) -> dict[str, Any]:
        """What the functions read: the preset, the thresholds that differ from it, the switches that are on, and whose
        judgement of XIDs is followed where it is another than the default."""
        switched_on = {switch: True for switch in SWITCHES if getattr(self, switch)}
        judged = {} if self.xid_policy == policy_from({}).xid_profile else {"xid_profile": self.xid_policy}
        return {"preset": self.preset, **with_present_names(self.policy), **switched_on, **judged}
