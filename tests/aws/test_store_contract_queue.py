"""What every store promises about the line: who is in it, whose term it is, whose quota is used, what is left."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from gpu_recovery.aws.queue_store import entry_from, queue_keys
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.core.job.queue_entry import entry_of, entry_on_ray
from gpu_recovery.core.job.record import PLACED, TERMINAL, WAITING, Job, JobStatus, Suspicion
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.entry import Entry, LastPass
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.run_time_estimates import RunTime
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.ports.errors import StaleRecord, TermOver
from gpu_recovery.ports.store import Store
from hypothesis import given

from tests.aws.records import JOB, NOW, OTHER_JOB, A, instance, job, later, spec
from tests.aws.test_item_codec import records

KEY = "ana/NORMAL/"


def kept(store: Store, **changes: Any) -> Job:
    """A job in the store, as it is read back."""
    assert store.create_job(job(**changes), "")
    loaded = store.load_job(changes.get("job_id", JOB))
    assert loaded is not None
    return loaded


# -- who is in line ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", list(JobStatus))
def test_the_line_has_who_waits_and_who_has_a_place(store: Store, status: JobStatus) -> None:
    """And nobody whose job is over."""
    kept(store, status=status)
    assert [entry.job_id for entry in store.load_queue()] == ([] if status in TERMINAL else [JOB])
    assert [entry.waits for entry in store.load_queue()] == ([] if status in TERMINAL else [status in WAITING])
    assert store.load_waiting() == (store.load_queue() if status in WAITING else ())


def test_a_job_leaves_the_line_with_its_end(store: Store) -> None:
    """In the same write."""
    store.save_job(replace(kept(store), status=JobStatus.CANCELED))
    assert store.load_queue() == ()


def test_a_job_on_ray_is_not_in_our_line(store: Store) -> None:
    """Its GPUs are never ours to give."""
    kept(store, spec=spec(backend=Backend.RAY, task_definition="", entrypoint="python train.py"))
    assert store.load_queue() == ()


def test_an_entry_is_read_back_whole(store: Store) -> None:
    """With everything that a pass decides from."""
    record = kept(
        store,
        status=JobStatus.RECOVERING,
        attempt=3,
        version=9,
        instances=("i-1", "", "i-3"),
        repairing=("i-1",),
        spec=spec(user="ana", priority=Priority.LOW, group="a100", max_runtime_s=7_200),
        held=True,
        hands_off=True,
        not_before=later(60),
        suspended_at=later(-5),
        suspended_for="big-1",
        suspensions=(later(-9), later(-5)),
        ran_s=77,
        running_at=later(-100),
        quota_nodes=2,
        short_of="gpus",
        suspicions=(Suspicion(2, 0, "i-1"),),
    )
    (entry,) = store.load_queue()
    assert entry == entry_of(record)
    assert (entry.asked, entry.not_before, entry.suspects) == (Priority.LOW, later(60), {"i-1": 0})


@given(record=records(Job))
def test_whatever_a_job_holds_its_entry_survives_the_table(record: Job) -> None:
    """Nothing that a field may hold is lost on the way, neither a nought nor an empty text."""
    entry = entry_of(record) or entry_on_ray(record)
    if entry is None:
        assert "line_entry" not in queue_keys(record)
    else:
        assert entry_from(queue_keys(record)["line_entry"]) == entry


def test_an_entry_has_no_field_that_is_not_read_back() -> None:
    """A new field whose emptiness is not its default would be read back as another."""
    least = entry_of(job())
    assert least is not None
    for field in fields(Entry):
        assert hasattr(entry_from(queue_keys(job())["line_entry"]), field.name)
    assert entry_from(queue_keys(job())["line_entry"]) == least


# -- terms -------------------------------------------------------------------------------------------------------------


def test_terms_are_counted_and_a_pass_is_remembered(store: Store) -> None:
    """Before the first pass nothing is known."""
    assert store.load_last_pass() == LastPass()
    assert (store.begin_term(), store.begin_term()) == (1, 2)
    for ended in (LastPass(2, NOW, later(60), 7, later(-60)), LastPass(2, NOW, later(60), 7)):
        store.save_pass(ended)
        assert store.load_last_pass() == ended


def test_a_pass_that_was_overtaken_is_not_remembered(store: Store) -> None:
    """What it has found is older than what the next one finds."""
    store.begin_term()
    store.begin_term()
    store.save_pass(LastPass(1, NOW, later(60), 7))
    assert store.load_last_pass() == LastPass(2)


def test_what_an_earlier_term_decided_is_not_kept(store: Store) -> None:
    """Neither the job nor its quota; the same in the present term is."""
    record = kept(store)
    old, present = store.begin_term(), store.begin_term()
    with pytest.raises(TermOver):
        store.save_job(replace(record, reason="placed"), QuotaChange(KEY, 2, old))
    assert store.load_job(JOB) == record
    assert store.quota_used([KEY]) == {KEY: 0}
    store.save_job(replace(record, reason="placed"), QuotaChange(KEY, 2, present))
    assert store.quota_used([KEY]) == {KEY: 2}


def test_a_placement_is_remembered_with_its_job_and_its_term(store: Store) -> None:
    """In one write: what an earlier term decided is not remembered, and what is old is forgotten."""
    term = store.begin_term()
    assert list(store.recent_placements(term, NOW)) == []
    first = store.save_job(kept(store), QuotaChange(KEY, 2, term, placed_at=NOW))
    store.save_job(kept(store, job_id=OTHER_JOB), QuotaChange(KEY, 2, term, placed_at=later(30)))
    assert sorted(store.recent_placements(term, NOW)) == sorted([JOB, OTHER_JOB])
    present = store.begin_term()
    with pytest.raises(TermOver):
        store.save_job(first, QuotaChange(KEY, 0, term, placed_at=later(40)))
    assert list(store.recent_placements(term, later(1))) == [OTHER_JOB]
    assert sorted(store.recent_placements(term, NOW)) == sorted([JOB, OTHER_JOB])
    assert list(store.recent_placements(present, later(1))) == [OTHER_JOB]
    assert list(store.recent_placements(present, NOW)) == [OTHER_JOB]


def test_a_placement_that_need_not_be_remembered_is_not(store: Store) -> None:
    """No number of running jobs is limited."""
    term = store.begin_term()
    store.save_job(kept(store), QuotaChange(KEY, 2, term))
    assert list(store.recent_placements(term, NOW)) == []


# -- quotas ------------------------------------------------------------------------------------------------------------


def test_a_count_grows_and_shrinks_with_the_jobs_own_writes(store: Store) -> None:
    """Each key by itself; one that nobody used is nought."""
    first = store.save_job(kept(store), QuotaChange(KEY, 2))
    store.save_job(kept(store, job_id=OTHER_JOB), QuotaChange("bob/LOW/a100", 3))
    assert store.quota_used([KEY, "bob/LOW/a100", "eve/LOW/"]) == {KEY: 2, "bob/LOW/a100": 3, "eve/LOW/": 0}
    store.save_job(first, QuotaChange(KEY, -2))
    assert store.quota_used([KEY]) == {KEY: 0}


def test_a_stale_writer_counts_nothing(store: Store) -> None:
    """Both or neither: a count that drifts would keep somebody's instances from them for ever."""
    record = kept(store)
    store.save_job(record, QuotaChange(KEY, 2))
    with pytest.raises(StaleRecord):
        store.save_job(record, QuotaChange(KEY, 2))
    assert store.quota_used([KEY]) == {KEY: 2}


