"""Replay of incidents of a fleet with node agents: the control repeats what depends on what an agent sees, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.job import hang_stops

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.failure_trace import Failure, FailureTrace
from simulator.replay.player import Played
from simulator.replay.report import report
from simulator.replay.what_if import what_if
from tests.simulator.replay.recorded_runs import ASSUMPTIONS, direct, policy, records_of, trace_of

pytestmark = pytest.mark.slow
HOUR_S = 3_600.0
HANG = {"cause": "switch_or_cable", "cure": Cure.RESTART, "shows": Shows.HANG, "depth": 1.0}
"""A failure that stops the training and leaves no fault."""
GPU = {"cause": "faulty_gpu", "cure": Cure.REBOOT}
"""A fault that a reboot cures."""


def failure(number: int, at_h: float, **given: Any) -> Failure:
    """A failure of the first instance of the gang, that no log names."""
    whole = {
        "place": 0,
        "of_lemon": False,
        "verdict": Cure.REBOOT,
        "relapse_s": 900.0,
        "human_s": HOUR_S,
        "accused": (),
        "named_draw": 1.0,
    }
    return Failure(number=number, at_s=at_h * HOUR_S, **whole | given)


def recorded(*failures: Failure, spares: int = 1) -> Played:
    """A run of eight hours with these failures, with node agents and progress reports, restarted in place."""
    drawn = trace_of(1)
    trace = FailureTrace(replace(drawn.profile, days=8 / 24), drawn.conditions, failures, drawn.seed)
    return direct(trace, policy(restart_in_place=True), agents=True, spares=spares)


def replayed_as_recorded(played: Played, spares: int = 1) -> tuple[Failure, ...]:
    """Return the failures that the replay found, after the control has decided every interruption as recorded."""
    found = what_if(records_of(played.texts, played.course.ends_at), lambda same: same, ASSUMPTIONS, spares=spares)
    told, number = report(found, ASSUMPTIONS), len(played.course.interruptions)
    assert told["not_reproduced"] == [], told["not_reproduced"]
    assert told["interruptions"] == {"recorded": number, "replayed": number, "reproduced": number}
    return found.replayed[0].facts.trace.failures


def decided_events(played: Played, name: str) -> list[dict[str, Any]]:
    """The replay facts of the decisions about events of this name."""
    events = [event for each in played.course.interruptions for event in each.events]
    return [dict(event.replay or {}) for event in events if (event.replay or {}).get("event") == name]


def test_earlier_failures_on_an_instance_are_no_report_of_its_agent() -> None:
    """The instance is checked because jobs have failed there, and its agent does not see the fault in the replay."""
    unseen = (ASSUMPTIONS.conditions.seen_1 + ASSUMPTIONS.conditions.seen_2) / 2
    before = failure(0, 1, **GPU, shows=Shows.EXIT, depth=0.1)
    again = failure(1, 3, **GPU, shows=Shows.EXIT, depth=unseen, place=1)  # its repair gave the instance another rank
    played = recorded(before, again, spares=0)
    evidence = decided_events(played, "PassiveEvidenceCollected")
    assert any(facts["faulty"] == facts.get("doubtful") != [] for facts in evidence)
    assert replayed_as_recorded(played, spares=0)[-1].depth == pytest.approx(unseen)


@pytest.fixture
def _unconfirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stop for a hang lengthens the limit of the next, as if the agents had confirmed none."""
    monkeypatch.setattr(hang_stops, "CONFIRMED_MAX", 0)


@pytest.mark.usefixtures("_unconfirmed")
def test_a_fault_that_an_agent_reports_while_the_ranks_wait_is_replayed_as_a_hang() -> None:
    """The check of the report stops the gang, before any rank ends. It began longer before than other signs."""
    played = recorded(failure(0, 1, **HANG), failure(1, 3, **GPU, shows=Shows.HANG, depth=0.1))
    last = played.course.interruptions[-1]
    assert (last.events[0].replay or {})["event"] == "InstanceNeedsRepair"
    found = replayed_as_recorded(played)[-1]
    assert found.shows is Shows.HANG and found.at_s == pytest.approx(3 * HOUR_S, abs=10.0)


@pytest.mark.usefixtures("_unconfirmed")
def test_a_gang_that_times_out_together_is_replayed_as_a_hang() -> None:
    """After some stops for hangs, the limit of progress is longer than the timeout of the collectives."""
    played = recorded(
        *(
            failure(
                number,
                1 + 2 * number,
                **HANG,
            )
            for number in range(3)
        )
    )
    assert any(facts.get("together") for facts in decided_events(played, "PassiveEvidenceCollected"))
    assert replayed_as_recorded(played)[-1].shows is Shows.HANG
