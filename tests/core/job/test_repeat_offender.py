"""Suspicion by repetition: when a machine is suspected, when its program is, and what the machine then goes through."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.record import FirstEnd, Job, JobStatus, Origin, Suspicion
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import RecoveryPolicy, policy_from
from gpu_recovery.core.state_machine import Decision, EventOutcome
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    NOW,
    Cluster,
    applied,
    available,
    checked,
    later,
    orders,
    place_records,
    placed,
    queued,
    tell,
)

IDS = ("i-0a1", "i-0b2", "i-0c3", "i-0d4")
SPARE = "i-0e5"
LONG = replace(ADAPTIVE, attempts_max=100, uncounted_relaunches_max=100)
EXITS = replace(LONG, retry_exits=True)
ON = replace(LONG, replace=True)
SPEC = JobSpec("sft", len(IDS), 8, "gpu-training", container="train")
HEALTHY, SUSPECTED, REBOOT = CheckOutcome.HEALTHY, CheckOutcome.SUSPECTED, CheckOutcome.REBOOT
CRASHED, FAILED = EndingKind.CRASHED, EndingKind.FAILED
S = InstanceStatus


def _job() -> Job:
    return queued(LONG, spec=SPEC)


def _running(record: Job, policy: RecoveryPolicy, ids: tuple[str, ...]) -> Job:
    """The job once every rank of its next attempt runs on `ids`."""
    record = placed(record, policy, ids=ids)
    record = applied(tell(record, events.AttemptLaunched(at=NOW, attempt=record.attempt), policy))
    return applied(tell(record, events.AllRanksRunning(at=NOW, attempt=record.attempt), policy))


def _ended(
    record: Job,
    rank: int,
    kind: EndingKind = CRASHED,
    own_ends: int = 1,
    policy: RecoveryPolicy = LONG,
    ids: tuple[str, ...] = IDS,
) -> Decision[Job]:
    """The job once its next attempt, placed on `ids`, was ended by `rank` and every rank's end is confirmed."""
    record = _running(record, policy, ids)
    first = RankFailure(rank, ids[rank], NOW, Ending(kind, None, f"ended as {kind}"))
    record = applied(tell(record, events.RankFailed(at=NOW, attempt=record.attempt, failure=first), policy))
    stopped = events.AllRanksStopped(at=NOW, attempt=record.attempt, failure=first, own_ends=own_ends)
    return tell(record, stopped, policy)


def _request(decision: Decision[Job]) -> events.CheckRequested:
    (order,) = orders(decision, commands.CheckInstances)
    return order.request


def _suspect(decision: Decision[Job]) -> str:
    return _request(decision).suspect


def _found(decision: Decision[Job], policy: RecoveryPolicy = LONG, **others: CheckOutcome) -> Decision[Job]:
    """What the job decides on its checks: nothing found but on the suspect, and as `others` say (by `_` for `-`)."""
    record = decision.record
    said = {one: events.Checked(HEALTHY, "") for one in record.instances}
    if suspect := _suspect(decision):
        said[suspect] = events.Checked(SUSPECTED, _request(decision).because, repairing=True)
    said |= {name.replace("_", "-"): events.Checked(one, "said", repairing=True) for name, one in others.items()}
    return checked(record, said, policy)


def _after(
    *ranks: int,
    policy: RecoveryPolicy = LONG,
    record: Job | None = None,
    ids: tuple[str, ...] = IDS,
    kind: EndingKind = CRASHED,
) -> Job:
    """The job after attempts on `ids` that these ranks ended, its checks in each time."""
    record = record or _job()
    for rank in ranks:
        record = applied(_found(_ended(record, rank, kind, policy=policy, ids=ids), policy))
    return record