def test_limits_are_kept_for_who_has_read_the_last_ones(store: Store) -> None:
    """Two operators do not overwrite each other."""
    assert store.load_limits() == ({}, 0)
    assert store.save_limits({"max_running_jobs": 3}, 0) == 1
    with pytest.raises(StaleRecord):
        store.save_limits({"max_running_jobs": 4}, 0)
    assert store.load_limits() == ({"max_running_jobs": 3}, 1)


# -- GPUs that are left ------------------------------------------------------------------------------------------------


def free(store: Store, gpus: int = 8) -> None:
    store.save_instance(instance(gpus=gpus))


def claimed(store: Store, job_id: str, gpus: int, attempt: int = 1) -> bool:
    return store.claim_instance(A, job_id, Claim(attempt, gpus), 0)


def test_an_instance_is_shared_as_far_as_its_gpus_go(store: Store) -> None:
    """Four and three of eight; two more are too many, one is not."""
    free(store)
    assert claimed(store, "a", 4) and claimed(store, "b", 3)
    assert not claimed(store, "c", 2)
    assert claimed(store, "d", 1)
    assert set(store.load_instances([A])[A].claims) == {"a", "b", "d"}


def test_what_is_given_back_can_be_given_again(store: Store) -> None:
    """All of it, and once."""
    free(store)
    assert claimed(store, "a", 6) and not claimed(store, "b", 4)
    for _ in range(2):
        store.release_instance(A, "a", False)
    assert claimed(store, "b", 8) and not claimed(store, "c", 1)


