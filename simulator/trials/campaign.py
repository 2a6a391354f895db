"""Many seeds: what they broke, what they took in, and the first failure cut down to the faults that matter."""

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
"""Seeds that one worker takes at a time."""
Row = tuple[str, str, str]
"""Kind of record, status, event."""


@dataclass
class CampaignResult:
    """What some runs came to."""

    seeds: int = 0
    violations: list[tuple[int, str]] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rows: Counter[Row] = field(default_factory=Counter)
    steps: int = 0
    events: int = 0

    def add(self, seed: int, played: Played) -> None:
        """Enter one run."""
        self.seeds += 1
        self.violations += [(seed, sentence) for sentence in played.violations]
        self.ended.update(str(one.status) for one in played.jobs)
        self.faults.update(fault.kind for fault in (*played.took, *played.struck))
        self.steps += len(played.world.invocations.done)
        self.events += played.world.timeline.happened
        for (kind, status, event, outcome), count in played.world.transcript.rows.items():
            if outcome == EventOutcome.APPLIED:
                self.rows[kind, status, event] += count

    def merge(self, other: CampaignResult) -> None:
        """Enter what another worker has counted."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.events += other.events
        self.violations += other.violations
        for mine, theirs in ((self.ended, other.ended), (self.faults, other.faults), (self.rows, other.rows)):
            mine.update(theirs)  # type: ignore[arg-type]


def play_seed(seed: int) -> tuple[Scenario, Played]:
    """The run that one integer stands for."""
    scenario = scenario_of(seed)
    return scenario, run_and_compare(scenario, in_passing(seed))


def run_and_compare(scenario: Scenario, source: Source | None = None) -> Played:
    """The run, held against the same run without faults in passing where nothing else goes wrong."""
    played = play(scenario, source)
    timed = tuple(one for one in scenario.faults if isinstance(one, TimedFault))
    if not timed and played.struck and not played.violations:
        played.violations += differences(play(replace(scenario, faults=())), played)
    return played


def differences(undisturbed: Played, played: Played) -> Iterator[str]:
    """I8: whatever goes wrong on the way, the end is the same, if nothing was wrong with machines and jobs."""
    for one, other in zip(undisturbed.jobs, played.jobs, strict=True):
        for name in ("status", "attempts_counted"):
            if getattr(one, name) != getattr(other, name):
                yield f"I8: {other.job_id} has {name} {getattr(other, name)}; undisturbed, {getattr(one, name)}"
    for machine in played.world.model_instances():
        record = played.world.instance(machine)
        if record.status is not InstanceStatus.AVAILABLE or played.world.fleet.boots[machine.instance_id]:
            yield f"I8: nothing was wrong with {record.instance_id}, and it is {record.status}: {record.reason}"


def tally(seeds: Sequence[int]) -> CampaignResult:
    """Run these seeds, one after another."""
    found = CampaignResult()
    for seed in seeds:
        found.add(seed, play_seed(seed)[1])
    return found


def campaign(seeds: range, workers: int) -> CampaignResult:
    """Run all the seeds, `workers` of them at a time; the same seeds give the same tally whatever their number."""
    pieces = [seeds[start : start + AT_ONCE] for start in range(0, len(seeds), AT_ONCE)]
    found = CampaignResult()
    if workers == 1 or len(pieces) == 1:
        for piece in pieces:
            found.merge(tally(piece))
        return found
    with ProcessPoolExecutor(workers) as pool:
        for one in pool.map(tally, pieces):
            found.merge(one)
    return found


def every_row() -> Iterator[Row]:
    """Each (status, event) for which one of the two machines has a transition."""
    for kind, table in (("Job", job_state_machine.TRANSITIONS), ("Instance", state_machine.TRANSITIONS)):
        for status, event in table:
            yield kind, str(status), event.__name__


def coverage(rows: Iterable[Row]) -> dict[str, Any]:
    """How many transitions of the tables `rows` took, and which they did not."""
    taken, known = set(rows), set(every_row())
    missing = sorted(known - taken)
    return {
        "rows": len(known),
        "taken": len(known) - len(missing),
        "percent": round(100 * (len(known) - len(missing)) / len(known), 1),
        "missing": [" ".join(row) for row in missing],
    }


def first_failure(seed: int) -> dict[str, Any]:
    """The failing run of `seed` with as few faults as break the same thing: a scenario to keep, and its transcript."""
    scenario, played = play_seed(seed)
    kinds = {_kind(sentence) for sentence in played.violations}
    whole = played.as_scenario(scenario)
    small = shrunk(whole, lambda one: bool(kinds & {_kind(sentence) for sentence in run_and_compare(one).violations}))
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
    """What a violation is about: `I4` of an invariant, else its first words."""
    head, colon, _ = sentence.partition(":")
    return head if colon else " ".join(sentence.split()[1:4])


def report(found: CampaignResult, seeds: range) -> dict[str, Any]:
    """What `python -m simulator run --json` prints."""
    failing = sorted({seed for seed, _ in found.violations})
    return {
        "seeds": found.seeds,
        "from": seeds.start,
        "to": seeds.stop,
        "effects": found.steps,
        "violations": [{"seed": seed, "sentence": sentence} for seed, sentence in sorted(found.violations)],
        "ended": dict(sorted(found.ended.items())),
        "faults": dict(sorted(found.faults.items())),
        "coverage": coverage(found.rows),
        "first_failure": first_failure(failing[0]) if failing else None,
    }
