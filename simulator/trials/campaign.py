"""A campaign runs many seeds, reports their violations and coverage, and reduces the first failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from gpu_recovery.core.instance import state_machine
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job import state_machine as job_state_machine
from gpu_recovery.core.state_machine import EventOutcome

from simulator.faults.injector import Source
from simulator.faults.schedule import TimedFault
from simulator.trials.generator import in_passing, scenario_of
from simulator.trials.scenario import Scenario, written
from simulator.trials.shrink import shrunk
from simulator.trials.trial import Played, play

AT_ONCE = 50
"""Number of seeds that one worker runs at a time."""
Row = tuple[str, str, str]
"""A transition of a state machine: kind of record, status, event."""


@dataclass
class CampaignResult:
    """The totals of several runs.

    violations: (seed, sentence) of each violation.
    ended:      the number of jobs by final status.
    faults:     the number of faults by kind.
    rows:       the number of applied transitions.
    steps:      the number of effects of functions.
    events:     the number of steps of the virtual clock.
    """

    seeds: int = 0
    violations: list[tuple[int, str]] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rows: Counter[Row] = field(default_factory=Counter)
    steps: int = 0
    events: int = 0

    def add(self, seed: int, played: Played) -> None:
        """Add one run."""
        self.seeds += 1
        self.violations += [(seed, sentence) for sentence in played.violations]
        self.ended.update(str(job.status) for job in played.jobs)
        self.faults.update(fault.kind for fault in (*played.took, *played.struck))
        self.steps += len(played.world.invocations.done)
        self.events += played.world.timeline.happened
        for (kind, status, event, outcome), count in played.world.transcript.rows.items():
            if outcome == EventOutcome.APPLIED:
                self.rows[kind, status, event] += count

    def merge(self, other: CampaignResult) -> None:
        """Add the totals of another worker."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.events += other.events
        self.violations += other.violations
        for mine, theirs in ((self.ended, other.ended), (self.faults, other.faults), (self.rows, other.rows)):
            mine.update(theirs)  # type: ignore[arg-type]


def play_seed(seed: int) -> tuple[Scenario, Played]:
    """Draw the scenario of the seed and run it."""
    scenario = scenario_of(seed)
    return scenario, run_and_compare(scenario, in_passing(seed))


def run_and_compare(scenario: Scenario, source: Source | None = None) -> Played:
    """Run the scenario. If it has no timed faults, compare the end with a run without transient faults."""
    played = play(scenario, source)
    timed = tuple(fault for fault in scenario.faults if isinstance(fault, TimedFault))
    if not timed and played.struck and not played.violations:
        played.violations += differences(play(replace(scenario, faults=())), played)
    return played


def differences(undisturbed: Played, played: Played) -> Iterator[str]:
    """Yield a violation of I8 for each difference: transient faults alone must not change the end of a run."""
    for expected, job in zip(undisturbed.jobs, played.jobs, strict=True):
        for name in ("status", "attempts_counted"):
            if getattr(expected, name) != getattr(job, name):
                yield f"I8: {job.job_id} has {name} {getattr(job, name)}; undisturbed, {getattr(expected, name)}"
    for instance in played.world.model_instances():
        record = played.world.instance(instance)
        if record.status is not InstanceStatus.AVAILABLE or played.world.fleet.boots[instance.instance_id]:
            yield f"I8: nothing was wrong with {record.instance_id}, and it is {record.status}: {record.reason}"


def tally(seeds: Sequence[int]) -> CampaignResult:
    """Run these seeds, one after another."""
    result = CampaignResult()
    for seed in seeds:
        result.add(seed, play_seed(seed)[1])
    return result


def campaign(seeds: range, workers: int) -> CampaignResult:
    """Run all seeds in `workers` processes. The result does not depend on the number of processes."""
    pieces = [seeds[start : start + AT_ONCE] for start in range(0, len(seeds), AT_ONCE)]
    result = CampaignResult()
    if workers == 1 or len(pieces) == 1:
        for piece in pieces:
            result.merge(tally(piece))
        return result
    with ProcessPoolExecutor(workers) as pool:
        for part in pool.map(tally, pieces):
            result.merge(part)
    return result


def every_row() -> Iterator[Row]:
    """Yield each (kind of record, status, event) for which a state machine has a transition."""
    for kind, table in (("Job", job_state_machine.TRANSITIONS), ("Instance", state_machine.TRANSITIONS)):
        for status, event in table:
            yield kind, str(status), event.__name__


def coverage(rows: Iterable[Row]) -> dict[str, Any]:
    """Return how many transitions of the state machines `rows` contains, and which are missing."""
    taken, known = set(rows), set(every_row())
    missing = sorted(known - taken)
    return {
        "rows": len(known),
        "taken": len(known) - len(missing),
        "percent": round(100 * (len(known) - len(missing)) / len(known), 1),
        "missing": [" ".join(row) for row in missing],
    }


def first_failure(seed: int) -> dict[str, Any]:
    """Reduce the failing run of `seed` to few faults; return the scenario to keep and its transcript."""
    scenario, played = play_seed(seed)
    kinds = {_kind(sentence) for sentence in played.violations}
    whole = played.as_scenario(scenario)
    small = shrunk(
        whole, lambda candidate: bool(kinds & {_kind(sentence) for sentence in run_and_compare(candidate).violations})
    )
    again = run_and_compare(small)
    return {
        "seed": seed,
        "violations": again.violations,
        "faults": len(whole.faults),
        "faults_left": len(small.faults),
        "scenario": written(replace(small, why=again.violations[0])),
        "transcript": again.world.transcript.text(),
    }


def _kind(sentence: str) -> str:
    """Return what a violation is about: `I4` for an invariant, else its first words."""
    head, colon, _ = sentence.partition(":")
    return head if colon else " ".join(sentence.split()[1:4])


def report(result: CampaignResult, seeds: range) -> dict[str, Any]:
    """Return the document that `python -m simulator run --json` prints."""
    failing = sorted({seed for seed, _ in result.violations})
    return {
        "seeds": result.seeds,
        "from": seeds.start,
        "to": seeds.stop,
        "effects": result.steps,
        "violations": [{"seed": seed, "sentence": sentence} for seed, sentence in sorted(result.violations)],
        "ended": dict(sorted(result.ended.items())),
        "faults": dict(sorted(result.faults.items())),
        "coverage": coverage(result.rows),
        "first_failure": first_failure(failing[0]) if failing else None,
    }
