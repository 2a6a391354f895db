"""What the verdict of a diagnosis changes for a job whose gang has ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.job.diagnosing import skips_checks
from gpu_recovery.core.job.diagnosis_result import INSTANCE_CAUSES, DiagnosisResult
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import FirstEnd, Job, JobStatus
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.task import EndingKind

from tests.core import build

CRASHED = build.failure(EndingKind.CRASHED)
LINE = "ModuleNotFoundError: No module named 'flash_attn'"
APPLICATION = DiagnosisResult(1, Cause.APPLICATION, "job", (), Remedy.FAIL, 95, True, LINE)
NETWORK = DiagnosisResult(1, Cause.NETWORK, "job", (), Remedy.RESTART, 80, True, "connection timed out")
HANG = DiagnosisResult(1, Cause.WORKER_HANG, "instance i-0a1", (build.IDS[0],), Remedy.LEAVE_OUT, 80, True, "no answer")
GPU = DiagnosisResult(
    1,
    Cause.GPU_FAULT,
    "gpu i-0b2/3",
    (build.IDS[1],),
    Remedy.CHECK,
    90,
    True,
    "ECC errors increased: 0 -> 4",
    ("i-0b2/3",),
)


def diagnosed(record: Job, conclusion: DiagnosisResult, policy: Any = build.ADAPTIVE) -> Any:
    """What the job decides once the witnesses of its attempt were heard."""
    event = events.Diagnosed(at=build.NOW, attempt=record.attempt, conclusion=conclusion)
    return build.tell(record, event, policy)


def ended() -> Job:
    """A job every rank of which has ended, one of them by a signal."""
    return build.diagnosing(CRASHED)


def test_the_witnesses_are_heard_before_any_machine_is_checked() -> None:
    """In this order; and not under `classic`, which is seed 001."""
    stopped = build.tell(
        build.stopping(CRASHED), events.AllRanksStopped(at=build.NOW, attempt=1, failure=CRASHED), build.ADAPTIVE
    )
    kinds = [type(one.command) for one in stopped.commands]
    assert kinds.index(commands.GatherEvidence) < kinds.index(commands.CheckInstances)
    first = build.failure(EndingKind.FAILED)
    classic = build.tell(
        build.stopping(first, build.CLASSIC),
        events.AllRanksStopped(at=build.NOW, attempt=1, failure=first),
        build.CLASSIC,
    )
    assert build.orders(classic, commands.CheckInstances) and not build.orders(classic, commands.GatherEvidence)


def test_an_error_of_the_program_ends_the_job_at_once_with_its_line() -> None:
    """No check is waited for, nothing is tried again, and the line is in the reason and in what operators hear."""
    decision = diagnosed(ended(), APPLICATION)
    after = build.applied(decision)
    assert (after.status, after.attempts_counted) == (JobStatus.FAILED, 1)
    assert LINE in after.reason
    (told,) = build.orders(decision, commands.NotifyOperator)
    assert LINE in told.body


def test_a_broken_network_is_started_again_and_blames_no_machine() -> None:
    """Counted like any failure; its instances are asked for nothing."""
    decision = diagnosed(ended(), NETWORK)
    after = build.applied(decision)
    assert (after.status, after.attempts_counted, after.repairing) == (JobStatus.RECOVERING, 1, ())
    assert skips_checks(after)
    assert "no instance is faulty" in after.reason
    assert not build.orders(decision, commands.TellInstance)
    (release,) = build.orders(decision, commands.ReleaseInstances)
    assert (release.instances, release.attempt, release.keep_claims_of) == (after.instances, 1, ())


def test_a_hung_workers_instance_is_left_out_while_there_is_room_elsewhere() -> None:
    """The job goes on without it, with it where there is nothing else, and the instance itself is not touched."""
    after = build.applied(diagnosed(ended(), HANG))
    assert after.left_out == {build.IDS[0]: 0}
    entry = entry_of(after)
    assert entry is not None and entry.suspects == {build.IDS[0]: 0}
    spares = tuple(build.available(one) for one in (*build.IDS, "i-0c3"))
    (placed,) = build.place_records(build.Cluster((after,), spares)).assignments
    assert set(placed.instances) == {build.IDS[1], "i-0c3"}
    (placed,) = build.place_records(build.Cluster((after,), spares[:2])).assignments
    assert set(placed.instances) == set(build.IDS)


ALL_CHECKED = replace(build.ADAPTIVE, check_in_background=False)


@pytest.mark.parametrize("cause", INSTANCE_CAUSES)
def test_a_machine_that_is_named_for_sure_is_checked_beside_the_job(cause: Cause) -> None:
    """The job goes on without it, and gives the others back without a check; the check knows which GPU."""
    record = ended()
    decision = diagnosed(record, replace(GPU, cause=cause))
    after = build.applied(decision)
    assert (after.status, after.attempts_counted, after.repairing) == (JobStatus.RECOVERING, 1, ())
    assert after.repairs == record.repairs + 1
    assert skips_checks(after) and after.left_out == {build.IDS[1]: 1}
    (told,) = build.orders(decision, commands.TellInstance)
    assert told.instance_id == build.IDS[1] and isinstance(told.event, events.CheckRequested)
    assert (told.event.focus, told.event.awaited, told.event.attempt) == (GPU.gpus, True, 1)
    assert not told.event.suspect  # what is repaired, its check decides
    (release,) = build.orders(decision, commands.ReleaseInstances)
    assert (release.instances, release.left_out, release.attempt) == ((build.IDS[0],), (), 1)
    assert f"elsewhere than on {build.IDS[1]}" in after.reason


def test_the_check_of_the_named_machine_comes_before_anybody_may_be_placed_on_it() -> None:
    """Its claim is handed from the job to the check: the scheduler is woken last."""
    kinds = [type(one.command) for one in diagnosed(ended(), GPU).commands]
    assert max(map(kinds.index, (commands.TellInstance, commands.ReleaseInstances))) < kinds.index(
        commands.PokeScheduler
    )


def test_a_job_that_starts_before_its_named_machine_has_heard_leaves_it_to_its_check() -> None:
    """Given back, it would be anybody's, unchecked; the check that is still to begin takes the claim."""
    waiting = build.applied(diagnosed(ended(), GPU))
    placed = events.JobPlaced(
        at=build.NOW,
        attempt=waiting.attempt,
        version=waiting.version,
        instances=("i-0c3", "i-0d4"),
        epochs=(0, 0),
        port_offset=0,
        term=1,
    )
    (release,) = build.orders(build.tell(waiting, placed), commands.ReleaseInstances)[-1:]
    assert (release.instances, release.keep_claims_of) == (build.IDS, (build.IDS[1],))
    told = tuple(one for one in waiting.commands if not isinstance(one.command, commands.TellInstance))
    (release,) = build.orders(build.tell(replace(waiting, commands=told), placed), commands.ReleaseInstances)[-1:]
    assert (release.instances, release.keep_claims_of) == (build.IDS, ())