def _lasts(record: Job, policy: RecoveryPolicy = LONG, ids: tuple[str, ...] = IDS) -> Job:
    """The job after a look that finds its next attempt to have lasted, and an interruption that ended it."""
    record = _running(record, policy, ids)
    assert record.look_at is not None
    at = later(policy.stable_run_s)
    look = events.JobLookDue(at=at, attempt=record.attempt, look_at=record.look_at)
    record = applied(tell(record, look, policy, at))
    gone = events.InstanceLeaving(at=at, attempt=record.attempt, instance_id=ids[0], sentence="it leaves")
    record = applied(tell(record, gone, policy, at))
    ended = events.AllRanksStopped(at=at, attempt=record.attempt)
    return replace(applied(tell(record, ended, policy, at)), not_before=None)


# -- when a machine is suspected ---------------------------------------------------------------------------------------


def test_the_second_first_end_on_a_machine_makes_it_suspect_and_says_why() -> None:
    """The check is told whom to repair; the history names the attempts and the ranks."""
    decision = _ended(_after(1), 1)
    assert _suspect(decision) == IDS[1]
    for told in (_request(decision).because, decision.reason):
        assert "the gang of sft-1 failed there first 2 times, attempt 1 with rank 1, attempt 2 with rank 1" in told
    assert IDS[1] in decision.reason


def test_the_first_failure_suspects_nobody() -> None:
    """One end is no repetition."""
    assert _suspect(_ended(_job(), 1)) == ""


def test_ends_on_different_machines_suspect_nobody() -> None:
    """Each of them is as likely as any other."""
    assert _suspect(_ended(_after(0, 1), 2)) == ""
    assert _suspect(_ended(_after(0, 1, 2), 0)) == IDS[0]


def test_as_many_first_ends_as_the_policy_says_are_a_repetition() -> None:
    """`suspect_after` 3: not the second."""
    patient = replace(LONG, suspect_after=3)
    assert _suspect(_ended(_after(1, policy=patient), 1, policy=patient)) == ""
    assert _suspect(_ended(_after(1, 1, policy=patient), 1, policy=patient)) == IDS[1]


def test_one_end_cannot_be_made_a_repetition() -> None:
    """Neither by a threshold of one."""
    with pytest.raises(PolicyInvalid, match="suspect_after must be at least 2"):
        policy_from({"suspect_after": 1})


@pytest.mark.parametrize("kind", [FAILED, EndingKind.NEVER_STARTED])
def test_an_end_that_fails_fast_never_makes_a_machine_suspect(kind: EndingKind) -> None:
    """Neither when it comes after a crash there, nor when it came before one."""
    assert _suspect(_ended(_after(1), 1, kind)) == ""
    record = applied(_ended(_job(), 1, kind))
    assert record.first_ends == ()


@pytest.mark.parametrize("kind", [CRASHED, EndingKind.HOST_FAULT])
def test_ends_that_hardware_gives_count(kind: EndingKind) -> None:
    """A signal, or the host's own end."""
    assert _suspect(_ended(_after(1, kind=kind), 1, kind)) == IDS[1]


def test_exits_count_where_exits_are_retried() -> None:
    """Of a launcher that exits with 1 for everything nothing else is to be had."""
    assert _suspect(_ended(_after(1, policy=EXITS, kind=FAILED), 1, FAILED, policy=EXITS)) == IDS[1]


@pytest.mark.parametrize("kind", [EndingKind.INTERRUPTED, EndingKind.STOPPED_BY_PERSON, EndingKind.SHORT_OF_RESOURCES])
def test_ends_that_nobody_is_to_blame_for_count_for_nothing(kind: EndingKind) -> None:
    """Such an attempt is not even checked, and leaves nothing behind."""
    decision = _ended(_after(1), 1, kind)
    assert orders(decision, commands.CheckInstances) == []
    assert [one.attempt for one in decision.record.first_ends] == [1]


