"""Published hangs of which dumps are missing: as a live job sends them, and what is decided of the rest."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery_agent.flight_recorder.dump import Dump, read_dump
from gpu_recovery_agent.flight_recorder.reports import reports
from hypothesis import example, given
from hypothesis import strategies as st

from tests.agent.flight_recorder.dumps import NAMED, TRUTH, pickled, trace
from tests.core.diagnosis.small_cases import AT_S, judged
from tests.tiers import examples

RANKS = 16


@cache
def dumps(name: str) -> dict[int, Dump]:
    """The dumps of a trace, as the wrapper reads them."""
    return {rank: read_dump(pickled(content)) for rank, content in trace(name).items()}


@cache
def told(name: str, rank: int, local: int) -> tuple[Observation, ...]:
    """What the agent of an instance with `local` processes sends of the dump of one rank."""
    made = reports(dumps(name)[rank], rank, local)
    lines = [
        {"type": "flight", "id": f"{rank}-{n}", "job": "run-1", "attempt": 1, "age_s": 0.0, **fields}
        for n, fields in enumerate(made)
    ]
    found, left_out = observed(f"i-{rank // local}", lines)
    assert left_out == 0
    return tuple(replace(one.report, instance_id=f"i-{rank // local}", at_s=AT_S) for one in found)


@example(name="gpu_error_1st", local=4, kept={*range(10), 12})
@examples(4)
@given(st.sampled_from(sorted(TRUTH)), st.sampled_from([1, 2, 4, 8]), st.sets(st.integers(0, RANKS - 1), min_size=1))
def test_whichever_dumps_are_missing_no_healthy_machine_is_named(name: str, local: int, kept: set[int]) -> None:
    """A rank without a dump is missing in its groups. So is every other rank whose dump is late."""
    plan = Topology.of(Worker(f"rank {n}", f"i-{n}", "", n) for n in range(RANKS // local))
    verdict = judged([one for rank in sorted(kept) for one in told(name, rank, local)], plan)
    sick = {f"i-{rank // local}" for rank in TRUTH[name] | set(NAMED[name])}
    assert not verdict.decided or plan.instances_of(verdict.scope) <= sick, verdict.findings[0].english
