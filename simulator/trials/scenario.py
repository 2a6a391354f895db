"""A scenario: a cluster, the jobs it is given, what goes wrong, and what must be so in the end.

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

`kind` is one of `KINDS`; what else a fault, a job or the cluster may hold are the fields of its class, with the same
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
Made = TypeVar("Made")


class ScenarioInvalid(ValueError):
    """A scenario that says something that cannot be."""


@dataclass(frozen=True, kw_only=True)
class ClusterOf:
    """The machines, and how the product is set.

    group: they belong to an Auto Scaling group. agents: a node agent reports from each.
    diagnose: what ended an attempt is looked into. lemons: machines that failed often are taken last.
    limits: quotas, as `core.queue.quota.parse_limits` reads them.
    """

    instances: int = 2
    gpus: int = 8
    group: bool = False
    agents: bool = False
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
        """The thresholds of the product."""
        return policy_from(self.policy)


@dataclass(frozen=True, kw_only=True)
class JobOf:
    """A gang. It is submitted, or started `by_hand` on the first machines, at `at_s`, and trains for `train_s`.

    max_runtime_s: how long it may run, as its spec has it; left out: for ever.
    train_s:       how long it trains, where that is not as long as all do.
    under_notice:  what rank 0 does when it is told to leave: `NoticeBehaviour`.
    writes:        what its ranks write when they fail: "truth", always the same `LogStory`, or "" without a log.
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
        """What its submission says beyond its size."""
        names = ("max_runtime_s", "user", "priority", "suspend_grace_s")
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(JobOf, name)}


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What must be so in the end; what is left out may be anything.

    jobs: the statuses, in the order of submission. attempts: how many each has had. reboots: machines that really
    booted again, all together. quarantined: machines left to a person. mails: at most so many messages. placed: which
    job was given a place, each time that one was, by the order of submission.
    """

    jobs: tuple[str, ...] | None = None
    attempts: tuple[int, ...] | None = None
    placed: tuple[int, ...] | None = None
    reboots: int | None = None
    quarantined: int | None = None
    mails: int | None = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """See the module. `quiet_s`: when faults in passing stop. `limit_s`: when, after that, every job must be over."""

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
    """The scenario of a file. ScenarioInvalid names what is wrong in it."""
    try:
        return parse(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, ScenarioInvalid) as error:
        raise ScenarioInvalid(f"{path.name}: {error}") from error


def parse(table: Mapping[str, Any]) -> Scenario:
    """The scenario that a TOML document holds."""
    given = dict(table)
    parts: dict[str, Any] = {
        "cluster": _made(ClusterOf, given.pop("cluster", {}), "cluster"),
        "jobs": tuple(_made(JobOf, one, "job") for one in given.pop("job", [{}])),
        "faults": tuple(_fault(one) for one in given.pop("fault", [])),
        "expect": _made(Expected, given.pop("expect", {}), "expect"),
    }
    return _made(Scenario, {**given, **parts}, "scenario")


def _fault(table: Mapping[str, Any]) -> Fault:
    rest = dict(table)
    kind = rest.pop("kind", None)
    if kind not in KINDS:
        raise ScenarioInvalid(f"a fault's kind must be one of {', '.join(sorted(KINDS))}, not {kind!r}")
    try:
        made: Fault = _made(KINDS[kind], rest, f"fault {kind}")
    except ScenarioInvalid:
        raise
    except ValueError as wrong:
        raise ScenarioInvalid(f"fault {kind}: {wrong}") from wrong
    return made


def _made(kind: type[Made], table: Mapping[str, Any], what: str) -> Made:
    known: dict[str, Any] = {one.name: one for one in fields(kind)}  # type: ignore[arg-type]
    for name in table:
        if name not in known:
            raise ScenarioInvalid(f"{what} has no {name!r}; it may have {', '.join(known)}")
    for name, one in known.items():
        if name not in table and one.default is MISSING and one.default_factory is MISSING:
            raise ScenarioInvalid(f"{what} needs {name!r}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in table.items()})


def written(scenario: Scenario) -> str:
    """The TOML document of a scenario; reading it gives the same scenario."""
    table = _differing(scenario)
    if "cluster" in table:
        table["cluster"] = _differing(scenario.cluster)
    if "expect" in table:
        table["expect"] = _differing(scenario.expect)
    table.pop("jobs", None)
    table["job"] = [_differing(job) for job in scenario.jobs]
    if table.pop("faults", None):
        table["fault"] = [{"kind": fault.kind, **_differing(fault)} for fault in scenario.faults]
    return tomli_w.dumps(table)


def _differing(thing: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not what they are by default."""
    by_default = {
        one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(thing)
    }
    values = {one.name: getattr(thing, one.name) for one in fields(thing)}
    return {name: value for name, value in values.items() if value != by_default[name]}