@pytest.mark.parametrize(("own_ends", "suspect"), [(0, ""), (1, IDS[1]), (2, IDS[1]), (3, ""), (4, "")])
def test_a_gang_that_ended_as_a_whole_had_no_first(own_ends: int, suspect: str) -> None:
    """After a collective's time-out all end by themselves, and who is first says nothing; nor does a 0."""
    assert _suspect(_ended(_after(1), 1, own_ends=own_ends)) == suspect


def test_a_gang_of_one_is_never_suspected() -> None:
    """Its only rank is always the first to end."""
    alone, record = IDS[:1], queued(LONG, spec=replace(SPEC, nnodes=1))
    record = _after(0, record=record, ids=alone)
    assert record.first_ends == () and _suspect(_ended(record, 0, ids=alone)) == ""


def test_classic_suspects_nobody() -> None:
    """Seed 001 knows nothing of it; nor does anybody who has switched it off."""
    assert not CLASSIC.suspect_repeats
    off = replace(LONG, suspect_repeats=False)
    assert _suspect(_ended(_after(1, policy=off), 1, policy=off)) == ""


def test_nobody_is_suspected_where_no_attempt_follows() -> None:
    """There is no next placement to leave the machine out of."""
    few = replace(LONG, attempts_max=2)
    assert _suspect(_ended(_after(1, policy=few), 1, policy=few)) == ""


def test_nobody_is_suspected_past_the_repairs_that_a_job_may_have() -> None:
    """The cap holds for suspicions, too."""
    record = replace(_after(1), repairs=LONG.job_repairs_max)
    assert _suspect(_ended(record, 1)) == ""


def test_an_end_that_a_check_explains_is_forgotten() -> None:
    """Another machine was faulty, or this one was and is repaired: both have their reason."""
    other = applied(_found(_ended(_job(), 1), i_0c3=REBOOT))
    same = applied(_found(_ended(_job(), 1), i_0b2=REBOOT))
    for record in (other, same):
        assert record.first_ends == ()
        assert _suspect(_ended(record, 1)) == ""


def test_first_ends_reach_back_so_many_attempts_and_no_further() -> None:
    """An attempt that was only interrupted counts for the window."""
    near = replace(_after(1), attempt=LONG.suspect_window - 1)
    assert _suspect(_ended(near, 1)) == IDS[1]
    far = replace(_after(1), attempt=LONG.suspect_window)
    assert _suspect(_ended(far, 1)) == ""
    assert len(applied(_ended(far, 1)).first_ends) == 1


def test_lasting_forgives_first_ends() -> None:
    """As it forgives failures and repairs; where it does not, it does not."""
    assert _suspect(_ended(_lasts(_after(1)), 1)) == ""
    strict = replace(LONG, stable_run_resets_attempts=False)
    assert _suspect(_ended(_lasts(_after(1, policy=strict), strict), 1, policy=strict)) == IDS[1]


def test_an_end_told_twice_counts_once() -> None:
    """The attempt is the fence."""
    decision = _ended(_job(), 1)
    again = events.AllRanksStopped(at=NOW, attempt=1, failure=decision.record.failure, own_ends=1)
    assert tell(decision.record, again, LONG).outcome is EventOutcome.IGNORED
    assert decision.record.first_ends == (FirstEnd(1, 1, IDS[1]),)


# -- the job goes on ---------------------------------------------------------------------------------------------------


def test_the_job_goes_on_without_the_suspect_and_remembers_it() -> None:
    """It waits for that repair as for any other, and counts it."""
    decision = _found(_ended(_after(1), 1))
    record = decision.record
    assert record.status is JobStatus.RECOVERING and record.repairing == (IDS[1],) and record.repairs == 1
    assert record.suspicions == (Suspicion(2, 1, IDS[1]),) and record.first_ends == ()
    assert f"{IDS[1]} is left out although its check found nothing" in decision.reason
    assert "attempt 1 with rank 1, attempt 2 with rank 1" in decision.reason


def test_a_suspect_whose_check_does_find_something_is_no_suspicion() -> None:
    """Then it is blamed like any other."""
    record = applied(_found(_ended(_after(1), 1), i_0b2=REBOOT))
    assert record.suspicions == () and record.repairing == (IDS[1],)


