"""An instance that a diagnosis or a sign of a fault names: suspected though its check passed, and used last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job import gang_check, named_instances, state_machine
from gpu_recovery.core.job.diagnosis_result import INSTANCE_CAUSES, DiagnosisResult
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import TERMINAL, FirstEnd, Job, JobStatus, Suspicion
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.passive_evidence import PassiveEvidence
from gpu_recovery.core.policy import RecoveryPolicy
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import Ending, EndingKind, RankFailure

from tests.core.build import (
    ADAPTIVE,
    NOW,
    Cluster,
    applied,
    available,
    checked,
    claimed,
    later,
    orders,
    place_records,
    placed,
    queued,
    tell,
    verdict_of,
)

IDS = ("i-0a1", "i-0b2", "i-0c3", "i-0d4")
SPARES = ("i-0e5", "i-0f6")
LONG = replace(ADAPTIVE, attempts_max=100)
SPEC = JobSpec("sft", len(IDS), 8, "gpu-training", container="train")
HEALTHY, REBOOT = CheckOutcome.HEALTHY, CheckOutcome.REBOOT
FOUND_NOTHING = "HEALTHY: no error found"


def running(record: Job, ids: tuple[str, ...] = IDS) -> Job:
    """The job once its next attempt runs on `ids`."""
    record = placed(record, LONG, ids=ids)
    record = applied(tell(record, events.AttemptLaunched(at=NOW, attempt=record.attempt), LONG))
    return applied(tell(record, events.AllRanksRunning(at=NOW, attempt=record.attempt), LONG))


def ended(record: Job, rank: int, ids: tuple[str, ...] = IDS) -> Job:
    """The job once its next attempt on `ids` was ended first by `rank`."""
    record = running(record, ids)
    first = RankFailure(rank, ids[rank], NOW, Ending(EndingKind.CRASHED, None, "crashed"))
    record = applied(tell(record, events.RankFailed(at=NOW, attempt=record.attempt, failure=first), LONG))
    stopped = events.AllRanksStopped(at=NOW, attempt=record.attempt, failure=first, own_ends=1)
    return applied(tell(record, stopped, LONG))


def gpu_fault(record: Job, rank: int, cause: Cause = Cause.GPU_FAULT) -> Decision[Job]:
    """What the job decides when the evidence names the instance of `rank` for certain."""
    remedy = Remedy.CHECK if cause in INSTANCE_CAUSES else Remedy.FAIL
    where = (record.instances[rank],)
    found = DiagnosisResult(record.attempt, cause, "gpu", where, remedy, 90, True, "ECC errors")
    return tell(record, events.Diagnosed(at=NOW, attempt=record.attempt, conclusion=found), LONG)


def named(record: Job, rank: int, ids: tuple[str, ...] = IDS) -> Job:
    """The job after an attempt whose failure names the instance of `rank`, before its check has ended."""
    return applied(gpu_fault(ended(record, rank, ids), rank))


def without_signs(record: Job, **evidence: Any) -> Job:
    """The job after the agents have shown what `evidence` says, often nothing."""
    seen = events.PassiveEvidenceCollected(at=NOW, attempt=record.attempt, evidence=PassiveEvidence(**evidence))
    return applied(tell(record, seen, LONG))


def passes(record: Job, instance_id: str, attempt: int | None = None) -> Decision[Job]:
    """What the job decides when the check of a named instance has found nothing."""
    attempt = record.attempt if attempt is None else attempt
    passed = events.NamedInstancePassed(at=NOW, attempt=attempt, instance_id=instance_id, sentence=FOUND_NOTHING)
    return tell(record, passed, LONG)


def lasts(record: Job, ids: tuple[str, ...], policy: RecoveryPolicy = LONG) -> Job:
    """The job after a stable run on `ids`, which an interruption has ended."""
    record = running(record, ids)
    at = later(LONG.stable_run_s)
    look = events.JobLookDue(at=at, attempt=record.attempt, look_at=record.look_at or at)
    record = applied(tell(record, look, policy, at))
    leaves = events.InstanceLeaving(at=at, attempt=record.attempt, instance_id=ids[0], sentence="it leaves")
    record = applied(tell(record, leaves, policy, at))
    record = applied(tell(record, events.AllRanksStopped(at=at, attempt=record.attempt), policy, at))
    return replace(record, not_before=None)


def used_last(record: Job) -> tuple[str, ...]:
    """The instances that the scheduler uses last for the job, in this order."""
    entry = entry_of(record)
    assert entry is not None
    return tuple(entry.suspects)


def chosen(record: Job, *ids: str) -> tuple[str, ...]:
    """The instances of the next attempt if these are available."""
    instances = tuple(available(one) for one in ids)
    (assignment,) = place_records(Cluster((record,), instances), LONG).assignments
    return assignment.instances


def suspect(record: Job) -> events.CheckRequested:
    """The request to check the gang of a job in DIAGNOSING."""
    check = gang_check.check_to_come(record)
    assert check is not None
    return check.request


# -- the suspicion -----------------------------------------------------------------------------------------------------


def test_a_named_instance_whose_check_passes_is_suspected_and_used_last() -> None:
    """Until then it is left out as before. The reason says so, and the status of the job does not change."""
    record = named(queued(LONG, spec=SPEC), 1)
    (open_one,) = record.suspicions
    assert not open_one.stands and used_last(record) == (IDS[1],)
    decision = passes(record, IDS[1])
    (suspicion,) = applied(decision).suspicions
    assert suspicion == Suspicion(1, 1, IDS[1], named=True, passed=True) and suspicion.stands
    assert f"{IDS[1]}, named after attempt 1" in decision.reason and "used last" in decision.reason
    assert decision.record.status is record.status and not orders(decision, commands.TellInstance)


def test_the_instance_is_told_to_tell_and_no_other_is() -> None:
    """Its own check tells; the check of a whole gang does not."""
    told = orders(gpu_fault(ended(queued(LONG, spec=SPEC), 1), 1), commands.TellInstance)
    assert [(one.instance_id, one.event.named) for one in told] == [(IDS[1], True)]
    assert not suspect(ended(queued(LONG, spec=SPEC), 1)).named


@pytest.mark.parametrize("runs_later", [False, True])
def test_the_result_counts_once_and_in_any_status(runs_later: bool) -> None:
    """The job does not wait for it. A second delivery, and the result of another attempt, change nothing."""
    record = named(queued(LONG, spec=SPEC), 1)
    if runs_later:
        record = running(record, (IDS[0], SPARES[0], *IDS[2:]))
    after = applied(passes(record, IDS[1], 1))
    assert passes(after, IDS[1], 1).outcome is EventOutcome.IGNORED
    for attempt, instance_id in ((2, IDS[1]), (0, IDS[1]), (1, IDS[0])):
        assert passes(record, instance_id, attempt).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("status", JobStatus)
def test_every_status_hears_of_the_result(status: JobStatus) -> None:
    """A job that has ended, or has never run, has nobody to suspect."""
    record = replace(running(named(queued(LONG, spec=SPEC), 1), (*SPARES, *IDS[2:])), status=status)
    decision = passes(record, IDS[1], 1)
    if status in (*TERMINAL, JobStatus.QUEUED):
        assert decision.outcome is EventOutcome.IGNORED
    else:
        after = applied(decision)
        assert after.status is status and after.suspicions[0].stands


def test_several_results_do_not_lengthen_the_reason() -> None:
    """The note about the last one takes the place of the note before."""
    record = ended(queued(LONG, spec=SPEC), 1)
    found = DiagnosisResult(1, Cause.GPU_FAULT, "gpu", IDS[:2], Remedy.CHECK, 90, True, "ECC errors")
    record = applied(tell(record, events.Diagnosed(at=NOW, attempt=1, conclusion=found), LONG))
    first = applied(passes(record, IDS[0]))
    second = applied(passes(first, IDS[1]))
    assert IDS[0] in first.reason.removeprefix(record.reason)
    assert second.reason.startswith(record.reason) and second.reason.count("named after attempt") == 1


# -- what the instance may still do for the job ------------------------------------------------------------------------


def test_a_stable_run_without_the_instance_proves_nothing_about_it() -> None:
    """It is used last until a stable run in which it takes part."""
    others = (IDS[0], SPARES[0], *IDS[2:])
    record = applied(passes(named(queued(LONG, spec=SPEC), 1), IDS[1]))
    record = lasts(record, others)
    assert used_last(record) == (IDS[1],) and not record.left_out
    record = lasts(record, IDS)
    assert used_last(record) == ()


def test_a_named_instance_in_which_its_check_finds_a_fault_is_as_good_as_any_after_its_repair() -> None:
    """Its check tells the job nothing, because it is repaired."""
    record = lasts(named(queued(LONG, spec=SPEC), 1), (IDS[0], SPARES[0], *IDS[2:]))
    assert used_last(record) == ()


def test_suspects_are_used_where_there_is_nothing_else() -> None:
    """No job waits because of a suspicion (I2), and the instance does not get its rank again."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 1), IDS[1]))
    assert IDS[1] not in chosen(record, *IDS, SPARES[0])
    back = chosen(record, *IDS)
    assert set(back) == set(IDS) and back.index(IDS[1]) != 1


