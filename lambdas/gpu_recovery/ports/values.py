"""Values that a store or an action returns."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gpu_recovery.core.attempt import AttemptProgress
from gpu_recovery.core.events import DepartureAnnounced, HealthReported
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.record import CheckRefusal, ListedInstance
from gpu_recovery.core.job.record import JobStatus, ListedJob
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.missing_permission import MissingPermission


@frozen_dataclass()
class StartedCheck:
    """A health check that was started, and its ECS task."""

    check_id: str
    task_id: str


@frozen_dataclass()
class RefusedCheck:
    """A health check that ECS refused to start, and why."""

    check_id: str
    refusal: CheckRefusal


@frozen_dataclass()
class ProgressUpdate:
    """Progress of an attempt after a fact about a rank was added.

    progress:      the whole progress. The progress of a large gang is stored in parts: then it is whole only if the
                   fact completes the ranks that run, ended or were checked; otherwise it holds this fact alone. Such a
                   progress completes nothing, and has a failure only if the failure is the first of the attempt.
    first_failure: the fact is the first failure of the attempt.
    """

    progress: AttemptProgress
    first_failure: bool = False


@frozen_dataclass()
class Refusal:
    """A definite refusal of a call by AWS or Ray.

    reason:  the answer of AWS or Ray.
    lasting: a repeated call would be refused too.
    lacks:   the permission that the deployment lacks, if AWS refused for that; None otherwise. Then no job is at fault,
             and a repeated call succeeds once an operator has granted the permission.
    """

    reason: str
    lasting: bool = False
    lacks: MissingPermission | None = None


@frozen_dataclass()
class Ec2Instance:
    """The state of one EC2 instance, as far as a repair needs it.

    managed:        the instance carries the opt-in tag that permits reboots and replacement.
    in_maintenance: the instance carries the maintenance tag, by which an operator excludes it from repairs for a while.
    group:          its Auto Scaling group; "" if it is in none.
    restartable:    the instance can be stopped and started: on demand, with a root volume on EBS.
    reservation:    the Capacity Reservation or Capacity Block that it runs in; "" if it is in none.
    private_ip:     its private IPv4 address; "" once it is terminated.
    """

    state: Ec2InstanceState
    managed: bool = True
    in_maintenance: bool = False
    group: str = ""
    restartable: bool = False
    reservation: str = ""
    private_ip: str = ""


def ec2_state_of(
    instance_id: str, ec2_instances: Mapping[str, Ec2Instance], agent_connected: bool
) -> Ec2InstanceState | None:
    """Return the state of an instance that EC2 was asked about; None if the state is unknown.

    EC2 forgets a terminated instance after about an hour. So a missing instance counts as terminated, unless its ECS
    agent is connected: then the answer of EC2 is incomplete. Instances outside EC2 (`mi-...`) have no such state.
    """
    if instance_id in ec2_instances:
        return ec2_instances[instance_id].state
    return Ec2InstanceState.TERMINATED if instance_id.startswith("i-") and not agent_connected else None


@frozen_dataclass()
class Ec2InstanceStatus:
    """EC2's statement about one instance: its state, both status checks, and the scheduled events."""

    state: Ec2InstanceState
    health: tuple[HealthReported, ...] = ()
    interruptions: tuple[DepartureAnnounced, ...] = ()


@frozen_dataclass()
class JobPage:
    """A page of a job listing, and the cursor of the next page; None on the last page."""

    jobs: tuple[ListedJob, ...]
    cursor: str | None


@frozen_dataclass()
class InstancePage:
    """A page of a list of instances, and the cursor of the next page; None on the last page."""

    instances: tuple[ListedInstance, ...]
    cursor: str | None


@frozen_dataclass()
class JobQuery:
    """A listing of jobs in the order of their submission.

    statuses: statuses of the jobs.
    newest:   the newest job comes first; otherwise the oldest.
    since:    only jobs submitted at this time or later; None: all.
    prefix:   only jobs whose id begins with this text.
    user:     only jobs of this user; None: of all users. `group` and `name` likewise.
    """

    statuses: tuple[JobStatus, ...]
    newest: bool = True
    since: datetime | None = None
    prefix: str = ""
    user: str | None = None
    group: str | None = None
    name: str | None = None