def _instances(*ids: str) -> tuple[Instance, ...]:
    return tuple(available(one) for one in ids)


def test_the_next_attempt_takes_a_spare_in_place_of_the_suspect() -> None:
    """Even if it is back already; the others keep their ranks."""
    (assignment,) = place_records(Cluster((_after(1, 1),), _instances(*IDS, SPARE)), LONG).assignments
    assert assignment.instances == (IDS[0], SPARE, IDS[2], IDS[3])


@pytest.mark.parametrize(("rank", "order"), [(1, (0, 2, 1, 3)), (3, (3, 1, 2, 0))])
def test_without_a_spare_the_suspect_comes_back_under_another_rank(rank: int, order: tuple[int, ...]) -> None:
    """So that who ends first next tells the machine from the program."""
    (assignment,) = place_records(Cluster((_after(rank, rank),), _instances(*IDS)), LONG).assignments
    assert assignment.instances == tuple(IDS[n] for n in order)


def test_a_suspect_that_is_away_is_waited_for_if_there_is_no_other() -> None:
    """As for any repair."""
    assert place_records(Cluster((_after(1, 1),), _instances(IDS[0], *IDS[2:])), LONG).assignments == ()


def test_a_machine_that_has_lasted_since_keeps_its_rank() -> None:
    """It has proved itself."""
    back = (IDS[0], IDS[2], IDS[1], IDS[3])
    record = _lasts(_after(1, 1), ids=back)
    assert [one.stands for one in record.suspicions] == [False]
    (assignment,) = place_records(Cluster((record,), _instances(*IDS, SPARE)), LONG).assignments
    assert assignment.instances == back


# -- the program, or the machine ---------------------------------------------------------------------------------------

MOVED = (IDS[0], SPARE, IDS[2], IDS[3])
SWAPPED = (IDS[0], IDS[2], IDS[1], IDS[3])


def test_the_same_rank_first_on_another_machine_speaks_for_the_program() -> None:
    """Nothing more is suspected for it, and the sentence says so."""
    record = _after(1, 1)
    for attempt in range(3, 3 + 2 * LONG.suspect_window):
        decision = _found(_ended(record, 1, ids=MOVED))
        record = decision.record
        assert record.repairing == () and [one.attempt for one in record.suspicions] == [attempt]
        assert f"rank 1 failed first on {IDS[1]} and on {SPARE}: the program is probably faulty" in decision.reason


def test_a_program_that_lets_attempts_last_now_and_then_does_not_go_through_the_fleet() -> None:
    """Lasting forgives failures; which rank was suspected is remembered all the same."""
    record = _lasts(_after(1, 1), ids=MOVED)
    assert _suspect(_ended(_after(1, record=record, ids=MOVED), 1, ids=MOVED)) == ""


@given(ranks=st.lists(st.integers(0, 3), min_size=1, max_size=40), spares=st.integers(0, 2), lasting=st.booleans())
def test_a_program_that_ends_one_rank_first_costs_one_machine_its_reboot(
    ranks: list[int], spares: int, lasting: bool
) -> None:
    """Wherever that rank is placed, with spares or without, and whether or not attempts last between."""
    guilty, record = ranks[0], _job()
    fleet = (*IDS, SPARE, "i-0f6")[: len(IDS) + spares]
    suspects: list[str] = []
    for n, _ in enumerate(ranks):
        at = _placed(record, fleet)
        if lasting and n % 3 == 2:
            record = _lasts(record, ids=at)
            continue
        decision = _ended(record, guilty, ids=at)
        suspects += [one for one in [_suspect(decision)] if one]
        record = applied(_found(decision))
    assert len(suspects) <= 1


def _placed(record: Job, fleet: tuple[str, ...]) -> tuple[str, ...]:
    (assignment,) = place_records(Cluster((record,), _instances(*fleet)), LONG).assignments
    return assignment.instances


