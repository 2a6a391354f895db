"""The explorer can fail: each of these bugs, planted in the product, is found, and told in few actions."""

from __future__ import annotations

import pytest

from simulator.explore import report
from simulator.explore.model import Bounds, DeliveryPace, ExploredFault
from simulator.explore.search import Search
from simulator.explore.small_world import Incident
from tests.simulator import planted_bugs

pytestmark = pytest.mark.slow

ACTIONS_MAX = 40


def found(bounds: Bounds) -> tuple[str, str]:
    """What the explorer found: the sentences, and the transcript of the few actions that lead to it."""
    walk = Search(bounds).run()
    assert walk.violation is not None, f"{walk.states} states, and nothing was found"
    actions = report.actions(walk.stage, walk.violation)
    assert len(actions) <= ACTIONS_MAX
    transcript = report.transcript(walk.stage, walk.violation)
    assert all(action in transcript for action in actions)
    return " ".join(walk.violation.told), transcript


@pytest.mark.full
def test_no_attempt_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch of attempt 1, left by a dead invocation and taken over late, is refused: that stops attempt 2."""
    planted_bugs.no_fence(monkeypatch)
    told, transcript = found(Bounds(Incident.GPU, 2, frozenset({ExploredFault.CRASH}), DeliveryPace.ALL))
    assert told.startswith("I11") and "at attempt 2, was moved by" in told and "attempt 1" in told
    assert transcript.count("it dies before") == 2


def test_acting_before_saving_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dying in between leaves ranks that no record knows."""
    planted_bugs.act_before_save(monkeypatch)
    told, transcript = found(Bounds(Incident.GPU, 1, frozenset({ExploredFault.CRASH}), DeliveryPace.ALL))
    assert "still claimed" in told
    assert transcript.count("it dies before") == 1


def test_a_reconnect_that_counts_as_a_reboot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked for the reboot died before; the GPU is back by itself and the check passes: on the old boot."""
    planted_bugs.reconnect_is_reboot(monkeypatch)
    told, transcript = found(Bounds(Incident.FLAKY, 1, frozenset({ExploredFault.CRASH}), DeliveryPace.ALL))
    assert told.startswith("I6") and "on the boot it had before" in told
    assert "the GPU comes back by itself" in transcript and "RebootUncertain" in transcript


def test_no_revision_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has read an older record writes over what came in between."""
    planted_bugs.no_version_check(monkeypatch)
    told, transcript = found(Bounds(Incident.GPU, 1, frozenset({ExploredFault.OVERLAP}), DeliveryPace.MACHINES))
    assert told.startswith("I11") and "was written by one who had read at revision" in told
    assert "; before its effect" in transcript and ": the scheduler passes" in transcript


def test_releasing_gpus_on_suspicion_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that does not end in time is taken for ended: its GPUs are given away while it runs."""
    planted_bugs.free_on_suspicion(monkeypatch)
    told, transcript = found(Bounds(Incident.GPU, 1, frozenset({ExploredFault.SLOW}), DeliveryPace.ALL))
    assert told.startswith("I1:") and "without a claim" in told
    assert "JobDeadlineReached  STOPPING -> DIAGNOSING" in transcript
