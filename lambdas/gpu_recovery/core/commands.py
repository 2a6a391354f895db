"""Orders the machines give: imperative, frozen, saved before they are carried out and safe to repeat.

A command about a job's attempt is collective: it stands for as many AWS calls as the gang has ranks, so that a
record never holds a thousand orders. One for the other machine is `TellJob` or `TellInstance`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpu_recovery.core.events import CheckRequested, InstanceEvent, JobEvent

# -- of a job ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchAttempt:
    """Claim the instances and run one task on each. Void unless the job is still SUBMITTING this attempt."""

    attempt: int
    instances: tuple[str, ...]
    epochs: tuple[int, ...]
    port_offset: int


@dataclass(frozen=True, slots=True)
class ClaimInstance:
    """Enter that the attempt holds GPUs of an instance on which a person started its rank."""

    instance_id: str
    attempt: int
    gpus: int
    rank: int = -1


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """Stop every rank of the attempt that is not known to have ended."""

    attempt: int


@dataclass(frozen=True, slots=True)
class SuspendAttempt:
    """Tell rank 0 of the attempt that it must leave. Void unless the job is still SUSPENDING."""

    attempt: int


@dataclass(frozen=True, slots=True)
class EndRanks:
    """Have the agents of the attempt's instances end its ranks, for what ECS cannot stop or does not know."""

    attempt: int


@dataclass(frozen=True, slots=True)
class ObserveAttempt:
    """Ask ECS about every rank of the attempt that is not known to have ended, and report what it says."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GatherEvidence:
    """Read what the attempt's ranks and machines have reported, and the logs of those that failed, and diagnose it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class CheckInstances:
    """Have every instance of the ended attempt checked; each answers by TellJob."""

    attempt: int
    request: CheckRequested


@dataclass(frozen=True, slots=True)
class TellInstance:
    """Give one instance an event."""

    instance_id: str
    event: InstanceEvent


@dataclass(frozen=True, slots=True)
class ReleaseInstances:
    """Take the job's claims and reservations off its instances."""

    instances: tuple[str, ...]
    keep_claims_of: tuple[str, ...] = ()
    """Instances on which a rank's end was never confirmed: their GPUs are not free."""
    attempt: int | None = None
    """The last attempt whose claims are meant: carried out late, the order must not take a later one's. None: any."""
    left_out: tuple[str, ...] = ()
    """Those of the instances that the job leaves out from now on, which is remembered of them."""


@dataclass(frozen=True, slots=True)
class PokeScheduler:
    """Make the scheduler look now instead of at its next tick."""

    key: str


@dataclass(frozen=True, slots=True)
class RecordAttempt:
    """Leave what is known of an attempt that has ended where people keep records; 0: what was submitted."""

    attempt: int


# -- of an instance ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunCheck:
    """Run the health check `check_id` on the instance; refused for lack of GPUs, it is tried again later."""

    check_id: str


@dataclass(frozen=True, slots=True)
class StopCheck:
    """Stop the health check's task."""

    check_id: str


@dataclass(frozen=True, slots=True)
class ObserveCheck:
    """Ask ECS whether the check has ended, and report its verdict if so."""

    check_id: str


@dataclass(frozen=True, slots=True)
class ObserveInstance:
    """Ask ECS about the container instance and report what it says."""


@dataclass(frozen=True, slots=True)
class DrainInstance:
    """Keep ECS from placing anything on the instance."""


@dataclass(frozen=True, slots=True)
class ActivateInstance:
    """Let ECS place tasks on the instance again; our own claims still keep jobs away."""


@dataclass(frozen=True, slots=True)
class RebootInstance:
    """Reboot the instance. Void unless it is still REBOOTING at `epoch`; never repeated without a look at the boot."""

    epoch: int


@dataclass(frozen=True, slots=True)
class ReplaceInstance:
    """Terminate the instance in its Auto Scaling group, else stop it. Void unless it is still REPLACING at `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StartInstance:
    """Start the stopped instance, which gives it another host. Void unless it is still REPLACING at `epoch`."""

    epoch: int


@dataclass(frozen=True, slots=True)
class DeregisterInstance:
    """Take a registration with ECS away whose agent is dead, so that ECS gives up its tasks."""

    container_instance_id: str


@dataclass(frozen=True, slots=True)
class TellJob:
    """Give one job an event about an attempt of its own."""

    job_id: str
    event: JobEvent


@dataclass(frozen=True, slots=True)
class ReportCheck:
    """Enter the instance's check result for its rank of the attempt; the last one takes the barrier down."""

    job_id: str
    attempt: int
    outcome: str
    summary: str
    repairing: bool


@dataclass(frozen=True, slots=True)
class ConfirmEnd:
    """Enter that the job's rank on this instance has ended: the machine booted after its launch, or is gone."""

    job_id: str
    attempt: int
    sentence: str


# -- of both -----------------------------------------------------------------------------------------------------------


class Channel(StrEnum):
    """Where operators are told. Each channel has its own command, so that none of them waits for another."""

    MAIL = "mail"
    CHAT = "chat"


@dataclass(frozen=True, slots=True)
class NotifyOperator:
    """Publish one message to operators. The same incident always has the same `incident_id`.

    phase: where it stands in the incident's thread (`notices.form.Phase`).
    job_id, instance_id: whom it is about, "" for nobody; subscriptions filter by them.
    """

    incident_id: str
    severity: str
    subject: str
    body: str
    phase: str = "noted"
    job_id: str = ""
    instance_id: str = ""
    channel: Channel = Channel.MAIL


@dataclass(frozen=True, slots=True)
class PublishEvent:
    """Put one event of ours on the custom bus. Its data has `incident_id`, None where there is no incident."""

    detail_type: str
    data: Mapping[str, object]


JOB_COMMANDS = (
    LaunchAttempt,
    ClaimInstance,
    StopAttempt,
    SuspendAttempt,
    EndRanks,
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
