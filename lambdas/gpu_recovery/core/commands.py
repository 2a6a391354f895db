"""Commands of the job and instance state machines: saved before they are executed, and safe to repeat.

A command about an attempt is collective: it stands for an AWS call for each rank of the gang, so a record never holds
a thousand commands. `TellJob` and `TellInstance` carry an event to a record of the other state machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from gpu_recovery.core.events import CheckRequested, InstanceEvent, JobEvent
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

# -- of a job ----------------------------------------------------------------------------------------------------------


@frozen_dataclass()
class LaunchAttempt:
    """Claim the instances and run one task on each. Applies only while the job is SUBMITTING this attempt.

    is_probe: the launch is a probe: it tries whether a missing permission has been granted.
    hold_s: seconds for which the container of a rank waits for the next attempt after its process has failed; 0: it
        does not wait.
    in_place_of: the earlier attempt whose claims, and held tasks, this attempt uses again; 0: none.
    """

    attempt: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...]
    port_offset: int
    is_probe: bool = False
    hold_s: int = 0
    in_place_of: int = 0


@frozen_dataclass()
class StartSpare:
    """Claim the instance of a warm spare and start its task, unless the job releases it meanwhile.

    number: the number of the warm spare.
    """

    number: int


@frozen_dataclass()
class ClaimInstance:
    """Record that the attempt holds GPUs of an instance on which a user started its rank."""

    instance_id: str
    attempt: int
    gpus: int
    rank: int = -1


@frozen_dataclass()
class StopAttempt:
    """Stop every rank of the attempt that is not known to have ended.

    hold: end only the processes, through the node agents, and keep the containers for the next attempt. Ranks that
        cannot be held are stopped in ECS.
    """

    attempt: int
    hold: bool = False


@frozen_dataclass()
class SuspendAttempt:
    """Send the suspend command to rank 0 of the attempt. Applies only while the job is SUSPENDING."""

    attempt: int


@frozen_dataclass()
class EndRanks:
    """End the attempt's ranks through the node agents, for ranks that ECS cannot stop or does not know."""

    attempt: int


@frozen_dataclass()
class EndUnconfirmed:
    """Reboot the instances of ranks that cannot be stopped, unless the end of the rank is confirmed meanwhile.

    at:    time of the decision. An instance that was rebooted since is not rebooted for it.
    ranks: the ranks by the evidence against them, a sentence. No ranks stand for every rank of the attempt.
    """

    attempt: int
    at: datetime
    ranks: Mapping[str, tuple[int, ...]]


@frozen_dataclass()
class ObserveAttempt:
    """Poll ECS for every rank of the attempt that is not known to have ended, and report the answers."""

    attempt: int


@frozen_dataclass()
class GatherEvidence:
    """Collect evidence of the attempt and diagnose it: reports of ranks and instances, and logs of failed ranks."""

    attempt: int


@frozen_dataclass()
class CheckInstances:
    """Request a health check of every instance of the ended attempt. Each instance answers by ReportCheck."""

    attempt: int
    request: CheckRequested


@frozen_dataclass()
class TellInstance:
    """Deliver an event to one instance."""

    instance_id: str
    event: InstanceEvent


@frozen_dataclass()
class ReleaseInstances:
    """Remove the job's claims and reservations from its instances.

    An instance with a held task keeps its claim until ECS confirms the end of the task, which the command orders.
    """

    instances: tuple[str, ...]
    keep_claims_of: tuple[str, ...] = ()
    """Instances that keep the claim because the end of their rank was never confirmed: their GPUs are not free."""
    attempt: int | None = None
    """Last attempt of the claims that are removed, so that a late command keeps later claims. None: any attempt."""
    left_out: tuple[str, ...] = ()
    """Instances of `instances` that the job avoids from now on. The instance records remember it."""
    check: CheckRequested | None = None
    """The health check of each instance, which takes its claim over once no task of the job is left there."""


@frozen_dataclass()
class PokeScheduler:
    """Start a scheduler pass now instead of at the next tick."""

    key: str


@frozen_dataclass()
class RecordAttempt:
    """Write the job record of an ended attempt. Attempt 0 stands for the submitted text."""

    attempt: int


# -- of an instance ----------------------------------------------------------------------------------------------------


@frozen_dataclass()
class RunCheck:
    """Run the health check `check_id` on the instance. If ECS refuses it for lack of GPUs, it is tried again later."""

    check_id: str


