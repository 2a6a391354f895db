"""The job specification: what a user submits, and the bounds of its fields. `job_api/job_spec.py` reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.policy import Preflight, RecoveryPolicy
from gpu_recovery.core.queue.priority import Priority

NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
"""Pattern of a workload name."""
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Pattern of the name that a user gives to a job."""
FAMILY = re.compile(r"[A-Za-z0-9_-]{1,255}(:[0-9]+)?")
"""Pattern of an ECS task definition: family or family:revision."""
OUR_VARIABLES = frozenset(
    {
        "JOB_ID",
        "ATTEMPT",
        "RANK",
        "WORLD_SIZE",
        "NODE_RANK",
        "NNODES",
        "GPUS_PER_NODE",
        "MASTER_IP",
        "MASTER_ADDR",
        "MASTER_PORT",
        "INSTANCE_ID",
        "RUNNING_LOG_ID",
        "EPOCH",
        "SUSPEND_GRACE_S",
    }
)
"""Environment variables that the system sets on every rank."""
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,511}")
"""Pattern of a container image."""
BESIDE_AN_IMAGE = frozenset({"env_vars", "config"})
"""Fields of a `runtime_env` that Ray allows together with `image_uri`."""
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
"""Pattern of a group name."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Pattern of the name of an environment variable, as POSIX shells read it. ECS refuses some other names at launch."""
RESERVED_VARIABLES = OUR_VARIABLES | {"LAUNCH_TAG"}
"""Variables that a specification may not set, because the system sets them."""
RESERVED_PREFIXES = ("GPU_RECOVERY_", "GPUTASKER_", "ECS_", "AWS_CONTAINER_")
"""Prefixes of variables that a specification may not set: those of our tools and those of the ECS agent."""
VARIABLES_OF_PROGRAMS = frozenset(
    {
        "GPU_RECOVERY_API_URL",
        "GPU_RECOVERY_TOKEN",
        "GPU_RECOVERY_WORKER",
        "GPU_RECOVERY_ROLE",
        "GPU_RECOVERY_FORWARD_SIGTERM",
        "GPU_RECOVERY_LAST_WORDS",
        "GPU_RECOVERY_PREFLIGHT_BUDGET_S",
        "GPU_RECOVERY_RDMA_DEVICES",
    }
)
"""Variables with a reserved prefix that a specification may set, because docs/training.md gives them to programs."""
NNODES_MAX = 3_000
"""Upper bound of the instances of a job."""
COMMAND_AND_ENV_CHARACTERS_MAX = 6_000
"""Upper bound of the characters of `command` and `env` as JSON. ECS allows 8,192 characters of overrides as JSON; the
rest is for the variables that we add."""
SUSPEND_GRACE_S, SUSPEND_GRACE_S_MAX = 5, 110
"""Default and upper bound of the suspend grace, in seconds. The grace must fit into the container's `stopTimeout`, too.

Another job waits for the end of the grace, so the bound is short. ECS on EC2 would allow any time."""
RUNTIME_ENV_CHARACTERS_MAX = 16_000
"""Upper bound of the characters of a `runtime_env` as JSON."""
RESOURCE_MAX, RESOURCES_MAX, RESOURCE_NAME_CHARACTERS_MAX = 1_000_000, 16, 64
"""Upper bounds of the amount of a Ray resource, of the number of resources, and of the characters of a name."""
ON_RAY_ONLY = ("entrypoint", "runtime_env", "entrypoint_resources")
"""Fields that only a job on Ray may have."""
CONTRACT_MINUTES_MAX = 1_440
"""Upper bound of the limits of a recovery contract, in minutes: one day."""
CHECKPOINT_EVERY_S_MAX = 86_400
"""Upper bound of the time between two checkpoints, in seconds: one day."""
WARM_SPARES_MAX = 8
"""Largest number of warm spares of a job."""
ON_ECS_ONLY = (
    "task_definition",
    "container",
    "command",
    "restart_in_place",
    "warm_spares",
    "preflight",
    "max_down_minutes",
    "max_lost_minutes",
    "checkpoint_every_s",
    "reports_progress",
)
"""Fields that only a job on ECS may have."""


class Backend(StrEnum):
    """The system that runs a job."""

    ECS = "ecs"
    RAY = "ray"