def test_the_same_claim_twice_takes_its_gpus_once(store: Store) -> None:
    """Whoever repeats a launch has the claim already, and others have what is left."""
    free(store)
    assert claimed(store, "a", 4) and claimed(store, "a", 4)
    assert claimed(store, "b", 4)


def test_what_people_take_is_taken_from_everybody(store: Store) -> None:
    """They are not asked, even if it is too much; their next attempt takes the place of the last."""
    free(store)
    for attempt in (1, 2):
        assert store.claim_instance(A, "run", Claim(attempt, 6), None)
    assert not claimed(store, "a", 4) and claimed(store, "b", 2)
    store.release_instance(A, "run", False)
    assert claimed(store, "a", 6)


def test_a_write_of_the_record_leaves_what_is_left_as_it_is(store: Store) -> None:
    """It is counted from the claims that the record has."""
    free(store)
    assert claimed(store, "a", 5)
    store.save_instance(replace(store.load_instances([A])[A], reason="looked at"))
    assert not claimed(store, "b", 4) and claimed(store, "b", 3)


def test_instances_are_read_together(store: Store) -> None:
    """Those that there are, each once."""
    free(store)
    assert set(store.load_instances([A, A, "i-0fff"])) == {A}
    assert store.load_instances([]) == {}


def test_what_holds_quota_is_what_has_a_place() -> None:
    """A gang that recovers goes on with its place; one that is suspended has given it up."""
    assert JobStatus.RECOVERING in PLACED and JobStatus.SUSPENDED not in PLACED
    assert set(PLACED) | set(WAITING) | TERMINAL == set(JobStatus)


# -- run times ---------------------------------------------------------------------------------------------------------


def test_run_times_are_kept_with_the_end_of_their_job(store: Store) -> None:
    """A few of a kind, each in its slot; a stale writer keeps none; a kind that nobody ran has none."""
    record = store.save_job(kept(store), QuotaChange(KEY, 2))
    ended = QuotaChange(KEY, -2, ran=RunTime("ana/sft/2x8", 3, 600))
    store.save_job(record, ended)
    with pytest.raises(StaleRecord):
        store.save_job(record, QuotaChange(KEY, -2, ran=RunTime("ana/sft/2x8", 4, 1)))
    other = store.save_job(kept(store, job_id=OTHER_JOB), QuotaChange(KEY, 2))
    other = store.save_job(other, QuotaChange(KEY, -1, ran=RunTime("ana/sft/2x8", 12, 700)))
    found = store.load_run_times(["ana/sft/2x8", "ana/ppo/2x8"])
    assert {kind: sorted(times) for kind, times in found.items()} == {"ana/sft/2x8": [600, 700], "ana/ppo/2x8": []}
    store.save_job(other, QuotaChange(KEY, -1, ran=RunTime("ana/sft/2x8", 3, 650)))
    assert sorted(store.load_run_times(["ana/sft/2x8"])["ana/sft/2x8"]) == [650, 700]


# -- changed instances -------------------------------------------------------------------------------------------------


def test_the_first_changed_instance_wakes_the_scheduler_for_all(store: Store) -> None:
    """Until a pass takes them. Then the next is the first again."""
    assert store.add_changed_instance("i-0a", NOW)
    assert [store.add_changed_instance(name, NOW) for name in ("i-0b", "i-0c")] == [False, False]
    assert set(store.take_changed_instances()) == {"i-0a", "i-0b", "i-0c"}
    assert not store.take_changed_instances()
    assert store.add_changed_instance("i-0b", NOW) and not store.add_changed_instance("i-0a", NOW)


def test_a_message_that_is_overdue_is_sent_by_one_other(store: Store) -> None:
    """The function that was to send it was killed."""
    assert store.add_changed_instance("i-0a", NOW)
    assert not store.add_changed_instance("i-0b", later(59))
    late = later(60)
    assert [store.add_changed_instance(name, late) for name in ("i-0a", "i-0b", "i-0c")] == [True, False, False]


def test_a_large_fleet_names_a_bounded_number_of_its_changed_instances(store: Store) -> None:
    """The pass reads the others from the index."""
    sent = [store.add_changed_instance(f"i-{number:04x}", NOW) for number in range(200)]
    assert sent == [True] + [False] * 199
    assert len(store.take_changed_instances()) == 64