def test_an_instance_that_failed_first_without_being_named_is_used_last_as_well() -> None:
    """Its rank may have crashed for the program. So it is used before a suspect, and is no suspect itself."""
    record = without_signs(ended(queued(LONG, spec=SPEC), 2))
    record = lasts(record, (IDS[0], IDS[1], SPARES[0], IDS[3]))
    assert record.avoided == (FirstEnd(2, 2, IDS[2]),) and not record.suspicions
    record = applied(passes(named(record, 1, (IDS[0], IDS[1], SPARES[0], IDS[3])), IDS[1]))
    record = lasts(record, (IDS[0], SPARES[1], SPARES[0], IDS[3]))
    assert used_last(record) == (IDS[2], IDS[1])
    back = chosen(record, IDS[0], *SPARES, IDS[2], IDS[1])
    assert IDS[2] in back and IDS[1] not in back


def test_what_was_left_out_after_one_failure_is_not_taken_after_the_next() -> None:
    """The second failure takes nothing back of what the first has shown."""
    record = named(without_signs(ended(queued(LONG, spec=SPEC), 2)), 1, (IDS[0], IDS[1], SPARES[0], IDS[3]))
    assert used_last(record) == (IDS[2], IDS[1])


def test_a_stable_run_with_a_suspect_clears_it_also_if_it_resets_no_attempts() -> None:
    """The suspicion ends with the run, whatever the run means for the limit of attempts."""
    policy = replace(LONG, stable_run_resets_attempts=False)
    record = applied(passes(named(queued(policy, spec=SPEC), 1), IDS[1]))
    assert used_last(record) == (IDS[1],)
    assert used_last(lasts(record, IDS, policy)) == ()


