"""A scenario: a cluster, its jobs, the faults, and the expected end.

Scenarios are TOML files that an operator can read:

    why = "The agent's word that a rank has stopped is lost, and the reconciler sleeps."

    [cluster]
    instances = 3
    policy = { replace = true }

    [[job]]
    nnodes = 2

    [[fault]]
    kind = "gpu"
    at_s = 120
    machines = [0]

    [[fault]]
    kind = "drop"
    event = "task STOPPED"
    nth = 1

    [expect]
    jobs = ["SUCCEEDED"]

`kind` is one of `KINDS`. The other members of a fault, a job or the cluster are the fields of its class, with the same
defaults. Times are virtual seconds from the start.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.spec import SUSPEND_GRACE_S
from gpu_recovery.core.policy import RecoveryPolicy, policy_from
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import parse_limits

from simulator.cloud.log_output import TRUTH, LogStory
from simulator.cloud.workloads import JobBehaviour, NoticeBehaviour
from simulator.faults.catalogue import KINDS
from simulator.faults.injector import Fault

FOLDER = Path(__file__).parents[1] / "scenarios"
Built = TypeVar("Built")


class ScenarioInvalid(ValueError):
    """The document is not a valid scenario."""


@dataclass(frozen=True, kw_only=True)
class ClusterOf:
    """The instances, and the settings of the product.

    instances: the number of instances.
    gpus:      the GPUs of each instance.
    group:     whether the instances belong to an Auto Scaling group.
    agents:    whether a node agent reports from each instance.
    wrapped:   whether ranks run under `gpu-recovery-run`, so that the node agents see them.
    diagnose:  whether the product diagnoses why an attempt ended.
    lemons:    whether instances that failed often are placed last.
    adopt:     what the product does with gangs that an operator started: `Adoption`.
    policy:    settings that differ from the defaults, as `core.policy.policy_from` reads them.
    limits:    quotas, as `core.queue.quota.parse_limits` reads them.
    """

    instances: int = 2
    gpus: int = 8
    group: bool = False
    agents: bool = False
    wrapped: bool = True
    diagnose: bool = False
    lemons: bool = False
    adopt: str = Adoption.OFF
    policy: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.adopt not in tuple(Adoption):
            raise ScenarioInvalid(f"adopt must be one of {', '.join(Adoption)}, not {self.adopt!r}")
        try:
            policy_from(self.policy)
            parse_limits(self.limits)
        except PolicyInvalid as error:
            raise ScenarioInvalid(str(error)) from error

    @property
    def recovery_policy(self) -> RecoveryPolicy:
        """The policy of the product."""
        return policy_from(self.policy)


@dataclass(frozen=True, kw_only=True)
class JobOf:
    """A gang. It is submitted, or started `by_hand` on the first instances with free GPUs, at `at_s`.

    nnodes:          the number of instances; of an elastic job the largest number.
    nnodes_min:      the smallest number of instances of an elastic job; None: the number is fixed.
    gpus:            the GPUs that it needs on each instance.
    max_runtime_s:   the time limit in its spec; None: no limit.
    user:            the user in its spec.
    priority:        the name of the priority in its spec.
    train_s:         how long it trains; None: as long as the scenario says for all gangs.
    suspend_grace_s: the suspend grace in its spec.
    under_notice:    what rank 0 does when it is asked to stop: `NoticeBehaviour`.
    writes:          what its ranks write when they fail: "truth", always the same `LogStory`, or "" for no log.
    """

    nnodes: int = 2
    gpus: int = 8
    at_s: float = 0
    by_hand: bool = False
    max_runtime_s: int | None = None
    user: str = ""
    priority: str = Priority.NORMAL.name
    train_s: float | None = None
    suspend_grace_s: int = SUSPEND_GRACE_S
    under_notice: str = NoticeBehaviour.LEAVES
    writes: str = ""
    nnodes_min: int | None = None

    def __post_init__(self) -> None:
        if self.priority not in Priority.__members__:
            names = ", ".join(Priority.__members__)
            raise ScenarioInvalid(f"job priority must be one of {names}, not {self.priority!r}")
        if self.under_notice not in tuple(NoticeBehaviour):
            raise ScenarioInvalid(
                f"job under_notice must be one of {', '.join(NoticeBehaviour)}, not {self.under_notice!r}"
            )
        if self.writes not in ("", TRUTH, *LogStory):
            raise ScenarioInvalid(f"job writes must be one of {TRUTH}, {', '.join(LogStory)}, not {self.writes!r}")

    @property
    def habit(self) -> JobBehaviour:
        """How its ranks behave."""
        return JobBehaviour(NoticeBehaviour(self.under_notice), self.train_s)

    def document(self) -> dict[str, Any]:
        """Return the members of the submitted document that differ from the defaults.

        The size of the gang is among them only if the job is elastic.
        """
        names = ("max_runtime_s", "user", "priority", "suspend_grace_s")
        fields = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(JobOf, name)}
        return fields if self.nnodes_min is None else {**fields, "nnodes": {"min": self.nnodes_min, "max": self.nnodes}}


@dataclass(frozen=True, kw_only=True)
class ExpectedMail:
    """One message to operators.

    subject:  a part of its subject.
    severity: its severity: SEV2, SEV3 or SEV4.
    thread:   the number of its thread; the threads are numbered from 0 in the order of their first messages.
    has:      texts that its body must have.
    lacks:    texts that its body must not have.
    """

    subject: str
    severity: str
    thread: int = 0
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The expected end of a run. A field that is None is not checked.

    jobs:        the statuses of the jobs, in the order of submission.
    attempts:    the number of attempts of each job, in the order of submission.
    placed:      the job of each placement, in order, by number of submission.
    reboots:     the number of reboots that took place, on all instances.
    quarantined: the number of instances in quarantine.
    mails:       the upper bound of the number of messages to operators.
    mail:        every message to operators, in order; a scenario file has one `[[expect.mail]]` for each.
    """

    jobs: tuple[str, ...] | None = None
    attempts: tuple[int, ...] | None = None
    placed: tuple[int, ...] | None = None
    reboots: int | None = None
    quarantined: int | None = None
    mails: int | None = None
    mail: tuple[ExpectedMail, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One run, as the module docstring describes it.

    why:     what the scenario shows.
    seed:    the seed that it was drawn from, if any.
    train_s: how long a gang trains.
    quiet_s: when transient faults stop.
    limit_s: how long after `quiet_s` every job must have ended.
    """

    why: str = ""
    seed: int | None = None
    train_s: float = 600
    quiet_s: float = 3600
    limit_s: float = 43_200
    cluster: ClusterOf = ClusterOf()
    jobs: tuple[JobOf, ...] = (JobOf(),)
    faults: tuple[Fault, ...] = ()
    expect: Expected = Expected()


def read(path: Path) -> Scenario:
    """Read the scenario of a file.

    Raises:
        ScenarioInvalid: The file is not a valid scenario. The message names the error.
    """
    try:
        return parse(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, ScenarioInvalid) as error:
        raise ScenarioInvalid(f"{path.name}: {error}") from error


def parse(table: Mapping[str, Any]) -> Scenario:
    """Build the scenario of a TOML document.

    Raises:
        ScenarioInvalid: The document is not a valid scenario.
    """
    members = dict(table)
    parts: dict[str, Any] = {
        "cluster": _build(ClusterOf, members.pop("cluster", {}), "cluster"),
        "jobs": tuple(_build(JobOf, entry, "job") for entry in members.pop("job", [{}])),
        "faults": tuple(_fault(entry) for entry in members.pop("fault", [])),
        "expect": _expected(members.pop("expect", {})),
    }
    return _build(Scenario, {**members, **parts}, "scenario")


def _expected(table: Mapping[str, Any]) -> Expected:
    members = dict(table)
    if "mail" in members:
        members["mail"] = [_build(ExpectedMail, entry, "expect.mail") for entry in members["mail"]]
    return _build(Expected, members, "expect")


def _fault(table: Mapping[str, Any]) -> Fault:
    members = dict(table)
    kind = members.pop("kind", None)
    if kind not in KINDS:
        raise ScenarioInvalid(f"a fault's kind must be one of {', '.join(sorted(KINDS))}, not {kind!r}")
    try:
        fault: Fault = _build(KINDS[kind], members, f"fault {kind}")
    except ScenarioInvalid:
        raise
    except ValueError as error:
        raise ScenarioInvalid(f"fault {kind}: {error}") from error
    return fault


def _build(kind: type[Built], table: Mapping[str, Any], what: str) -> Built:
    known: dict[str, Any] = {member.name: member for member in fields(kind)}  # type: ignore[arg-type]
    for name in table:
        if name not in known:
            raise ScenarioInvalid(f"{what} has no {name!r}; it may have {', '.join(known)}")
    for name, member in known.items():
        if name not in table and member.default is MISSING and member.default_factory is MISSING:
            raise ScenarioInvalid(f"{what} needs {name!r}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in table.items()})


def written(scenario: Scenario) -> str:
    """Return the TOML document of a scenario. Reading the document gives an equal scenario."""
    table = _differing(scenario)
    if "cluster" in table:
        table["cluster"] = _differing(scenario.cluster)
    if "expect" in table:
        table["expect"] = _differing(scenario.expect)
        if scenario.expect.mail is not None:
            table["expect"]["mail"] = [_differing(mail) for mail in scenario.expect.mail]
    table.pop("jobs", None)
    table["job"] = [_differing(job) for job in scenario.jobs]
    if table.pop("faults", None):
        table["fault"] = [{"kind": fault.kind, **_differing(fault)} for fault in scenario.faults]
    return tomli_w.dumps(table)


def _differing(part: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults."""
    defaults = {
        member.name: member.default if member.default_factory is MISSING else member.default_factory()
        for member in fields(part)
    }
    values = {member.name: getattr(part, member.name) for member in fields(part)}
    return {name: value for name, value in values.items() if value != defaults[name]}
