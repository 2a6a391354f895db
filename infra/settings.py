"""Deployment settings: names, types, defaults and checks. Wrong settings stop the synthesis.

The values come from a settings file (`infra/settings_file.py`), or from the CDK context under keys
`gpu-recovery:<field>`: from cdk.json, or from the command line, such as `cdk -c gpu-recovery:adopt=observe`. Only this
module holds defaults. The constructs read the fields of `DeploymentSettings` and do not read the process environment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.policy import (
    RENAMED,
    policy_from,
    with_present_names,
)
from gpu_recovery.core.queue.priority import Priority

from infra import setting_checks
from infra.alert_endpoints import alert_endpoint
from infra.setting_readers import (
    BUILD,
    ECS_NAME,
    EMAIL,
    INSTANCE_TYPES,
    LOG_GROUP,
    ROLE_ARN,
    SYSTEMD_UNIT,
    TAG_VALUE,
    Reader,
    boolean,
    integer,
    integer_of,
    items,
    one_of,
    principals,
    text,
    thresholds,
)
from infra.settings_error import NAMESPACE, DeploymentSettingsError, Problem

SWITCHES = ("replace", "observe_only", "record_attempts", "tag_repairs")
"""Fields of the policy that are settings of their own, so that they are easy to see."""
SETTINGS_OF_THEIR_OWN = {**{switch: switch for switch in SWITCHES}, "xid_profile": "xid_policy"}
"""Fields of the policy that may not be set in `policy`, each with the setting that decides the field."""
RAY_NEEDS = ("ray_control_store", "ray_subnet_ids", "ray_security_group_ids")
"""Settings that must be given together with `ray_dashboard`."""
BUILT_IF = {
    "health_check_base_image": f"{NAMESPACE}health_check_image is {BUILD}",
    "ray_base_image": f"{NAMESPACE}ray_dashboard is given and {NAMESPACE}ray_image is {BUILD}",
    "agent_base_image": f"{NAMESPACE}node_agent is daemon or {NAMESPACE}build_agent_image is true",
}
"""When a deployment builds an image on the base that the setting names, in the words of an error message."""
PROFILE_RETENTION_DAYS = {"dev": 7, "prod": 90}
"""Days for which log groups keep their lines, by profile."""
RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
"""Retention periods in days that CloudWatch Logs accepts."""

_TABLE = text(r"[A-Za-z0-9_.-]{3,255}", "a DynamoDB table name")
_FAMILY = text(ECS_NAME, "a task definition family")
_ROLE = text(ROLE_ARN, "the ARN of an IAM role")
_BASE_IMAGE = text(
    r"(\w[\w.:/-]{0,399}(@sha256:[0-9a-f]{64})?)?", "an image reference, with or without @sha256:<digest>"
)


def no_such_setting(name: str, known: Sequence[str]) -> str:
    """Return the error message about an unknown setting, with the known name that is most like it."""
    close = get_close_matches(name, known, n=1)
    return f"there is no such setting{f'; did you mean {close[0]}?' if close else ''}"


def _setting(default: Any, read: Reader) -> Any:
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True, kw_only=True)
class DeploymentSettings:
    """Settings of a deployment, which covers one ECS cluster in one account and region.

    Raises:
        DeploymentSettingsError: one or more settings are wrong.
    """

    # Cluster, training tasks and instances.
    cluster_name: str = _setting("nwcd-gpu-testing", text(ECS_NAME, "an ECS cluster name"))
    """The ECS cluster that is monitored. The deployment never creates it."""
    training_task_families: tuple[str, ...] = _setting(("gpu-training",), items(_FAMILY))
    """Task definition families that may be launched.

    The API refuses any other family at submission, and IAM refuses it at launch.
    """
    training_role_arns: tuple[str, ...] = _setting((), items(_ROLE))
    """Task roles and execution roles that those task definitions name.

    Without them ECS refuses the launch, so the API refuses a task definition with another role at submission.
    """
    node_role_arns: tuple[str, ...] = _setting((), items(_ROLE))
    """Roles of instances that may sign their reports instead of sending a token. Empty: none may."""
    training_log_groups: tuple[str, ...] = _setting(
        ("/ecs/gpu-training",), items(text(LOG_GROUP, "the name of a log group"))
    )
    """Log groups of those task definitions (`awslogs-group`), for `gpu-recovery logs`.

    The API refuses a job that logs elsewhere or without `awslogs`. Empty: the API reads no logs, and jobs may log
    anywhere.
    """
    api_auth: str = _setting("token", one_of("token", "iam"))
    """How callers of the API authenticate: `token`, or `iam` for requests that API Gateway authorizes by their SigV4
    signature. With `iam` the nodes sign, too.
    """
    api_roles: Mapping[str, str] = field(default_factory=dict, metadata={"read": principals})
    """Role (`viewer`, `user`, `operator`) of each IAM principal that may call the API. Only with `api_auth` = `iam`."""
    adopt: str = _setting("off", one_of("off", "observe", "recover"))
    """Tasks that users start without the queue: `off` ignores them, `observe` records and reports them, `recover` also
    recovers them.
    """
    managed_tag_key: str = _setting("gpu-recovery:managed", text(r"(?!aws:)[\w .:/=+@-]{1,128}", "a tag key"))
    """Key of the tag that an instance must have. IAM lets the functions reboot no instance without the tag."""
    managed_tag_value: str = _setting("true", text(f"({TAG_VALUE})?", "a tag value"))
    """Value that the tag must have."""

    # Recovery policy.
    preset: str = _setting("adaptive", one_of("adaptive", "classic"))
    """Recovery policy to start from: `adaptive` or `classic`."""
    policy: Mapping[str, Any] = field(default_factory=dict, metadata={"read": thresholds})
    """Thresholds that differ from the preset, as a JSON object, by name."""
    replace: bool = _setting(False, boolean)
    """Whether instances may be terminated in their Auto Scaling group, or stopped and started.

    The setting switches both the policy and the IAM permission.
    """
    tag_repairs: bool = _setting(False, boolean)
    """Whether a tag of the instance says who ordered its last repair, with the IAM permission for this tag."""
    record_attempts: bool = _setting(True, boolean)
    """Whether submissions and ended attempts are also written as objects of S3, for a year."""
    observe_only: bool = _setting(False, boolean)
    """Whether decisions have no effect.

    Each withheld action is recorded and sent by e-mail. Meant for the first weeks in an account.
    """
    user_priority_max: str = _setting("NORMAL", one_of(*Priority.__members__))
    """Highest priority that a user may ask for without a quota that names the user and the priority.

    Operators may ask for any priority.
    """
    job_id_prefix: str = _setting("", text(r"([a-z][a-z0-9-]{0,31})?", "empty or up to 32 of a-z, 0-9 and -"))
    """Prefix of every new job id."""

    # The health check.
    check_family: str = _setting("gpu-health-check", _FAMILY)
    """Family of the health check's task definition."""
    health_check_image: str = _setting("build", text(r"(\S{1,512})?", "an image reference"))
    """Image of the health check.

    `build`: the deployment builds it. Else a reference, with `profile` = `prod` by digest. Empty: tag `latest` of
    the repository `gpu-recovery-health-check` in ECR of this account.
    """
    health_check_base_image: str = _setting("", _BASE_IMAGE)
    """NVIDIA's DCGM image by digest, or a copy of it. Empty: the image of nvcr.io by its tag.

    Only with `health_check_image` = `build`.
    """
    image_revision: str = _setting("", text(r"[\w.-]{0,64}", "up to 64 letters, digits, `.`, `_` and `-`"))
    """Any text, for example a date.

    Another text builds the images again, with the security updates of their base images.
    """
    node_agent: str = _setting("off", one_of("off", "daemon"))
    """`daemon`: the deployment builds the image of the node agent and runs the agent on each GPU instance, as a daemon
    service of ECS. `off`: the agents are installed by other means, or there are none.
    """
    build_agent_image: bool = _setting(False, boolean)
    """Whether the deployment builds the image of the node agent without a service, for a daemon of your own.

    The output `AgentImageUri` names the image.
    """
    agent_base_image: str = _setting("", _BASE_IMAGE)
    """Base of the agent's image by digest, or a copy of it. Empty: the base of the Dockerfile, by its tag.

    Only if that image is built.
    """
    agent_gpu_reset_instance_types: tuple[str, ...] = _setting((), items(INSTANCE_TYPES))
    """Instance types on which the daemon of the node agent may reset GPUs, such as `["p5.48xlarge", "p4d.*"]`.

    Empty: on none. The policy setting `gpu_reset` must be on as well. Only with `node_agent` = `daemon`.
    """
    agent_gpu_reset_services: tuple[str, ...] = _setting((), items(SYSTEMD_UNIT))
    """Units of systemd that hold the GPUs, such as `nvidia-dcgm.service`. The daemon stops them during a reset.

    Only with `agent_gpu_reset_instance_types`.
    """
    agent_gpu_events: bool = _setting(False, boolean)
    """Whether the daemon of the node agent reports GPU Operational Events, a preview of drivers since R615.

    Only with `node_agent` = `daemon`.
    """
    check_level: int = _setting(2, integer(1, 4))
    """Level of `dcgmi diag`, 1 to 4."""
    check_reserves_gpus: bool = _setting(True, boolean)
    """Whether the check reserves the GPUs of its instance.

    `false` needs NVIDIA's container runtime as the default runtime of the hosts.
    """
    check_host_engine: str = _setting("own", one_of("own", "host"))
    """Host engine of the check: `own`, or `host` for the DCGM engine of the AMI, if it runs and is not older."""
    xid_policy: str = _setting("nvidia", one_of("nvidia", "aws"))
    """Classification of the XIDs on which vendors disagree: `nvidia` for NVIDIA's catalogue, `aws` for the list of ECS
    Managed Instances. Also the threshold `xid_profile`.
    """

    ray_dashboard: str = _setting("", text(r"(https?://[\w.-]{1,253}(:\d{1,5})?)?", "the URL of a Ray dashboard"))
    """Address of a Ray cluster that is a second pool, `http://<head>:8265`. Empty: there is no Ray cluster."""
    ray_control_store: str = _setting("", text(r"([\w.-]{1,253}:\d{1,5})?", "host:port of a Ray control store"))
    """Control store of the Ray cluster, `<head>:6379`."""
    ray_image: str = _setting(
        "build",
        text(
            r"build|\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[^\s:@]{1,256}@sha256:[0-9a-f]{64}",
            "build or the reference of an ECR image by its digest",
        ),
    )
    """Image of the function that reaches the Ray cluster: `build`, or the reference of an ECR image by its digest."""
    ray_base_image: str = _setting("", _BASE_IMAGE)
    """Base of that image by digest, or a copy of it. Empty: the base of the Dockerfile, by its tag.

    Only with `ray_image` = `build`.
    """
    ray_subnet_ids: tuple[str, ...] = _setting((), items(text(r"subnet-[0-9a-f]{8,17}", "the id of a subnet")))
    """Subnets of the function that reaches the Ray cluster."""
    ray_security_group_ids: tuple[str, ...] = _setting(
        (), items(text(r"sg-[0-9a-f]{8,17}", "the id of a security group"))
    )
    """Security groups of the function that reaches the Ray cluster."""

    console: str = _setting("on", one_of("on", "off"))
    """Whether the deployment serves the web console at `<ApiUrl>/console`: `on` or `off`.

    With `api_auth` = `iam` there is no console, because a browser cannot sign requests.
    """
    console_url: str = _setting("", text(r"(https?://[^\s#<>]{1,500})?", "an http or https URL without #"))
    """Address of the console in e-mails and chat messages, for example behind your own domain.

    Empty: `<ApiUrl>/console`, if the deployment serves the console.
    """

    gpu_history: str = _setting("on", one_of("on", "off"))
    """Whether the gauges of all GPUs are kept for 7 days, for the charts of the web console: `on` or `off`.

    It costs one write of less than 1 kB every 5 minutes for each instance. With `on` heartbeats also carry the
    utilisation of the GPUs, for the fleet map.
    """

    # Names that other systems use.
    stack_name: str = _setting("GpuRecovery", text(r"[A-Za-z][A-Za-z0-9-]{0,99}", "a stack name"))
    """Name of the recovery stack. The name of the state stack adds `State`."""
    function_name_prefix: str = _setting("gpu-recovery-", text(r"[A-Za-z0-9_-]{0,40}", "a prefix of function names"))
    """Prefix of the names of the functions."""
    job_table_name: str = _setting("ecs-job-sub", _TABLE)
    """Name of the table of jobs."""
    instance_table_name: str = _setting("ecs_container_instance", _TABLE)
    """Name of the table of instances."""
    event_history_table_name: str = _setting("gpu-recovery-event-history", _TABLE)
    """Name of the table of the event history, which the web console shows."""
    topic_name: str = _setting("gpu-training-notifications", text(r"[A-Za-z0-9_-]{1,256}", "a topic name"))
    """Name of the operators' topic."""
    bus_name: str = _setting("gpu-recovery", text(r"(?!default$)(?!aws)[A-Za-z0-9_.-]{1,256}", "a custom bus name"))
    """Name of the event bus."""
    chat_topic: bool = _setting(False, boolean)
    """Whether there is a second topic, `<topic_name>-chat`, for Amazon Q in chat applications.

    Amazon Q drops messages in other formats than its own.
    """
    alert_emails: tuple[str, ...] = _setting((), items(text(EMAIL, "an e-mail address")))
    """E-mail addresses that are notified. Each address must confirm its subscription."""
    alert_endpoints: tuple[str, ...] = _setting((), items(alert_endpoint))
    """Further subscribers of the operators' topic: HTTPS addresses, and ARNs of SQS queues."""

    # Operation.
    upgrade_from: str = _setting("", text(r"(0\.1)?", 'empty or the text "0.1"'))
    """`0.1` for the first of the two deployments of an upgrade from release 0.1.

    That deployment keeps the index of instances that 0.1 reads. Else empty.
    """
    profile: str = _setting("dev", one_of("dev", "prod"))
    """`dev`, or `prod`, which protects the state stack and keeps tables, verdicts, secrets and logs when a stack is
    deleted.
    """
    log_retention_days: int = _setting(0, integer_of((0, *RETENTION_DAYS)))
    """Days for which every log group keeps its lines. 0: the days of the profile."""
    log_level: str = _setting("INFO", one_of("DEBUG", "INFO", "WARNING", "ERROR"))
    """Log level of the functions: `DEBUG`, `INFO`, `WARNING` or `ERROR`. Metrics are sent at every level."""
    reconcile_every_minutes: int = _setting(1, integer(1, 5))
    """Minutes between two cycles of the reconciler, 1 to 5."""
    schedule_every_minutes: int = _setting(1, integer(1, 5))
    """Minutes between two ticks of the scheduler, 1 to 5."""
    reserved_concurrency: int = _setting(0, integer_of((0, *range(2, 11))))
    """Concurrent executions reserved for the reconciler, and as many for the scheduler: 2 to 10, or 0 for none.

    One is too few, because a cycle may begin before the cycle of the minute before has ended. Lambda refuses a
    reservation that leaves less than 100 unreserved.
    """
    snap_start: bool = _setting(False, boolean)
    """Whether the job API starts from a snapshot (Lambda SnapStart), so that no request waits for imports.

    AWS charges for the snapshot. China, GovCloud and the regions of New Zealand and Taipei lack it.
    """
    powertools_layer: str = _setting(
        "own",
        text(
            r"own|public|arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:layer:[\w-]+:\d+",
            "own, public or the ARN of a layer version with Powertools",
        ),
    )
    """Layer with the libraries of the functions.

    `own`: the layer that `make setup` builds, which the tests use. `public`: the layer that AWS publishes, in
    commercial regions and in cn-north-1; its release may be older. Else the ARN of a layer version, which must have
    Powertools 3 with its extra `parser` (pydantic 2).
    """

    def __post_init__(self) -> None:
        errors: list[Problem] = []
        for each in fields(self):
            try:
                object.__setattr__(self, each.name, each.metadata["read"](getattr(self, each.name)))
            except ValueError as error:
                errors.append((each.name, str(error)))
        if not errors:
            errors += self._shared_families() or self._shared_tables()
        errors += [] if errors else setting_checks.wrong_callers(self.api_auth, self.api_roles)
        errors += [] if errors else setting_checks.without_effect(vars(self))
        if not errors:
            errors += setting_checks.replaceable_image(self.health_check_image, is_prod=self.is_prod)
            errors += [
                (name, f"has no effect unless {BUILT_IF[name]}")
                for name, is_built in self._built_on.items()
                if getattr(self, name) and not is_built
            ]
        if not errors and self.has_ray:
            missing = [name for name in RAY_NEEDS if not getattr(self, name)]
            errors += [(name, f"is needed with {NAMESPACE}ray_dashboard") for name in missing]
        for switch, setting in SETTINGS_OF_THEIR_OWN.items() if not errors else ():
            if switch in self.policy:
                errors.append(("policy", f"{switch} is a setting of its own, {NAMESPACE}{setting}"))
        if not errors:
            # The function that also reads the policy in Lambda, so that a wrong threshold fails at synthesis.
            try:
                policy = policy_from(self.recovery_policy)
            except PolicyInvalid as error:
                errors.append(("policy", str(error)))
            else:
                errors += setting_checks.too_short_for_checks(self.check_level, policy)
        if errors:
            raise DeploymentSettingsError(errors)

    @classmethod
    def from_context(cls, context: Mapping[str, Any]) -> "DeploymentSettings":
        """Return the settings of a CDK context. Keys without the prefix `NAMESPACE` are ignored.

        Raises:
            DeploymentSettingsError: a setting is wrong or does not exist.
        """
        ours = {key.removeprefix(NAMESPACE): value for key, value in context.items() if key.startswith(NAMESPACE)}
        known = [each.name for each in fields(cls)]
        if unknown := sorted(ours.keys() - {*known}):
            raise DeploymentSettingsError([(name, no_such_setting(name, known)) for name in unknown])
        return cls(**ours)

    def _shared_tables(self) -> list[Problem]:
        """Return an error message for a table name that two tables would share."""
        if self.job_table_name == self.instance_table_name:
            return [("instance_table_name", f"{self.instance_table_name!r} is also the job table")]
        history = self.event_history_table_name
        if history in (self.job_table_name, self.instance_table_name):
            return [("event_history_table_name", f"{history!r} is also another table")]
        return []

    def _shared_families(self) -> list[Problem]:
        """Return an error message for each family that two kinds of tasks would share."""
        shared = []
        if self.check_family in self.training_task_families:
            shared.append(("check_family", f"{self.check_family!r} is also a training family"))
        if self.runs_agent and self.agent_family in (*self.training_task_families, self.check_family):
            shared.append(("node_agent", f"{self.agent_family!r} is also the family of other tasks"))
        return shared

    @property
    def has_ray(self) -> bool:
        """Whether the deployment has a Ray cluster."""
        return bool(self.ray_dashboard)

    @property
    def runs_agent(self) -> bool:
        """Whether the deployment runs the node agent as a daemon service."""
        return self.node_agent == "daemon"

    @property
    def agent_family(self) -> str:
        """Task definition family of that service, and its name."""
        return f"{self.function_name_prefix}agent"

    @property
    def builds_agent_image(self) -> bool:
        """Whether the deployment builds the image of the node agent."""
        return self.build_agent_image or self.runs_agent

    @property
    def builds_images(self) -> bool:
        """Whether the deployment builds an image itself."""
        return any(self._built_on.values())

    @property
    def _built_on(self) -> dict[str, bool]:
        """Whether the deployment builds an image on the base that the setting names, for each such setting."""
        return {
            "health_check_base_image": self.health_check_image == BUILD,
            "ray_base_image": self.has_ray and self.ray_image == BUILD,
            "agent_base_image": self.builds_agent_image,
        }

    @property
    def keeps_index_of_whole_records(self) -> bool:
        """Whether the table of instances keeps the index `by_status`, which lists are read from during the upgrade."""
        return bool(self.upgrade_from)

    @property
    def signs_requests(self) -> bool:
        """Whether callers of the API sign their requests instead of sending a token."""
        return self.api_auth == "iam"

    @property
    def serves_console(self) -> bool:
        """Whether the deployment serves the web console. Browsers send sessions, so it needs tokens."""
        return self.console == "on" and not self.signs_requests

    @property
    def is_prod(self) -> bool:
        """Whether the profile is `prod`: data is retained and protected against deletion."""
        return self.profile == "prod"

    @property
    def retention_days(self) -> int:
        """Days for which log groups keep their lines."""
        return self.log_retention_days or PROFILE_RETENTION_DAYS[self.profile]

    @property
    def warnings(self) -> dict[str, str]:
        """Warnings that synthesis prints, by the ids with which the CDK acknowledges warnings."""
        found = {
            f"renamed-setting:{old}": f"{NAMESPACE}policy: {old} is now {RENAMED[old]}; the former name is accepted "
            "until version 0.4"
            for old in self.policy
            if old in RENAMED
        }
        if self.signs_requests and not self.node_role_arns and not self.runs_agent:
            found["no-agent-can-report"] = (
                f"{NAMESPACE}node_role_arns: names no role, so no agent can report while {NAMESPACE}api_auth is iam"
            )
        resets = policy_from(self.recovery_policy).gpu_reset
        if self.runs_agent and resets is not bool(self.agent_gpu_reset_instance_types):
            needed = "policy: gpu_reset is off" if not resets else "agent_gpu_reset_instance_types: names no type"
            found["no-gpu-is-reset"] = f"{NAMESPACE}{needed}, so the node agents of the deployment reset no GPU"
        if self.keeps_index_of_whole_records:
            found["upgrade-from"] = (
                f"{NAMESPACE}upgrade_from: keeps an index with a hot partition key. Deploy again without the setting "
                "once every instance is in the index `listing` (docs/upgrading.md)"
            )
        return found

    @property
    def recovery_policy(self) -> dict[str, Any]:
        """The policy as the functions read it: the variable `RECOVERY_POLICY`.

        It holds the preset, the thresholds that the settings give, the switches that are on, and the XID profile if it
        is not the default.
        """
        switched_on = {switch: True for switch in SWITCHES if getattr(self, switch)}
        judged = {} if self.xid_policy == policy_from({}).xid_profile else {"xid_profile": self.xid_policy}
        return {"preset": self.preset, **with_present_names(self.policy), **switched_on, **judged}
