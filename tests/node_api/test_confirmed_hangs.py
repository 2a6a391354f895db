"""A gang that reports progress hangs: the activity of its ranks shortens the progress timeout.

The ranks report steps of 20 s: the timeout is 160 s, and 80 s if the node agents see every rank wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.execution.evidence import collect_evidence

from tests.aws.records import JOB, launched
from tests.node_api.test_quiet_gang import RANKS, SAVES, SLEEPS, SPINS, STEP_S, Gang, gang, trained

__all__ = ["gang"]
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
STEPS = {"steps": 60, "step_s": 20.0, "slowest_s": 25.0}


def stalled(made: Gang, **steps: float) -> Gang:
    """The gang after its training. From now on the progress reports of every rank have the same value."""
    three = trained(made)
    since = three.step

    def reports(rank: int, step: int) -> list[dict[str, Any]]:
        about = {
            "id": f"0a1b2c3{rank}-{step}",
            "type": "progress",
            "job": JOB,
            "attempt": 1,
            "rank": rank,
            "age_s": 0.1,
        }
        return [{**about, "value": 60, "unchanged_s": float((step - since) * STEP_S), **STEPS, **steps}]

    three.observations = reports
    return three


def test_a_hang_that_every_agent_sees_is_stopped_after_half_of_the_steps(gang: Callable[..., Gang]) -> None:
    """The progress reports say that nothing moves, one rank sleeps, and the others wait for it at low power."""
    three = stalled(gang())
    before = three.does(SPINS, SLEEPS, SPINS, seconds=75)
    assert before.status is JobStatus.RUNNING
    after = three.does(SPINS, SLEEPS, SPINS, seconds=15)
    assert after.status is JobStatus.STOPPING
    assert "4 steps of 20.0 s, because the node agents see every rank wait" in after.stop_reason
    assert (after.hang_stops, after.hangs_confirmed) == (1, 1)
    # The diagnosis takes the standstill as strong evidence, although it was shorter than the whole timeout.
    store, there, policy = three.functions.store, launched(world=RANKS), RecoveryPolicy()
    evidence = collect_evidence(store, lambda *_: (), policy, after, there, three.functions.now)
    assert evidence.stalled_s == 80.0
    assert collect_evidence(store, lambda *_: (), policy, before, there, three.functions.now).stalled_s == 160.0


def test_a_rank_that_may_save_leaves_the_gang_the_whole_timeout(gang: Callable[..., Gang]) -> None:
    """Rank 1 writes to its disk. The others wait for it, as in a hang."""
    three = stalled(gang())
    assert three.does(SPINS, SAVES, SPINS, seconds=150).status is JobStatus.RUNNING
    after = three.does(SPINS, SAVES, SPINS, seconds=45)
    assert after.status is JobStatus.STOPPING and "8 steps of 20.0 s" in after.stop_reason
    assert "node agents" not in after.stop_reason and (after.hang_stops, after.hangs_confirmed) == (1, 0)


def test_an_early_question_does_not_delay_the_stop_at_the_whole_timeout(gang: Callable[..., Gang]) -> None:
    """Steps of 8 s make a timeout of 64 s. At 60 s rank 0 confirms the hang and rank 1 does not. At 75 s it is over."""
    three = stalled(gang(), step_s=8.0, slowest_s=9.0)
    assert three.does(SPINS, SAVES, SPINS, seconds=60).status is JobStatus.RUNNING
    asked = [line for line in three.functions.logged("job_decided") if line["event_type"] == "StallReported"]
    assert [line["outcome"] for line in asked][-1:] == ["APPLIED"]
    three.early_s = 0.1  # no two reports of an agent are exactly 15 s apart
    after = three.does(SPINS, SAVES, SPINS, seconds=15)
    assert after.status is JobStatus.STOPPING and "8 steps of 8.0 s" in after.stop_reason


def test_the_last_attempt_has_the_whole_timeout_and_is_not_asked_about_before(gang: Callable[..., Gang]) -> None:
    """A stop ends the job. If the hang is a long wait for a remote service, the program may get over the wait."""
    three = stalled(gang(attempts_max=1))
    assert three.does(SPINS, SLEEPS, SPINS, seconds=150).status is JobStatus.RUNNING
    asked = [line for line in three.functions.logged("job_decided") if line["event_type"] == "StallReported"]
    assert {line["outcome"] for line in asked} == {"IGNORED"}
    after = three.does(SPINS, SLEEPS, SPINS, seconds=30)
    assert after.status is not JobStatus.RUNNING and "8 steps of 20.0 s" in after.stop_reason