@frozen_dataclass()
class JobSpec:
    """A training job: `nnodes` instances with `gpus_per_node` GPUs each, and a rank (ECS task) on every instance.

    Attributes:
        nnodes: the number of instances; of an elastic job the largest number.
        nnodes_min: the smallest number of instances of an elastic job; None for a fixed number.
        task_definition: ECS family or family:revision; "" on Ray. Host network mode is required and checked at
            submission.
        container: the container that decides by its exit code; "" until the task definition has been read.
        stop_timeout_s: seconds that ECS gives that container between SIGTERM and SIGKILL; None if it was not read.
        task_stop_timeout_s: the longest such time of all containers of the task; None if it was not read.
        command: the command of the ranks; an empty command leaves that of the task definition.
        env: environment variables of the ranks.
        max_runtime_s: time limit in seconds, None for no limit. Placement takes it as the job's expected run time.
        group: the instances the job may run on, by their attribute `gpu-recovery.group`; "" for those without a group.
        suspend_grace_s: seconds that rank 0 has after the suspension notice to save its state and leave.
        checkpoint_dir: the directory of the ranks' checkpoints, as the ranks see it; "" if not stated.
        entrypoint: on Ray, the shell command of the driver.
        entrypoint_resources: on Ray, the resources that the driver itself takes.
        image: the container image. On ECS it must be that of the task definition's container. On Ray, driver and
            workers run in it.
        runtime_env: Ray's description of the driver's environment, as JSON text; "" for none.
        name: name that the user gave to the job, "" for none. Several jobs may have the same name.
        progress_timeout_s: seconds without progress after which the job counts as hung; None: the policy decides.
        restart_in_place: whether the job is restarted in its containers where that is possible; None: as the policy
            of the deployment says.
        warm_spares: number of idle instances on which containers of the job wait for a lost rank; None: as the policy
            of the deployment says.
        preflight: what each rank tests in its container before the training starts; None: as the policy of the
            deployment says.
        max_down_minutes: most minutes from a failure to the next training step that the recovery contract allows.
        max_lost_minutes: the same with the work that is done again. None: the contract has no such limit.
        checkpoint_every_s: seconds between two durable checkpoints, as the user states them; None: not stated.
        reports_progress: whether the program reports progress, as the user states it; None: not stated.
        timeouts: known timeouts of the ranks, by variable or option and in its unit (`core/job/timeout_order.py`).
    """

    workload: str
    nnodes: int
    gpus_per_node: int
    task_definition: str = ""
    container: str = ""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    attempts_max: int | None = None
    max_runtime_s: int | None = None
    priority: Priority = Priority.NORMAL
    group: str = ""
    suspend_grace_s: int = SUSPEND_GRACE_S
    stop_timeout_s: int | None = None
    task_stop_timeout_s: int | None = None
    checkpoint_dir: str = ""
    backend: Backend = Backend.ECS
    entrypoint: str = ""
    runtime_env: str = ""
    entrypoint_resources: Mapping[str, int] = field(default_factory=dict)
    image: str = ""
    name: str = ""
    progress_timeout_s: int | None = None
    restart_in_place: bool | None = None
    warm_spares: int | None = None
    preflight: Preflight | None = None
    max_down_minutes: int | None = None
    max_lost_minutes: int | None = None
    checkpoint_every_s: int | None = None
    reports_progress: bool | None = None
    timeouts: Mapping[str, int] = field(default_factory=dict)
    nnodes_min: int | None = None

    @property
    def width_min(self) -> int:
        """The smallest number of instances with which an attempt may run."""
        return self.nnodes if self.nnodes_min is None else self.nnodes_min

    @property
    def is_reporting_progress(self) -> bool:
        """Whether the job counts as a job that reports progress: as it states, or if it has a progress timeout."""
        return self.progress_timeout_s is not None if self.reports_progress is None else self.reports_progress


def runs_preflight(spec: JobSpec, policy: RecoveryPolicy) -> bool:
    """Return whether the launch asks the wrapper of each rank for a preflight before the training starts."""
    wanted = policy.preflight if spec.preflight is None else spec.preflight
    return spec.backend is Backend.ECS and wanted is Preflight.QUICK