def test_an_end_that_its_verdict_explains_makes_nobody_suspect() -> None:
    """The machine is mended for that; others that ended the gang before are remembered."""
    ends = (FirstEnd(0, 0, build.IDS[0]), FirstEnd(1, 1, build.IDS[1]))
    after = build.applied(diagnosed(replace(ended(), first_ends=ends), GPU))
    assert after.first_ends == ends[:1]


@pytest.mark.parametrize(
    ("record", "found", "policy"),
    [
        (ended(), GPU, ALL_CHECKED),
        (ended(), replace(GPU, decided=False), build.ADAPTIVE),
        (ended(), replace(GPU, cause=Cause.GPU_CONTEXT), build.ADAPTIVE),
        (ended(), replace(GPU, instances=build.IDS), build.ADAPTIVE),
        (ended(), replace(GPU, instances=()), build.ADAPTIVE),
        (ended(), GPU, replace(build.ADAPTIVE, relaunch_on_same_instances=True)),
        (replace(ended(), attempts_counted=build.ADAPTIVE.attempts_max - 1), GPU, build.ADAPTIVE),
        (replace(ended(), repairs=build.ADAPTIVE.job_repairs_max), GPU, build.ADAPTIVE),
    ],
    ids=[
        "not wanted",
        "not sure",
        "perhaps the program",
        "nearly everybody",
        "nobody",
        "own machines",
        "the last",
        "no more repairs",
    ],
)
def test_a_suspected_gpu_else_takes_its_way_through_the_check_of_all(
    record: Job, found: DiagnosisResult, policy: Any
) -> None:
    """The verdict is kept and said; the check decides what is repaired."""
    decision = diagnosed(record, found, policy)
    after = build.applied(decision)
    assert (after.status, after.attempts_counted) == (JobStatus.DIAGNOSING, record.attempts_counted)
    assert not skips_checks(after) and not build.orders(decision, commands.TellInstance)
    assert found.summary in after.reason
    checked = build.results(CheckOutcome.HEALTHY, CheckOutcome.REBOOT)
    expected = JobStatus.RECOVERING if after.attempts_left(policy) else JobStatus.FAILED
    assert build.applied(build.checked(after, checked, policy)).status is expected


