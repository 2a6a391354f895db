"""I8 can fail: a run that ends otherwise than the undisturbed one is told from it, in each way that it may differ."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.core.task import Ending, EndingKind, RankFailure, TaskFact
from gpu_recovery.execution import observe

from simulator.trials.campaign import differences, run_and_compare
from simulator.trials.scenario import parse
from simulator.trials.trial import play

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ({"kind": "cancel"}, "has status CANCELED; undisturbed, SUCCEEDED"),
        ({"kind": "exit", "code": 139}, "has attempts_counted 1; undisturbed, 0"),
        ({"kind": "quarantine"}, "and it is QUARANTINED"),
        ({"kind": "gpu"}, "and it is AVAILABLE: its repair is proved"),
    ],
)
def test_an_end_that_differs_is_told(fault: dict[str, Any], sentence: str) -> None:
    """The job's end, its attempts, a machine that is out of service, and one that has been rebooted."""
    disturbed = play(parse({"fault": [{**fault, "at_s": 120}]}))
    found = list(differences(play(parse({})), disturbed))
    assert any(one.startswith("I8: ") and sentence in one for one in found), found


def test_the_same_end_is_not_told() -> None:
    """Faults at their times that change nothing of it are no difference."""
    assert list(differences(play(parse({})), play(parse({"fault": [{"kind": "clock", "at_s": 120}]})))) == []


EVENT_LOST = {"fault": [{"kind": "drop", "event": "task STOPPED", "nth": 1}]}


def test_a_product_to_which_a_lost_event_makes_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a rank whose end only a look has found is taken for one that has failed. No other invariant is hurt."""
    assert run_and_compare(parse(EVENT_LOST)).violations == []

    def failed_unseen(fact: TaskFact, rank: int, instance_id: str) -> RankFailure:
        return RankFailure(rank, instance_id, fact.at, Ending(EndingKind.CRASHED, None, "nobody saw it end"))

    monkeypatch.setattr(observe, "failure_of", failed_unseen)
    assert play(parse(EVENT_LOST)).violations == []
    found = run_and_compare(parse(EVENT_LOST)).violations
    assert found and all(one.startswith("I8: ") for one in found)
