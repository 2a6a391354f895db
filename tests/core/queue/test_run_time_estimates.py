"""How long jobs of a kind have run: what is kept of it, what it says of the next, what backfill makes of that."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core import events
from gpu_recovery.core.cluster_snapshot import snapshot_of
from gpu_recovery.core.job.queue_entry import entry_of
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.queue.entry import waiting_job
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.run_time_estimates import (
    LEAST,
    SLOTS,
    JobKind,
    RunTime,
    UsualRunTime,
    slot_of,
    usual_run_time,
)

from tests.core.build import ADAPTIVE, NOW, SPEC, applied, available, later, placed, queued, tell

ANA = replace(SPEC, user="ana", nnodes=1)
KIND = JobKind("ana", "sft", 1, 8)


def test_half_and_nine_of_ten_did_not_take_longer() -> None:
    """The fifth and the ninth of ten, the eighth and the fifteenth of sixteen; fewer than four say nothing."""
    assert usual_run_time([10, 20, 30, 40, 50, 60, 70, 80, 90, 1_000]) == (50, 90)
    assert usual_run_time([*range(1, SLOTS), 9_999]) == (SLOTS // 2, SLOTS - 1)
    assert usual_run_time([1] * (LEAST - 1) + [7]) == (1, 7)
    assert usual_run_time([5] * (LEAST - 1)) is None and usual_run_time(()) is None


def test_a_job_has_one_slot_of_its_kind_and_many_jobs_fill_all() -> None:
    """Written twice it counts once; what is kept of a kind is bounded."""
    slots = [slot_of(f"sft-20261121-090000-{number:04x}") for number in range(400)]
    assert slots == [slot_of(f"sft-20261121-090000-{number:04x}") for number in range(400)]
    assert set(slots) == set(range(SLOTS))


def runs(record: Job) -> Job:
    """The job on one instance, its rank at work."""
    record = placed(record, ids=("i-0a1",))
    return applied(tell(record, events.AllRanksRunning(at=NOW, attempt=1)))


def ended(spec: JobSpec = ANA, ran_s: int = 600) -> tuple[Job, RunTime | None]:
    """A job that has run for so long and come to its end; what is kept of that."""
    record = runs(queued(spec=spec))
    event = events.AllRanksStopped(at=later(ran_s), attempt=1)
    decision = tell(record, event, now=later(ran_s))
    assert decision.quota is not None
    return decision.record, decision.quota.ran


def test_the_time_of_a_job_is_kept_with_its_success() -> None:
    """In the decision itself, so that it is written with it or not at all."""
    record, ran = ended()
    assert record.status is JobStatus.SUCCEEDED
    assert ran == RunTime("ana/sft/1x8", slot_of(record.job_id), 600)


def test_what_did_not_come_to_its_end_says_nothing() -> None:
    """A failure, a cancellation, a suspension: nobody knows how long it would have run."""
    record = runs(queued(spec=ANA))
    canceled = applied(tell(record, events.CancelRequested(at=NOW, attempt=1, by="ana"), now=later(50)))
    assert canceled.ran_s == 50
    decision = tell(canceled, events.AllRanksStopped(at=later(60), attempt=1), now=later(60))
    assert decision.record.status is JobStatus.CANCELED
    assert decision.quota is not None and decision.quota.ran is None
    unseen = placed(queued(spec=ANA), ids=("i-0a1",))
    decision = tell(unseen, events.AllRanksStopped(at=later(60), attempt=1), now=later(60))
    assert decision.record.status is JobStatus.SUCCEEDED
    assert decision.quota is not None and decision.quota.ran is None


@pytest.mark.parametrize(
    ("limit", "ran_s", "known", "lasts"),
    [
        (None, 0, 600, 600),
        (None, 200, 600, 400),
        (None, 600, 600, None),
        (None, 0, None, None),
        (900, 0, 600, 600),
        (900, 0, None, 900),
        (300, 0, 600, 300),
        (900, 600, 600, 900),
    ],
)
def test_the_shorter_of_limit_and_history_counts_less_what_was_run(
    limit: int | None, ran_s: int, known: int | None, lasts: int | None
) -> None:
    """A generous limit hides no history. What has taken longer than its kind has its limit, or an unknown length."""
    record = replace(queued(spec=replace(ANA, max_runtime_s=limit)), ran_s=ran_s)
    entry = entry_of(record)
    assert entry is not None
    usual = {KIND: UsualRunTime(known, known)} if known is not None else {}
    assert waiting_job(entry, ADAPTIVE, NOW, usual).runs_for_s == lasts


@pytest.mark.parametrize(("known_s", "starts"), [(None, set()), (600, {"small"}), (4_000, set())])
def test_a_job_without_a_limit_passes_the_head_if_its_kind_ends_in_time(known_s: int | None, starts: set[str]) -> None:
    """What is kept for the head is lent until the job that it waits for ends, and no longer."""
    known = {KIND: UsualRunTime(known_s, known_s)} if known_s is not None else {}
    head = replace(queued(job_id="head", spec=replace(SPEC, user="bob")), queued_at=later(-60))
    holder = queued(job_id="holder", spec=replace(SPEC, user="bob", nnodes=1, max_runtime_s=3_600))
    holds = replace(runs(holder), queued_at=later(-90))
    entries = [entry_of(one) for one in (head, holds, queued(job_id="small", spec=ANA))]
    fleet = (available("i-0a1", gpus_free=0), available("i-0b2"))
    snapshot = snapshot_of([one for one in entries if one], fleet, ADAPTIVE, NOW, {}, QuotaLimits(), known)
    assert {one.job_id for one in place(snapshot, ADAPTIVE, NOW).assignments} == starts


def test_the_head_is_promised_what_its_kind_before_it_leaves_free() -> None:
    """A running job without a limit is taken to end when its kind does; nobody could tell before."""
    head = queued(job_id="head", spec=replace(SPEC, user="bob", nnodes=1))
    holds = runs(queued(job_id="holder", spec=ANA))
    entries = [one for one in map(entry_of, (head, holds)) if one]
    fleet = (available("i-0a1", gpus_free=0),)
    for known, at in (({}, None), ({KIND: UsualRunTime(300, 600)}, NOW + timedelta(seconds=600))):
        snapshot = snapshot_of(entries, fleet, ADAPTIVE, NOW, {}, QuotaLimits(), known)
        assert [one.at for one in place(snapshot, ADAPTIVE, NOW).reservations] == [at]


def test_history_beats_a_generous_limit() -> None:
    """A user who keeps a limit of seven days still passes the head, if jobs of the kind end in time."""
    week = replace(ANA, max_runtime_s=604_800)
    head = replace(queued(job_id="head", spec=replace(SPEC, user="bob")), queued_at=later(-60))
    holds = replace(
        runs(queued(job_id="holder", spec=replace(ANA, user="bob", max_runtime_s=3_600))), queued_at=later(-90)
    )
    entries = [one for one in map(entry_of, (head, holds, queued(job_id="small", spec=week))) if one]
    known = {KIND: UsualRunTime(600, 4_000)}
    fleet = (available("i-0a1", gpus_free=0), available("i-0b2"))
    snapshot = snapshot_of(entries, fleet, ADAPTIVE, NOW, {}, QuotaLimits(), known)
    assert {one.job_id for one in place(snapshot, ADAPTIVE, NOW).assignments} == {"small"}


def test_a_job_that_outlasts_its_kind_ends_at_its_limit() -> None:
    """The head hears of that time; an unknown end would let no job pass."""
    week = replace(ANA, max_runtime_s=604_800)
    holds = runs(queued(job_id="holder", spec=week))
    entries = [
        one for one in map(entry_of, (queued(job_id="head", spec=replace(SPEC, user="bob", nnodes=1)), holds)) if one
    ]
    for passed_s, ends_s in ((0, 600), (700, 604_800)):
        now = later(passed_s)
        known = {KIND: UsualRunTime(300, 600)}
        snapshot = snapshot_of(entries, (available("i-0a1", gpus_free=0),), ADAPTIVE, now, {}, QuotaLimits(), known)
        assert [one.at for one in place(snapshot, ADAPTIVE, now).reservations] == [later(ends_s)]