@pytest.mark.parametrize(
    ("ran_s", "named", "status"),
    [
        (60, GPU.instances, JobStatus.DIAGNOSING),
        (60, (build.IDS[0],), JobStatus.RECOVERING),
        (1_800, GPU.instances, JobStatus.RECOVERING),
    ],
)
def test_an_instance_that_is_named_again_soon_has_everybody_checked(
    ran_s: int, named: tuple[str, ...], status: JobStatus
) -> None:
    """The first verdict may have been wrong. A failure weeks later, or of another instance, says nothing about it."""
    went_on = build.applied(diagnosed(ended(), GPU))
    later = build.NOW + timedelta(hours=1)
    first = replace(build.failure(EndingKind.CRASHED), at=later + timedelta(seconds=ran_s))
    running = build.running(record=went_on, now=later)
    second = build.stopped(build.stopping(first, record=running, now=first.at), now=first.at)
    found = replace(GPU, attempt=2, instances=named)
    event = events.Diagnosed(at=first.at, attempt=2, conclusion=found)
    assert build.applied(build.tell(second, event, now=first.at)).status is status


def test_an_order_of_an_attempt_before_does_not_stand_for_this_ones() -> None:
    """Its own is carried out already: the checks have begun."""
    record = ended()

    def of_another(one: Any) -> Any:
        is_it = isinstance(one.command, commands.CheckInstances)
        return replace(one, command=replace(one.command, attempt=0)) if is_it else one

    old = replace(record, commands=tuple(of_another(one) for one in record.commands))
    assert build.applied(diagnosed(old, NETWORK)).status is JobStatus.DIAGNOSING


def test_to_end_a_job_takes_more_than_to_start_it_again() -> None:
    """An error of the program that is likely, but not sure, is checked like any failure."""
    after = build.applied(diagnosed(ended(), replace(APPLICATION, confidence=74)))
    assert after.status is JobStatus.DIAGNOSING and not skips_checks(after)


@pytest.mark.parametrize("conclusion", [APPLICATION, NETWORK, HANG])
def test_what_is_undecided_goes_to_the_check(conclusion: DiagnosisResult) -> None:
    """Whatever it is: it is only told."""
    after = build.applied(diagnosed(ended(), replace(conclusion, decided=False)))
    assert (after.status, after.left_out) == (JobStatus.DIAGNOSING, {})
    assert not skips_checks(after) and "undecided" in after.reason


@pytest.mark.parametrize("cause", [Cause.GPU_MEMORY, Cause.NUMERICAL, Cause.HOST_MEMORY, Cause.WORKER_ERROR])
def test_an_error_with_a_machine_for_a_rival_is_checked_all_the_same(cause: Cause) -> None:
    """Out of memory may be another's leak, and NaN a GPU that lies."""
    after = build.applied(diagnosed(ended(), replace(APPLICATION, cause=cause)))
    assert after.status is JobStatus.DIAGNOSING


def _checks_begun(record: Job) -> Job:
    """The job once the order to check its instances is carried out."""
    rest = tuple(one for one in record.commands if not isinstance(one.command, commands.CheckInstances))
    return replace(record, commands=rest)


def _suspicious(record: Job) -> Job:
    """The job where a machine is suspected for ending its gang first again and again."""

    def pointed(one: Any) -> Any:
        if not isinstance(one.command, commands.CheckInstances):
            return one
        request = replace(one.command.request, suspect=build.IDS[0], because="twice")
        return replace(one, command=replace(one.command, request=request))

    return replace(record, commands=tuple(pointed(one) for one in record.commands))


@pytest.mark.parametrize("conclusion", [APPLICATION, NETWORK, HANG])
@pytest.mark.parametrize("change", [_checks_begun, _suspicious])
def test_checks_that_have_begun_or_that_a_machine_is_suspected_for_are_not_spared(
    change: Callable[[Job], Job], conclusion: DiagnosisResult
) -> None:
    """What they find would be lost, and a machine that ends its gangs would never be looked at."""
    after = build.applied(diagnosed(change(ended()), conclusion))
    assert after.status is JobStatus.DIAGNOSING and not skips_checks(after)
    assert conclusion.summary in after.reason


