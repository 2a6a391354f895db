"""Whether a stop keeps the containers, and what follows once every process has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.job.diagnosis_result import DiagnosisResult
from gpu_recovery.core.job.held_ranks import container_hold_s, keeps_containers, kept_instances
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import FirstEnd, Job, JobStatus, Origin, StopPurpose, Suspicion
from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.passive_evidence import PassiveEvidence
from gpu_recovery.core.policy import PRESETS
from gpu_recovery.core.task import Ending, EndingKind, RankFailure

from tests.core.build import ADAPTIVE, NOW, tell

ON = replace(ADAPTIVE, restart_in_place=True)
IDS = ("i-1", "i-2", "i-3")
CRASHED = RankFailure(1, "i-2", NOW, Ending(EndingKind.CRASHED, 134, "crashed"))
FAILED = RankFailure(1, "i-2", NOW, Ending(EndingKind.FAILED, 1, "exited with code 1"))
RESTART = DiagnosisResult(1, Cause.NETWORK, "job", (), Remedy.RESTART, 90, True, "a connection broke")
NAMES = DiagnosisResult(1, Cause.GPU_FAULT, "i-2", ("i-2",), Remedy.CHECK, 95, True, "XID 79")


def job(**changes: Any) -> Job:
    """A gang of three that runs."""
    return Job(
        "sft-1",
        JobSpec("sft", 3, 8),
        NOW,
        NOW,
        **{
            "status": JobStatus.RUNNING,
            "attempt": 1,
            "instances": IDS,
            "launched": True,
            "launch_ended": True,
            "running_at": NOW,
            **changes,
        },
    )


def held(policy: Any = ON, **changes: Any) -> Job:
    """The same once every process has ended and its evidence is being read."""
    stopping = tell(job(**changes), events.RankFailed(at=NOW, attempt=1, failure=FAILED), policy).record
    return tell(stopping, events.AllRanksHeld(at=NOW, attempt=1, failure=FAILED, own_ends=1), policy).record


def orders(record: Job, kind: type) -> list[Any]:
    return [pending.command for pending in record.commands if isinstance(pending.command, kind)]


def test_after_a_loss_that_ended_every_rank_no_instance_is_let_go() -> None:
    """Nothing was held, so nothing may be left of a hold until the next launch."""
    gone = RankFailure(1, "i-2", NOW, Ending(EndingKind.INTERRUPTED, None, "its instance was reclaimed"))
    ended = events.AllRanksStopped(at=NOW, attempt=1, failure=gone, own_ends=0)
    after = tell(job(), ended, ON).record
    assert after.status is JobStatus.RECOVERING
    assert (after.let_go, after.holding, after.held_attempt) == ((), False, 0)


def test_neither_preset_holds_ranks() -> None:
    """It is an option of a job or of a deployment."""
    assert not any(preset.restart_in_place for preset in PRESETS.values())


@pytest.mark.parametrize(
    ("spec", "policy", "holds"),
    [
        ({}, {}, True),
        ({"restart_in_place": False}, {}, False),
        ({"restart_in_place": True}, {"restart_in_place": False}, True),
        ({}, {"restart_in_place": False}, False),
        ({"backend": Backend.RAY}, {}, False),
        ({}, {"observe_only": True}, False),
        ({}, {"diagnose": False}, False),
        ({}, {"relaunch_on_same_instances": True}, False),
    ],
)
def test_who_is_restarted_in_place(spec: dict[str, Any], policy: dict[str, Any], holds: bool) -> None:
    """The job says so, or the deployment; and a diagnosis can decide it."""
    assert (container_hold_s(JobSpec("sft", 3, 8, **spec), replace(ON, **policy)) > 0) is holds


@pytest.mark.parametrize(
    ("purpose", "changes", "keeps"),
    [
        (StopPurpose.DIAGNOSE, {}, True),
        *((purpose, {}, False) for purpose in StopPurpose if purpose is not StopPurpose.DIAGNOSE),
        (StopPurpose.DIAGNOSE, {"status": JobStatus.LOST}, False),
        (StopPurpose.DIAGNOSE, {"status": JobStatus.SUBMITTING}, False),
        (StopPurpose.DIAGNOSE, {"attempts_counted": 2}, False),
        (StopPurpose.DIAGNOSE, {"origin": Origin.ADOPTED}, False),
        (StopPurpose.DIAGNOSE, {"started_by_person": True}, False),
        (StopPurpose.DIAGNOSE, {"hands_off": True}, False),
    ],
)
def test_when_a_stop_keeps_the_containers(purpose: StopPurpose, changes: dict[str, Any], keeps: bool) -> None:
    """Only a stop for a diagnosis that another attempt may follow."""
    assert keeps_containers(job(**changes), purpose, ON) is keeps


def test_a_restart_keeps_every_claim_and_starts_in_place() -> None:
    """No instance is released, so nobody else is placed there; the next launch uses the held tasks."""
    record = tell(held(), events.Diagnosed(at=NOW, attempt=1, conclusion=RESTART), ON).record
    assert record.status is JobStatus.RECOVERING and "restarted in place" in record.reason
    assert not orders(record, commands.ReleaseInstances) and not record.holding
    assert kept_instances(record) == IDS
    entry = entry_of(record)
    assert entry is not None and entry.kept == IDS
    placed = events.JobPlaced(at=NOW, attempt=1, version=record.version, instances=IDS, epochs=(0, 0, 0))
    launch = orders(tell(record, placed, ON).record, commands.LaunchAttempt)[-1]
    assert (launch.in_place_of, launch.hold_s) == (1, ON.container_hold_s)


def test_the_named_instance_is_let_go_and_checked_after_its_task_has_ended() -> None:
    """Swap-one: the claims of the other instances stay."""
    record = tell(held(), events.Diagnosed(at=NOW, attempt=1, conclusion=NAMES), ON).record
    assert record.status is JobStatus.RECOVERING and record.let_go == ("i-2",)
    (release,) = orders(record, commands.ReleaseInstances)
    assert release.instances == ("i-2",) and release.check is not None and not orders(record, commands.TellInstance)
    assert kept_instances(record) == ("i-1", "i-3")


@pytest.mark.parametrize(
    "conclusion",
    [
        replace(RESTART, decided=False),
        DiagnosisResult(1, Cause.APPLICATION, "job", (), Remedy.FAIL, 95, True, "KeyError"),
        DiagnosisResult(1, Cause.STORAGE, "job", (), Remedy.PERSON, 95, True, "the disk is full"),
        replace(NAMES, instances=IDS),
    ],
)
def test_any_other_result_ends_the_containers_first(conclusion: DiagnosisResult) -> None:
    """And leaves no trace of the result: the evidence is read again after the confirmed ends."""
    record = tell(held(), events.Diagnosed(at=NOW, attempt=1, conclusion=conclusion), ON).record
    assert (record.status, record.holding, record.held_attempt) == (JobStatus.STOPPING, False, 0)
    assert orders(record, commands.StopAttempt)[-1] == commands.StopAttempt(1) and record.conclusion is None
    assert record.attempts_counted == 0


def test_evidence_that_shows_nothing_ends_the_containers_at_once() -> None:
    """The check of all instances needs the GPUs."""
    record = tell(held(), events.AllRanksHeld(at=NOW, attempt=1, without_evidence=True), ON).record
    assert not record.holding and orders(record, commands.StopAttempt)[-1] == commands.StopAttempt(1)


def test_a_hold_that_is_not_confirmed_in_time_becomes_a_stop_without_a_try_less() -> None:
    """The stop has all its tries and its own time."""
    stopping = tell(job(), events.RankFailed(at=NOW, attempt=1, failure=FAILED), ON).record
    assert stopping.deadline_at is not None and (stopping.deadline_at - NOW).total_seconds() == ON.hold_confirm_s
    over = events.JobDeadlineReached(at=NOW, attempt=1, deadline_at=stopping.deadline_at)
    record = tell(stopping, over, ON).record
    assert (record.holding, record.stop_tries) == (False, 0)
    assert record.deadline_at is not None and (record.deadline_at - NOW).total_seconds() == ON.stop_timeout_s


@pytest.mark.parametrize("force", [True, False])
def test_a_cancellation_while_ranks_are_held_stops_the_containers(force: bool) -> None:
    """No other command would end them."""
    record = tell(held(), events.CancelRequested(at=NOW, attempt=1, by="ada", force=force), ON).record
    assert (record.holding, record.stop_purpose) == (False, StopPurpose.CANCEL)
    assert commands.StopAttempt(1) in orders(record, commands.StopAttempt)


def test_containers_that_all_end_while_they_are_held_lead_to_the_checks() -> None:
    """As after every other end of a gang."""
    record = tell(held(), events.AllRanksStopped(at=NOW, attempt=1, failure=FAILED, own_ends=1), ON).record
    assert (record.status, record.holding, record.held_attempt) == (JobStatus.DIAGNOSING, False, 0)


def test_a_suspect_that_was_named_is_asked_about_before_its_containers_are_stopped() -> None:
    """The evidence may name it again: then it is repaired in the background, and the others restart in place."""
    known = (Suspicion(1, 0, "i-2", named=True, passed=True),)
    of_second = {"attempt": 2, "suspicions": known, "first_ends": ()}
    stopping = tell(job(**of_second), events.RankFailed(at=NOW, attempt=2, failure=CRASHED), ON).record
    waits = tell(stopping, events.AllRanksHeld(at=NOW, attempt=2, failure=CRASHED, own_ends=1), ON).record
    assert waits.holding and orders(waits, commands.GatherEvidence)
    named = tell(waits, events.Diagnosed(at=NOW, attempt=2, conclusion=replace(NAMES, attempt=2)), ON).record
    assert (named.status, named.let_go) == (JobStatus.RECOVERING, ("i-2",))
    (release,) = orders(named, commands.ReleaseInstances)
    assert release.check is not None and release.check.suspect == "i-2"
    seen = events.PassiveEvidenceCollected(at=NOW, attempt=2, evidence=PassiveEvidence())
    for told in (seen, events.Diagnosed(at=NOW, attempt=2, conclusion=replace(RESTART, attempt=2))):
        stopped = tell(waits, told, ON).record
        assert stopped.status is JobStatus.STOPPING and not stopped.holding
    offender = replace(waits, held_attempt=0, first_ends=(FirstEnd(1, 1, "i-2"),), suspicions=())
    at_once = tell(offender, events.AllRanksHeld(at=NOW, attempt=2, failure=CRASHED, own_ends=1), ON).record
    assert not at_once.holding and "i-2 is suspected" in at_once.reason