def test_the_lists_are_bounded() -> None:
    """A job of months names many instances: the newest count."""
    record = queued(LONG, spec=SPEC)
    for number in range(2 * LONG.suspect_window):
        ids = (f"i-{number:04}", *IDS[1:])
        record = lasts(applied(passes(named(record, 0, ids), ids[0])), (SPARES[0], *IDS[1:]))
    assert len(record.suspicions) <= LONG.suspect_window
    full = tuple(FirstEnd(1, 10 + number, f"i-{number:04}") for number in range(LONG.suspect_window))
    record = replace(running(queued(LONG, spec=SPEC)), avoided=full, left_out={"i-new": 3})
    avoided = named_instances.after_stable_run(record, LONG)["avoided"]
    assert len(avoided) == LONG.suspect_window and avoided[-1].instance_id == "i-new"


def test_named_instances_that_were_repaired_displace_no_suspect() -> None:
    """Nine in ten are repaired. The suspects among them are few, and they count for longer."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 0), IDS[0]))
    for number in range(2 * LONG.suspect_window):
        record = lasts(named(record, 1, (SPARES[0], f"i-{number:04}", *IDS[2:])), (*SPARES, *IDS[2:]))
    assert used_last(record) == (IDS[0],) and len(record.suspicions) <= LONG.suspect_window + 1


# -- whom the evidence is against --------------------------------------------------------------------------------------


def test_a_first_end_on_a_suspect_makes_it_a_repeat_offender() -> None:
    """The existing rule: two failures there, of which no check has explained any. Now it is repaired."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 1), IDS[1]))
    record = lasts(record, (IDS[0], SPARES[0], *IDS[2:]))
    record = ended(record, 3, (IDS[0], SPARES[0], IDS[2], IDS[1]))
    request = suspect(record)
    assert (request.suspect, request.again) == (IDS[1], False)
    assert "attempt 1 with rank 1, attempt 3 with rank 3" in request.because and "named" in request.because
    found = {one: events.Checked(HEALTHY, "") for one in record.instances}
    found[IDS[1]] = events.Checked(CheckOutcome.SUSPECTED, request.because, repairing=True)
    (suspicion,) = applied(checked(record, found, LONG)).suspicions
    assert (suspicion.instance_id, suspicion.named) == (IDS[1], False)