def test_what_was_started_again_for_the_same_cause_is_looked_into_the_second_time() -> None:
    """A network that fails twice may be a machine's."""
    before = replace(NETWORK, attempt=0, spares=True)
    assert build.applied(diagnosed(replace(ended(), conclusion=before), NETWORK)).status is JobStatus.DIAGNOSING
    other = replace(before, cause=Cause.STORAGE)
    assert build.applied(diagnosed(replace(ended(), conclusion=other), NETWORK)).status is JobStatus.RECOVERING


def _barrier(record: Job, *outcomes: CheckOutcome, heard_again: bool = False) -> Any:
    """What the job decides when the last check is in."""
    results = build.results(*(outcomes or (CheckOutcome.HEALTHY, CheckOutcome.HEALTHY)))
    event = events.InstancesChecked(at=build.NOW, attempt=record.attempt, results=results, heard_again=heard_again)
    return build.tell(record, event, build.ADAPTIVE)


def _exited() -> Job:
    """A job one rank of which has exited by itself: without more evidence it is not tried again."""
    return build.diagnosing(build.failure(EndingKind.FAILED))


def test_the_witnesses_are_heard_again_before_a_job_ends_for_want_of_evidence() -> None:
    """A report may come late: the checks have found nothing, and what it says decides. Only then is it the end."""
    asked = _barrier(_exited())
    after = build.applied(asked)
    assert (after.status, after.attempts_counted) == (JobStatus.DIAGNOSING, 0)
    kinds = [type(one.command) for one in asked.commands]
    assert kinds == [commands.GatherEvidence]
    assert _barrier(after).outcome is EventOutcome.IGNORED
    late = build.applied(diagnosed(after, NETWORK))
    assert late.status is JobStatus.DIAGNOSING
    goes_on = build.applied(_barrier(late, heard_again=True))
    assert (goes_on.status, goes_on.attempts_counted) == (JobStatus.RECOVERING, 1)
    assert NETWORK.summary in goes_on.reason
    assert goes_on.diagnosed == replace(NETWORK, followed=True)
    silent = build.applied(_barrier(after, heard_again=True))
    assert silent.status is JobStatus.FAILED and "no faulty instance found" in silent.reason


def test_a_verdict_that_was_undecided_gives_way_to_the_second_hearing_and_a_decided_one_does_not() -> None:
    """Whoever knew enough at first is not asked again."""
    unsure = build.applied(diagnosed(_exited(), replace(APPLICATION, decided=False)))
    again = build.applied(_barrier(unsure))
    late = build.applied(diagnosed(again, NETWORK))
    assert late.diagnosed == NETWORK
    assert diagnosed(late, APPLICATION).outcome is EventOutcome.IGNORED
    sure = build.applied(diagnosed(_exited(), replace(APPLICATION, cause=Cause.NUMERICAL)))
    assert build.applied(_barrier(sure)).status is JobStatus.FAILED


def test_nobody_is_heard_again_where_the_checks_have_found_something_or_it_is_the_last_attempt() -> None:
    """Or where a restart is what follows in any case."""
    blamed = build.applied(_barrier(_exited(), CheckOutcome.HEALTHY, CheckOutcome.REBOOT))
    assert blamed.status is JobStatus.RECOVERING
    known = replace(_exited(), conclusion=HANG)
    repaired = build.applied(_barrier(known, CheckOutcome.HEALTHY, CheckOutcome.REBOOT))
    assert repaired.diagnosed == HANG
    last = build.applied(_barrier(replace(_exited(), attempts_counted=2)))
    assert last.status is JobStatus.FAILED
    assert build.applied(_barrier(ended())).status is JobStatus.RECOVERING
    record = build.diagnosing(build.failure(EndingKind.FAILED), build.CLASSIC)
    classic = events.InstancesChecked(
        at=build.NOW, attempt=1, results=build.results(CheckOutcome.HEALTHY, CheckOutcome.HEALTHY)
    )
    assert build.applied(build.tell(record, classic, build.CLASSIC)).status is JobStatus.FAILED


@pytest.mark.parametrize("conclusion", [NETWORK, HANG, GPU])
def test_what_no_program_can_have_done_does_not_end_the_job_once_its_machines_have_passed(
    conclusion: DiagnosisResult,
) -> None:
    """A network that fails again is checked; nothing is found; the job goes on, without whom the verdict names."""
    before = replace(conclusion, attempt=0, spares=True)
    known = build.applied(diagnosed(replace(_exited(), conclusion=before), conclusion))
    assert known.status is JobStatus.DIAGNOSING
    after = build.applied(_barrier(known))
    assert after.status is JobStatus.RECOVERING
    assert tuple(after.left_out) == conclusion.instances


