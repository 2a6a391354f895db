"""Values that a store or an action returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_recovery.core.attempt import AttemptProgress
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.job.record import Job, JobStatus


@dataclass(frozen=True, slots=True)
class ProgressUpdate:
    """The progress after a rank's fact was added, and whether that fact is the attempt's first failure."""

    progress: AttemptProgress
    first_failure: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """ECS definitely did not start a task, and says why. `lasting`: asking again will not help."""

    reason: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Ec2Instance:
    """What EC2 says of one instance at this moment, as far as a repair must know it.

    managed:  it carries the tag by which its owners let us reboot and replace it.
    in_maintenance:    it carries the tag by which a person keeps it from us for a while (maintenance).
    group:        its Auto Scaling group, "" if it is in none.
    restartable:  it may be stopped and started again: on demand, with a root volume on EBS.
    """

    state: Ec2InstanceState
    managed: bool = True
    in_maintenance: bool = False
    group: str = ""
    restartable: bool = False


def ec2_state_of(
    instance_id: str, ec2_instances: Mapping[str, Ec2Instance], agent_connected: bool
) -> Ec2InstanceState | None:
    """The state of a machine that was asked for; None where nobody knows, as of one that is none of EC2's (`mi-...`).

    EC2 forgets a terminated instance after an hour or so: one that it does not know is terminated, unless its agent
    lives, for then EC2's answer is not whole.
    """
    if instance_id in ec2_instances:
        return ec2_instances[instance_id].state
    return Ec2InstanceState.TERMINATED if instance_id.startswith("i-") and not agent_connected else None


@dataclass(frozen=True, slots=True)
class Ec2InstanceStatus:
    """What EC2's own checks and plans say of one instance: both status checks, and the scheduled events."""

    state: Ec2InstanceState
    health: tuple[HealthReported, ...] = ()
    interruptions: tuple[DepartureAnnounced, ...] = ()


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs of a listing, and the cursor that continues it (None at its end)."""

    jobs: tuple[Job, ...]
    cursor: str | None


LISTED_STATUSES = (
    JobStatus.RUNNING,
    JobStatus.LOST,
    JobStatus.SUBMITTED,
    JobStatus.SUBMITTING,
    JobStatus.SUSPENDING,
    JobStatus.STOPPING,
    JobStatus.DIAGNOSING,
    JobStatus.RECOVERING,
    JobStatus.QUEUED,
    JobStatus.PENDING_RESOURCES,
    JobStatus.SUSPENDED,
    JobStatus.FAILED,
    JobStatus.CANCELED,
    JobStatus.SUCCEEDED,
)
"""The order of a listing of everything: what is under way first."""