@given(ranks=st.lists(st.integers(0, 3), max_size=40))
@example(ranks=[0, 0, 0, 1, 2, 2, 2, 2, 2, 2, 0, 0])  # past the window
def test_until_an_attempt_has_lasted_one_machine_at_most_is_suspected(ranks: list[int]) -> None:
    """Whoever ends first, in whatever order; and what is remembered has a bound."""
    record, suspects = _job(), set[str]()
    for rank in ranks:
        decision = _ended(record, rank, ids=_placed(record, IDS))
        suspects |= {one for one in [_suspect(decision)] if one}
        record = applied(_found(decision))
        assert len(record.first_ends) <= LONG.suspect_window and len(record.suspicions) <= LONG.suspect_window
    assert len(suspects) <= 1


def test_once_an_attempt_has_lasted_another_machine_may_be_suspected() -> None:
    """Two in a run of weeks are no chain."""
    record = _lasts(_after(1, 1), ids=MOVED)
    assert _suspect(_ended(_after(2, record=record, ids=MOVED), 2, ids=MOVED)) == IDS[2]


def test_the_same_machine_first_under_another_rank_was_not_cured() -> None:
    """One such end is enough, and the request says that a reboot has been tried."""
    decision = _ended(_after(1, 1), 2, ids=SWAPPED)
    request = _request(decision)
    assert (request.suspect, request.again) == (IDS[1], True)
    assert "after a repair on suspicion, the gang of sft-1 failed there first again" in request.because


def test_a_suspect_that_was_only_a_spare_since_has_not_proved_itself() -> None:
    """However many attempts have lasted without it: it is the last to be taken, and one end more is enough."""
    record = _lasts(_after(1, 1), ids=MOVED)
    record = replace(record, attempt=record.attempt + 2 * LONG.suspect_window)
    (assignment,) = place_records(Cluster((record,), _instances(*IDS[:3], SPARE)), LONG).assignments
    assert assignment.instances == (IDS[0], SPARE, IDS[2], IDS[1])
    request = _request(_ended(record, 3, ids=assignment.instances))
    assert (request.suspect, request.again) == (IDS[1], True)


def test_long_after_a_suspicion_its_rank_says_nothing_of_another_machine() -> None:
    """Two machines may be bad, one after the other, under one rank."""
    record = _lasts(_after(1, 1), ids=MOVED)
    record = _after(1, record=replace(record, attempt=record.attempt + 2 * LONG.suspect_window), ids=MOVED)
    assert _suspect(_ended(record, 1, ids=MOVED)) == SPARE


def test_a_job_that_ends_says_what_speaks_for_the_machine() -> None:
    """No attempt follows in which it could be left out: whoever reads the message should know."""
    few = replace(LONG, attempts_max=3)
    record = _after(1, 1, policy=few)
    decision = _found(_ended(record, 2, policy=few, ids=SWAPPED), few)
    assert decision.record.status is JobStatus.FAILED
    assert f"its reboot on suspicion has not helped {IDS[1]}: the instance is probably faulty" in decision.reason


def test_a_machine_that_is_back_unproved_is_not_suspected_again_for_the_rank_that_may_be_the_programs() -> None:
    """A placement that gave it its old rank has shown nothing."""
    assert _suspect(_ended(_after(1, 1, 1), 1)) == ""


def test_a_person_who_starts_an_adopted_job_anew_begins_without_suspicions() -> None:
    """It may be another program."""
    job = replace(_after(1, 1), status=JobStatus.CANCELED, origin=Origin.ADOPTED)
    anew = events.NewerTaskSeen(at=later(60), attempt=job.attempt, created_at=later(60))
    record = applied(tell(replace(job, first_ends=(FirstEnd(2, 1, IDS[1]),)), anew, LONG, later(60)))
    assert (record.first_ends, record.suspicions) == ((), ())
