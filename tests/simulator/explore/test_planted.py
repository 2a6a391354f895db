"""The explorer can fail: each of these bugs, planted in the product, is found, and told in few actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.events import AllRanksStopped, JobDeadlineReached
from gpu_recovery.core.instance import repairing
from gpu_recovery.core.job import machine as job
from gpu_recovery.core.job import stopping
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.machine import Outcome, Row
from gpu_recovery.recovery import Recovery

from simulator.explore import telling
from simulator.explore.search import Search
from simulator.explore.small_world import Incident
from simulator.explore.walk import Bounds, Kind, Pace
from simulator.memory_store import MemoryStore

ACTIONS_MAX = 40


def found(bounds: Bounds) -> tuple[str, str]:
    """What the explorer found: the sentences, and the transcript of the few actions that lead to it."""
    walk = Search(bounds).run()
    assert walk.violation is not None, f"{walk.states} states, and nothing was found"
    actions = telling.actions(walk.stage, walk.violation)
    assert len(actions) <= ACTIONS_MAX
    transcript = telling.transcript(walk.stage, walk.violation)
    assert all(action in transcript for action in actions)
    return " ".join(walk.violation.told), transcript


def test_no_attempt_fence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launch of attempt 1, left by a dead invocation and taken over late, is refused: that stops attempt 2."""
    monkeypatch.setattr(job, "_fence", lambda record, event: "")
    told, transcript = found(Bounds(Incident.GPU, 2, frozenset({Kind.CRASH}), Pace.ALL))
    assert told.startswith("I11") and "at attempt 2, was moved by" in told and "attempt 1" in told
    assert transcript.count("it dies before") == 2


def test_acting_before_saving_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dying in between leaves ranks that no record knows."""

    def keep_job(self: Recovery, before: Any, event: Any, decision: Any, settling: str) -> Any:
        if decision.outcome is not Outcome.APPLIED:
            return decision
        self.act(decision.record, decision.commands)
        revision = self.store.load_job(before.job_id).revision
        return replace(decision, record=self.store.save_job(replace(decision.record, revision=revision, commands=())))

    monkeypatch.setattr(Recovery, "_keep_job", keep_job)
    told, transcript = found(Bounds(Incident.GPU, 1, frozenset({Kind.CRASH}), Pace.ALL))
    assert "still claimed" in told
    assert transcript.count("it dies before") == 1


def test_a_reconnect_that_counts_as_a_reboot_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked for the reboot died before; the GPU is back by itself and the check passes: on the old boot."""
    monkeypatch.setattr(repairing, "proves_reboot", lambda reboot, verdict: True)
    told, transcript = found(Bounds(Incident.FLAKY, 1, frozenset({Kind.CRASH}), Pace.ALL))
    assert told.startswith("I6") and "on the boot it had before" in told
    assert "the GPU comes back by itself" in transcript and "RebootUncertain" in transcript


def test_no_revision_check_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has read an older record writes over what came in between."""
    kept = MemoryStore.save_job

    def save_anyway(self: MemoryStore, record: Any) -> Any:
        current = self.load_job(record.job_id)
        return kept(self, replace(record, revision=current.revision if current else 0))

    monkeypatch.setattr(MemoryStore, "save_job", save_anyway)
    told, transcript = found(Bounds(Incident.GPU, 1, frozenset({Kind.OVERLAP}), Pace.MACHINES))
    assert told.startswith("I11") and "was written by one who had read at revision" in told
    assert "the scheduler passes; before its effect" in transcript


def test_releasing_gpus_on_suspicion_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that does not end in time is taken for ended: its GPUs are given away while it runs."""

    def suspect(record: Any, event: Any, given: Any) -> Any:
        ended = AllRanksStopped(at=event.at, attempt=event.attempt)
        return stopping.all_stopped(record, ended, given)

    row = Row.to(suspect, *JobStatus)
    monkeypatch.setitem(job.TRANSITIONS, (JobStatus.STOPPING, JobDeadlineReached), row)
    told, transcript = found(Bounds(Incident.GPU, 1, frozenset({Kind.SLOW}), Pace.ALL))
    assert told.startswith("I1:") and "without a claim" in told
    assert "JobDeadlineReached  STOPPING -> DIAGNOSING" in transcript