def test_one_naming_alone_repairs_nothing_and_stops_no_suspicion_of_others() -> None:
    """Only a repair on suspicion stops further ones."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 1), IDS[1]))
    others = (IDS[0], SPARES[0], *IDS[2:])
    for _ in range(2):
        record = applied(checked(ended(record, 3, others), {one: events.Checked(HEALTHY, "") for one in others}, LONG))
    assert suspect(ended(record, 3, others)).suspect == IDS[3]


def test_a_program_that_writes_of_a_gpu_on_one_rank_makes_nobody_suspect() -> None:
    """Its log names whoever has the rank. Once both have passed their checks, it is the program's."""
    second = (IDS[0], SPARES[0], *IDS[2:])
    record = named(named(queued(LONG, spec=SPEC), 1), 1, second)
    record = applied(passes(record, IDS[1], 1))
    decision = passes(record, SPARES[0], 2)
    record = applied(decision)
    assert "the program is probably faulty" in decision.reason
    assert not any(one.stands for one in record.suspicions)
    assert not suspect(ended(record, 2, second)).suspect
    third = applied(passes(named(record, 1, (IDS[0], SPARES[1], *IDS[2:])), SPARES[1]))
    assert not any(one.stands for one in third.suspicions)


def test_a_first_end_of_the_same_rank_elsewhere_ends_the_suspicion() -> None:
    """No agent shows a fault there, so the rank is what the two failures have in common."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 1), IDS[1]))
    others = (IDS[0], SPARES[0], *IDS[2:])
    record = lasts(record, others)
    faulty = {SPARES[0]: "XID 79"}
    assert without_signs(ended(record, 1, others), faulty=faulty).suspicions[0].stands
    assert without_signs(ended(record, 2, others)).suspicions[0].stands
    after = without_signs(ended(record, 1, others))
    assert after.suspicions[0].elsewhere == SPARES[0] and used_last(after) == (SPARES[0],)


@pytest.mark.parametrize("cause", [Cause.APPLICATION, Cause.GPU_CONTEXT, Cause.NETWORK])
def test_a_cause_that_a_program_can_have_names_no_instance(cause: Cause) -> None:
    """Whatever such a result says of an instance, its check decides."""
    assert not any(one.named for one in applied(gpu_fault(ended(queued(LONG, spec=SPEC), 1), 1, cause)).suspicions)


def test_a_rank_that_hangs_is_checked_and_names_nobody() -> None:
    """Its program may hang as well as its GPU."""
    record = ended(queued(LONG, spec=SPEC), 1)
    hangs = DiagnosisResult(1, Cause.WORKER_HANG, "rank 1", (IDS[1],), Remedy.CHECK, 90, True, "the others wait for it")
    decision = tell(record, events.Diagnosed(at=NOW, attempt=1, conclusion=hangs), LONG)
    (told,) = orders(decision, commands.TellInstance)
    assert not told.event.named and not applied(decision).suspicions
    assert used_last(applied(decision)) == (IDS[1],)


def test_only_a_sign_that_no_program_can_cause_names_an_instance() -> None:
    """A history of failures may be that of programs."""
    record = ended(queued(LONG, spec=SPEC), 1)
    faulty = {IDS[1]: "jobs have failed there first before", IDS[2]: "XID 79"}
    seen = PassiveEvidence(faulty=faulty, doubtful=(IDS[1],))
    decision = tell(record, events.PassiveEvidenceCollected(at=NOW, attempt=1, evidence=seen), LONG)
    told = {one.instance_id: one.event.named for one in orders(decision, commands.TellInstance)}
    assert told == {IDS[1]: False, IDS[2]: True}
    assert [one.instance_id for one in applied(decision).suspicions] == [IDS[2]]


def test_without_suspicion_by_repetition_there_is_none_by_naming() -> None:
    """`suspect_repeats` switches both off."""
    off = replace(LONG, suspect_repeats=False)
    record = ended(queued(LONG, spec=SPEC), 1)
    assert named_instances.with_named(record, IDS, off) == ()


# -- the instance ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("outcome", "tells"), [(HEALTHY, 1), (CheckOutcome.INCONCLUSIVE, 1), (REBOOT, 0)])
@pytest.mark.parametrize("awaited", [False, True])
def test_the_check_of_a_named_instance_tells_the_job_only_that_it_found_nothing(
    outcome: CheckOutcome, tells: int, awaited: bool
) -> None:
    """A fault is repaired, and the job is not told; whether the job has moved on since its request or not."""
    asked = events.CheckRequested(at=NOW, job_id="sft-1", attempt=1, may_reboot=True, named=True, awaited=awaited)
    record = applied(tell(claimed(), asked, LONG))
    decision = tell(record, verdict_of(record, outcome), LONG)
    told = [one for one in orders(decision, commands.TellJob) if isinstance(one.event, events.NamedInstancePassed)]
    assert len(told) == tells
    for one in told:
        assert (one.job_id, one.event.attempt, one.event.instance_id) == ("sft-1", 1, record.instance_id)


def test_a_check_that_names_nobody_tells_nothing() -> None:
    """That of the instance on which a gang failed first, for example."""
    asked = events.CheckRequested(at=NOW, job_id="sft-1", attempt=1, may_reboot=True, awaited=False)
    record = applied(tell(claimed(), asked, LONG))
    assert not orders(tell(record, verdict_of(record, HEALTHY), LONG), commands.TellJob)


def test_the_result_is_one_of_the_events_that_no_attempt_fences() -> None:
    """The suspicion does."""
    assert events.NamedInstancePassed in state_machine.OF_ANY_ATTEMPT


def test_the_spare_that_takes_the_rank_of_a_repaired_instance_may_be_suspected() -> None:
    """It has the rank because the other was repaired. A rank is evidence for the program only after a passed check."""
    second = (IDS[0], SPARES[0], *IDS[2:])
    record = named(queued(LONG, spec=SPEC), 1)
    for _ in range(2):
        record = applied(checked(ended(record, 1, second), {one: events.Checked(HEALTHY, "") for one in second}, LONG))
    assert suspect(ended(record, 1, second)).suspect == SPARES[0]


# -- a suspect that is named again, and the pause ----------------------------------------------------------------------


def test_a_suspect_that_is_named_again_is_repaired_in_the_background() -> None:
    """Two failures name it, so the job does not wait for the check of its gang; the instance repairs itself."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 1), IDS[1]))
    record = lasts(record, (IDS[0], SPARES[0], *IDS[2:]))
    ids = (IDS[0], SPARES[0], IDS[2], IDS[1])
    decision = gpu_fault(ended(record, 3, ids), 3)
    assert decision.record.status is JobStatus.RECOVERING
    (told,) = orders(decision, commands.TellInstance)
    assert (told.instance_id, told.event.suspect) == (IDS[1], IDS[1]) and "2 times" in told.event.because
    (suspicion,) = decision.record.suspicions
    assert (suspicion.attempt, suspicion.rank, suspicion.named, suspicion.stands) == (3, 3, False, True)
    rebooted = applied(tell(claimed(), replace(told.event, suspect="i-0a1"), LONG))
    assert orders(tell(rebooted, verdict_of(rebooted, HEALTHY), LONG), commands.RebootInstance)


