"""Expectation of a job: incidents of its run, how long each takes, whether its contract is met, and what would meet it.

A job has a list of possible recoveries with weights: those that this fleet has measured, and those of the published
times. Its quantiles are those of the list, so no distribution is assumed. The work that is done again is taken to be
even between two checkpoints. The model costs milliseconds. `docs/recovery-contract.md` compares it with the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, combinations

from gpu_recovery.core.event_history.incidents import Incident, IncidentOutcome
from gpu_recovery.core.job.downtime import DownPhase
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.recovery_expectation.failure_rate import FailureRate
from gpu_recovery.core.recovery_expectation.published_times import (
    PROGRESS_S,
    REPORTS_S,
    RESPAWN_S,
    STEP_S,
    Recovery,
    Setup,
    published_recoveries,
)

PUBLISHED_WEIGHT = 10.0
"""Recoveries of the fleet that the published times count as."""
MEASURED_MAX = 100
"""Recoveries of the fleet that are used at most, the latest ones."""
STRATA = 20
"""Parts of the time between two checkpoints, each with its middle as the work that is done again."""
MET_AT = 0.95
"""Share of the incidents within the limit from which a contract counts as met."""
CHECKPOINTS_S = (3_600, 1_800, 900, 600, 300, 120, 60)
"""Seconds between two checkpoints that are tried, the most first."""
TINY = 1e-9
"""Difference of times and shares that comes from rounding alone."""
ALTERNATIVES_MAX = 3
"""Alternatives that are shown at most."""
DEFAULT_DAYS = 30.0
"""Days for which the incidents of a job without a time limit are counted."""


@frozen_dataclass()
class Contract:
    """The limits of a recovery contract in seconds; None: no limit."""

    down_s: float | None
    lost_s: float | None


@frozen_dataclass()
class Lengths:
    """Quantiles of the downtime and of the lost time of an incident in seconds, and the shares within the limits."""

    down_p50_s: float
    down_p95_s: float
    lost_p50_s: float
    lost_p95_s: float
    down_kept: float
    lost_kept: float

    @property
    def is_met(self) -> bool:
        """Whether both limits are met in 95 % of the incidents."""
        return min(self.down_kept, self.lost_kept) >= MET_AT


@frozen_dataclass()
class Alternative:
    """Changes of a job or its surroundings, and the lengths with them. `changes` are names of `CHANGES`, and
    `checkpoint_every_s` is the time between two checkpoints among them, or None.
    """

    changes: tuple[str, ...]
    checkpoint_every_s: int | None
    lengths: Lengths


@frozen_dataclass()
class Expectation:
    """What a job may expect.

    incidents:    mean number of incidents in `days`, and its range with 90 %.
    kept:         share of the incidents within both limits, at least.
    alternatives: what would meet the contract, the least change first; () if it is met or nothing known meets it.
    best:         the lengths with all changes together, if nothing known meets the contract.
    measured:     recoveries of this fleet that were used.
    """

    days: float
    incidents: float
    incidents_range: tuple[float, float]
    lengths: Lengths
    alternatives: tuple[Alternative, ...]
    best: Lengths | None
    measured: int


def recovery_of(phases: Mapping[str, int]) -> Recovery:
    """Return a measured recovery with the weight 1, from the seconds of its phases."""
    return Recovery(
        1.0,
        notice=float(phases.get(DownPhase.NOTICE, 0)),
        stop=float(phases.get(DownPhase.STOP, 0)),
        check=float(phases.get(DownPhase.CHECK, 0)),
        wait=float(phases.get(DownPhase.REPAIR, 0) + phases.get(DownPhase.WAIT, 0)),
        start=float(phases.get(DownPhase.START, 0)),
        first_step=float(phases.get(DownPhase.FIRST_STEP, 0)),
    )


def measured_recoveries(incidents: Iterable[Incident]) -> list[Recovery]:
    """Return the recoveries that a fleet has measured: those of the incidents after which the training went on."""
    return [
        recovery_of(dict(incident.bill.phases))
        for incident in incidents
        if incident.bill is not None and incident.outcome is IncidentOutcome.RECOVERED
    ]


def expectation(
    setup: Setup, contract: Contract, rate: FailureRate, measured: Sequence[Recovery] = (), days: float = DEFAULT_DAYS
) -> Expectation:
    """Return what a job may expect of its failures.

    Args:
        setup: the job and its surroundings.
        contract: its limits.
        rate: failure rate of the fleet.
        measured: recoveries that this fleet has measured, each with the weight 1.
        days: days of the run.
    """
    measured = measured[:MEASURED_MAX]
    lengths = lengths_of(setup, contract, measured)
    low, high = rate.range_per_gpu_day
    exposure = setup.gpus * days
    found: tuple[Alternative, ...] = ()
    best = None
    if not lengths.is_met:
        found = tuple(_meeting(setup, contract, measured))[:ALTERNATIVES_MAX]
        if not found:
            all_changes = tuple(name for name in CHANGES if CHANGES[name].applies(setup))
            best = _changed(setup, contract, measured, all_changes, CHECKPOINTS_S[-1])
    return Expectation(
        days, rate.per_gpu_day * exposure, (low * exposure, high * exposure), lengths, found, best, len(measured)
    )


def lengths_of(
    setup: Setup, contract: Contract, measured: Sequence[Recovery] = (), changes: Sequence[str] = ()
) -> Lengths:
    """Return the lengths of an incident. `changes` are applied to the measured recoveries; `setup` has them already."""
    known = [_changed_recovery(recovery, changes) for recovery in measured]
    total = len(known) + PUBLISHED_WEIGHT
    possible = [
        *(replace(each, weight=each.weight / total) for each in known),
        *(replace(each, weight=each.weight * PUBLISHED_WEIGHT / total) for each in published_recoveries(setup)),
    ]
    down = _Distribution([(each.down_s, each.weight) for each in possible])
    again = [setup.persist_s + setup.checkpoint_s * (part + 0.5) / STRATA for part in range(STRATA)]
    lost = _Distribution([(each.down_s + more, each.weight / STRATA) for each in possible for more in again])
    return Lengths(
        down.quantile(0.5),
        down.quantile(0.95),
        lost.quantile(0.5),
        lost.quantile(0.95),
        1.0 if contract.down_s is None else down.within(contract.down_s),
        1.0 if contract.lost_s is None else lost.within(contract.lost_s),
    )


class _Distribution:
    """Values with weights that add up to 1, in ascending order with the sum of the weights up to each value."""

    def __init__(self, pairs: list[tuple[float, float]]) -> None:
        pairs.sort()
        self._values = [value for value, _ in pairs]
        self._sums = list(accumulate(weight for _, weight in pairs))

    def quantile(self, share: float) -> float:
        """Return the smallest value that at least the share of the values does not exceed."""
        reached = (value for value, total in zip(self._values, self._sums, strict=True) if total >= share - TINY)
        return next(reached, self._values[-1])

    def within(self, limit: float) -> float:
        """Return the share of the values that do not exceed a limit."""
        number = sum(value <= limit + TINY for value in self._values)
        return min(1.0, self._sums[number - 1]) if number else 0.0


# -- what would meet a contract ----------------------------------------------------------------------------------------


@frozen_dataclass()
class Change:
    """A change that shortens recoveries: whether it can be made, the setup with it, and a measured recovery with it."""

    applies: Callable[[Setup], bool]
    to_setup: Callable[[Setup], Setup]
    to_recovery: Callable[[Recovery], Recovery]


def _unchanged(recovery: Recovery) -> Recovery:
    return recovery


CHANGES: Mapping[str, Change] = {
    "spare": Change(
        lambda setup: not setup.spares,
        lambda setup: replace(setup, spares=1),
        lambda recovery: replace(recovery, wait=0.0),
    ),
    "progress_reports": Change(
        lambda setup: not setup.reports_progress,
        lambda setup: replace(setup, reports_progress=True),
        lambda recovery: replace(recovery, notice=min(recovery.notice, PROGRESS_S + REPORTS_S)),
    ),
    "restart_in_place": Change(
        lambda setup: not setup.in_place,
        lambda setup: replace(setup, in_place=True),
        lambda recovery: replace(recovery, start=min(recovery.start, RESPAWN_S), check=min(recovery.check, RESPAWN_S)),
    ),
    "warm_spare": Change(
        lambda setup: not setup.warm_spares,
        lambda setup: replace(setup, in_place=True, warm_spares=1, spares=max(1, setup.spares)),
        lambda recovery: replace(recovery, wait=0.0, start=min(recovery.start, RESPAWN_S)),
    ),
    "memory_checkpoints": Change(
        lambda setup: setup.checkpoint_s > STEP_S,
        lambda setup: replace(setup, checkpoint_s=STEP_S, persist_s=0.0),
        _unchanged,
    ),
}
"""Changes by name, the least first."""
_EXCLUSIVE = ({"spare", "warm_spare"}, {"restart_in_place", "warm_spare"})
"""Changes of which one includes the other."""


def _meeting(setup: Setup, contract: Contract, measured: Sequence[Recovery]) -> Iterator[Alternative]:
    """Yield the alternatives that meet a contract, fewer changes first; none that includes an earlier alternative."""
    names = [name for name, change in CHANGES.items() if change.applies(setup)]
    found: list[set[str]] = []
    for number in range(len(names) + 1):
        for changes in combinations(names, number):
            if any(pair <= {*changes} for pair in _EXCLUSIVE) or any(earlier <= {*changes} for earlier in found):
                continue
            every_s = None
            lengths = _changed(setup, contract, measured, changes)
            if not lengths.is_met and lengths.down_kept >= MET_AT and "memory_checkpoints" not in changes:
                tried = (each for each in CHECKPOINTS_S if each < setup.checkpoint_s)
                with_every = ((each, _changed(setup, contract, measured, changes, each)) for each in tried)
                every_s, lengths = next(((each, new) for each, new in with_every if new.is_met), (None, lengths))
            if lengths.is_met:
                found.append({*changes})
                yield Alternative(changes, every_s, lengths)


def _changed(
    setup: Setup,
    contract: Contract,
    measured: Sequence[Recovery],
    changes: Sequence[str],
    checkpoint_s: float | None = None,
) -> Lengths:
    for name in changes:
        setup = CHANGES[name].to_setup(setup)
    if checkpoint_s is not None and checkpoint_s < setup.checkpoint_s:
        setup = replace(setup, checkpoint_s=float(checkpoint_s))
    return lengths_of(setup, contract, measured, changes)


def _changed_recovery(recovery: Recovery, changes: Sequence[str]) -> Recovery:
    for name in changes:
        recovery = CHANGES[name].to_recovery(recovery)
    return recovery
