"""A handler that raises is invoked twice more with the same event; then the event is lost, and the reconciler heals."""

from __future__ import annotations

import pytest

from simulator.delivery import Unruly
from tests.platform.cloud import Request
from tests.platform.faults import AllAtOnce, Sometimes, Throttling, lose_answer, refuse, reset
from tests.platform.incident import Heal, Incident, assert_same_end


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_invocations_that_fail_change_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """One call in twelve fails with all its tries, and with it the invocation; Lambda's retries do no harm."""
    fault = Sometimes(seed, 1 / 12, reset, for_good=True)
    incident = heal(fault)
    assert_same_end(incident, undisturbed)
    assert len(incident.world.failures) > 3


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_events_that_are_lost_with_their_invocation_change_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """As if every failed invocation had been its event's last: the dead letter is not needed for the job to heal."""
    fault = Sometimes(seed, 1 / 12, refuse("InternalServerError", 500), for_good=True)
    incident = heal(fault, loses_failed=True)
    assert_same_end(incident, undisturbed)
    assert fault.met


def is_send(request: Request) -> bool:
    """Whatever a time-out may leave done: all but messages to people, which may then come twice."""
    return request.mutates and request.operation != "Publish"


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 30))])
def test_everything_at_once_changes_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """Throttles, lost answers, resets and trouble on their side, while events are lost, doubled, late and out of
    order."""
    fault = AllAtOnce(
        [
            Throttling(seed, 0.15),
            Sometimes(seed, 0.04, lose_answer, only=is_send),
            Sometimes(seed, 0.01, lose_answer, only=is_send, for_good=True),
            Sometimes(seed, 0.01, reset, for_good=True),
            Sometimes(seed, 0.03, refuse("InternalFailure", 500)),
        ]
    )
    assert_same_end(heal(fault, delivery=Unruly(seed, late_max_s=60)), undisturbed, repeats=1)