@frozen_dataclass()
class StopCheck:
    """Stop the task of the health check.

    task_id: the task; "" if it is not recorded.
    signed:  whether the task carries a launch signature. False: an older release started the check or gave the command.
    """

    check_id: str
    task_id: str = ""
    signed: bool = False


@frozen_dataclass()
class ObserveCheck:
    """Poll ECS for the check, and report its verdict if the check has ended."""

    check_id: str


@frozen_dataclass()
class ObserveInstance:
    """Poll ECS for the container instance, and EC2 while it is REPLACING or has orphans. Report the answers."""


@frozen_dataclass()
class DrainInstance:
    """Set the container instance to DRAINING, so that ECS places no task on it."""


@frozen_dataclass()
class ActivateInstance:
    """Set the container instance to ACTIVE, so that ECS places tasks on it again. Our claims still keep jobs away."""


@frozen_dataclass()
class ResetGpus:
    """Order the node agent to reset the GPUs of the instance. Applies only while it is RESETTING at `epoch`."""

    epoch: int


@frozen_dataclass()
class RebootInstance:
    """Reboot the instance. Applies only while it is REBOOTING at `epoch`. A repeat first compares the boot."""

    epoch: int


@frozen_dataclass()
class ReplaceInstance:
    """Terminate the instance in its Auto Scaling group, or stop it if it has none.

    Applies only while the instance is REPLACING at `epoch`.
    """

    epoch: int


@frozen_dataclass()
class StartInstance:
    """Start the stopped instance on another host. Applies only while the instance is REPLACING at `epoch`."""

    epoch: int


@frozen_dataclass()
class DeregisterInstance:
    """Deregister a container instance with a dead ECS agent, so that ECS gives up its tasks."""

    container_instance_id: str


@frozen_dataclass()
class TellJob:
    """Deliver an event to one job, about an attempt of that job."""

    job_id: str
    event: JobEvent


@frozen_dataclass()
class ReportCheck:
    """Record the check result of the instance for its rank of the attempt. The last result ends the barrier."""

    job_id: str
    attempt: int
    outcome: str
    summary: str
    repairing: bool


@frozen_dataclass()
class ConfirmEnd:
    """Record that the job's rank on this instance ended: the instance booted after the launch, or is gone."""

    job_id: str
    attempt: int
    sentence: str


# -- of both -----------------------------------------------------------------------------------------------------------


class Channel(StrEnum):
    """Channel of notifications to operators. Each channel has its own command, so no channel waits for another."""

    MAIL = "mail"
    CHAT = "chat"


@frozen_dataclass()
class NotifyOperator:
    """Publish one message to operators. The same incident always has the same `incident_id`.

    phase: place of the message in the incident's thread (`core.notifications.template.Phase`).
    job_id, instance_id: subject of the message, "" for none. Subscriptions filter by both.
    evidence_of: instances whose health and repairs are added to the evidence when the message is sent.
    evidence_since: time from which decisions about these instances belong to the incident. None: only their
        present health is added.
    """

    incident_id: str
    severity: str
    subject: str
    body: str
    phase: str = "noted"
    job_id: str = ""
    instance_id: str = ""
    channel: Channel = Channel.MAIL
    evidence_of: tuple[str, ...] = ()
    evidence_since: datetime | None = None


@frozen_dataclass()
class PublishEvent:
    """Publish one event on the custom bus. Its data has `incident_id`, None if there is no incident."""

    detail_type: str
    data: Mapping[str, object]


JOB_COMMANDS = (
    LaunchAttempt,
    StartSpare,
    ClaimInstance,
    StopAttempt,
    SuspendAttempt,
    EndRanks,
    EndUnconfirmed,
    ObserveAttempt,
    GatherEvidence,
    CheckInstances,
    TellInstance,
    ReleaseInstances,
    PokeScheduler,
    RecordAttempt,
    NotifyOperator,
    PublishEvent,
)
INSTANCE_COMMANDS = (
    RunCheck,
    StopCheck,
    ObserveCheck,
    ObserveInstance,
    DrainInstance,
    ActivateInstance,
    ResetGpus,
    RebootInstance,
    ReplaceInstance,
    StartInstance,
    DeregisterInstance,
    TellJob,
    ReportCheck,
    ConfirmEnd,
    PokeScheduler,
    NotifyOperator,
    PublishEvent,
)
BACKEND_COMMANDS = (LaunchAttempt, StopAttempt, EndRanks, ObserveAttempt, PokeScheduler)
"""The commands that concern the backend of a job. All other commands are the same for every backend."""