def test_a_suspect_that_is_not_named_again_has_the_gang_checked() -> None:
    """Another instance is named, or none: who is suspected is not left to work on unchecked."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 1), IDS[1]))
    record = ended(record, 3, (IDS[0], SPARES[0], IDS[2], IDS[1]))
    assert gpu_fault(record, 0).record.status is JobStatus.DIAGNOSING
    seen = events.PassiveEvidenceCollected(at=NOW, attempt=record.attempt, evidence=PassiveEvidence())
    assert tell(record, seen, LONG).outcome is EventOutcome.IGNORED


def test_there_is_no_pause_after_a_failure_that_an_instance_certainly_caused() -> None:
    """The next attempt leaves the instance out. If two instances were named for one rank, the pause is there again."""
    before = replace(queued(LONG, spec=SPEC), quick_ends=3)
    record = named(before, 1)
    assert (record.not_before, record.quick_ends) == (None, 3)
    assert without_signs(ended(before, 1)).not_before is not None
    record = applied(passes(record, IDS[1]))
    record = applied(passes(named(record, 1, (IDS[0], SPARES[0], *IDS[2:])), SPARES[0]))
    assert named(record, 1, (IDS[0], SPARES[1], *IDS[2:])).not_before is not None


def test_a_suspect_that_takes_the_rank_of_another_suspect_is_a_repeat_offender_all_the_same() -> None:
    """The spare has the rank because the other was left out. It fails under two ranks, so the instance is the cause."""
    record = applied(passes(named(queued(LONG, spec=SPEC), 3), IDS[3]))
    record = lasts(record, (*IDS[:3], SPARES[0]))
    record = applied(passes(named(record, 1, (*IDS[:3], SPARES[0])), IDS[1]))
    ids = (IDS[0], IDS[3], IDS[2], SPARES[0])
    ended_again = ended(record, 1, ids)
    assert suspect(ended_again).suspect == IDS[3]
    found = {one: events.Checked(HEALTHY, "") for one in ids}
    found[IDS[3]] = events.Checked(CheckOutcome.SUSPECTED, "2 times", repairing=True)
    after = applied(checked(ended_again, found, LONG))
    assert {one.instance_id for one in after.suspicions if one.stands} == {IDS[1], IDS[3]}
    assert suspect(ended(record, 1, (IDS[0], SPARES[1], IDS[2], SPARES[0]))).suspect == ""