def test_an_error_of_the_program_after_it_has_lasted_is_checked() -> None:
    """What has run for so long could run: a machine that lost its file system says the same."""
    policy = build.ADAPTIVE
    lasted = replace(ended(), running_at=build.NOW - timedelta(seconds=policy.stable_run_s), incident_at=build.NOW)
    assert build.applied(diagnosed(lasted, APPLICATION)).status is JobStatus.DIAGNOSING


def test_what_must_wait_waits_and_goes_elsewhere() -> None:
    """A disk that is full is not empty a second later."""
    full = DiagnosisResult(1, Cause.STORAGE, "instance i-0a1", (build.IDS[0],), Remedy.WAIT, 90, True, "no space left")
    after = build.applied(diagnosed(ended(), full))
    assert after.not_before == build.later(build.ADAPTIVE.pending_retry_s)
    assert after.left_out == {build.IDS[0]: 0}


def test_the_last_attempt_is_not_followed_by_another() -> None:
    """However innocent the machines are."""
    after = build.applied(diagnosed(replace(ended(), attempts_counted=2), NETWORK))
    assert after.status is JobStatus.FAILED and "was the last of 3" in after.reason


def test_a_verdict_counts_once() -> None:
    """Told twice, or after the next step is decided already, it changes nothing; nor does one about another attempt."""
    after = build.applied(diagnosed(ended(), GPU))
    assert diagnosed(after, NETWORK).outcome is EventOutcome.IGNORED
    gone = build.applied(diagnosed(ended(), NETWORK))
    assert diagnosed(gone, NETWORK).outcome is EventOutcome.IGNORED
    event = events.Diagnosed(at=build.NOW, attempt=7, conclusion=NETWORK)
    assert build.tell(ended(), event).outcome is EventOutcome.OUTDATED


def test_a_job_that_a_person_holds_is_not_started_again() -> None:
    """It is suspended instead."""
    after = build.applied(diagnosed(replace(ended(), held=True), NETWORK))
    assert after.status is JobStatus.SUSPENDED


def test_what_was_left_out_is_forgotten_once_an_attempt_has_lasted() -> None:
    """By then a machine that hung a worker once is as good as any."""
    record = replace(build.running(), left_out={build.IDS[0]: 0})
    policy = build.ADAPTIVE
    early = build.tell(record, events.JobLookDue(at=build.NOW, attempt=1, look_at=record.look_at), policy)
    assert build.applied(early).left_out == record.left_out
    after = build.later(policy.stable_run_s + 1)
    due = replace(record, look_at=after)
    lasted = build.tell(due, events.JobLookDue(at=after, attempt=1, look_at=after), policy, after)
    assert build.applied(lasted).left_out == {}


def test_a_gang_that_does_not_get_on_is_stopped_and_diagnosed() -> None:
    """An incident like any other, with what was seen in its first words."""
    seen = "no rank has made progress for 900 s, although its instances report"
    event = events.ProgressStopped(at=build.NOW, attempt=1, sentence=seen)
    decision = build.tell(build.running(), event)
    after = build.applied(decision)
    assert (after.status, after.stop_reason) == (JobStatus.STOPPING, seen)
    assert build.orders(decision, commands.StopAttempt)
    (told,) = build.orders(decision, commands.NotifyOperator)
    assert seen in told.body
    ended_all = build.applied(build.tell(after, _all_stopped(after)))
    assert ended_all.status is JobStatus.DIAGNOSING


def _all_stopped(record: Job) -> events.AllRanksStopped:
    return events.AllRanksStopped(at=build.NOW, attempt=record.attempt)


def test_an_observed_gang_that_does_not_get_on_is_told_of_once() -> None:
    """Nothing of it is stopped."""
    policy = replace(build.ADAPTIVE, observe_only=True)
    event = events.ProgressStopped(at=build.NOW, attempt=1, sentence="it stands")
    first = build.tell(build.running(policy), event, policy)
    after = build.applied(first)
    assert after.status is JobStatus.RUNNING and not build.orders(first, commands.StopAttempt)
    assert build.tell(after, event, policy).outcome is EventOutcome.IGNORED


def test_an_undecided_result_is_given_as_possible_causes() -> None:
    """A guess is no fact."""
    guess = replace(NETWORK, decided=False, confidence=37, possible=("HOST_MEMORY (37%)", "WORKER_CRASH (37%)"))
    assert guess.summary == (
        "diagnosis: undecided, possible causes: HOST_MEMORY (37%), WORKER_CRASH (37%): connection timed out"
    )
    assert replace(guess, possible=()).summary.startswith("diagnosis: undecided, possible causes: NETWORK (37 %): ")
