"""What every store promises about jobs: who may write, what settling does, what is listed, what is due."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

import pytest
from gpu_recovery.core import commands
from gpu_recovery.core.job.queue_entry import entry_on_ray
from gpu_recovery.core.job.record import LIVE, Job, JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.job.status import LISTED_STATUSES
from gpu_recovery.ports.errors import CursorInvalid, StaleRecord
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import JobQuery

from tests.aws.records import JOB, NOW, OTHER_JOB, checked, failure, job, later, pending, plan, spec


def kept(store: Store, record: Job) -> Job:
    """The record as the store has it after creation."""
    assert store.create_job(record, "")
    loaded = store.load_job(record.job_id)
    assert loaded is not None
    return loaded


def ids(pendings: tuple[object, ...]) -> list[str]:
    return [one.command_id for one in pendings]  # type: ignore[attr-defined]


# -- writing -----------------------------------------------------------------------------------------------------------


def test_the_text_that_a_job_was_submitted_with_is_kept(store: Store) -> None:
    """As it was written; there is none of a job that was adopted."""
    store.create_job(job(), "workload: sft  # mine\n")
    store.create_job(job(OTHER_JOB), "")
    assert store.load_submitted(JOB) == "workload: sft  # mine\n"
    assert store.load_submitted(OTHER_JOB) is None and store.load_submitted("no-such-job") is None


def test_a_created_job_is_read_back_whole(store: Store) -> None:
    """Every field survives, and the first revision is 1."""
    record = job(
        status=JobStatus.STOPPING,
        attempt=2,
        instances=("i-1", "i-2"),
        attempts_uncounted={"INTERRUPTED": 1},
        repaired={"i-1": True},
        failure=failure(1),
        deadline_at=later(5),
        commands=(pending(JOB, 1),),
    )
    assert store.create_job(record, '{"workload": "sft"}')
    assert store.load_job(JOB) == replace(record, revision=1)


def test_a_job_id_is_given_once(store: Store) -> None:
    """The second job of a name is refused and changes nothing."""
    assert store.create_job(job(reason="first"), "text")
    assert not store.create_job(job(reason="second"), "text")
    loaded = store.load_job(JOB)
    assert loaded is not None and loaded.reason == "first"


def test_what_is_not_there_is_none(store: Store) -> None:
    """An unknown id is no error; neither is the id of an item that belongs to a job."""
    assert store.load_job(JOB) is None
    store.create_job(job(), "text")
    store.begin_attempt(plan())
    assert store.load_job(f"{JOB}#spec") is None
    assert store.load_job(f"{JOB}#a01") is None
    assert store.load_job(f"{JOB}#a01#plan") is None


def test_a_save_counts_the_revision_up(store: Store) -> None:
    """The kept record is what save answers and what load finds."""
    record = kept(store, job())
    saved = store.save_job(replace(record, status=JobStatus.SUBMITTING, attempt=1))
    assert saved.revision == record.revision + 1
    assert store.load_job(JOB) == saved


def test_a_stale_writer_is_refused(store: Store) -> None:
    """Of two who read the same revision the second is refused and nothing of his is kept."""
    record = kept(store, job())
    first = store.save_job(replace(record, reason="first"))
    with pytest.raises(StaleRecord):
        store.save_job(replace(record, reason="second"))
    assert store.load_job(JOB) == first


def test_a_job_that_is_not_there_cannot_be_saved(store: Store) -> None:
    """Saving never creates."""
    with pytest.raises(StaleRecord):
        store.save_job(job(revision=0))
    with pytest.raises(StaleRecord):
        store.save_job(job(revision=4))
    assert store.load_job(JOB) is None


def test_commands_come_back_in_the_order_they_were_given(store: Store) -> None:
    """By version and number, not by text: command 10 follows 9."""
    orders = tuple(pending(JOB, n, version=v) for v in (2, 10) for n in range(1, 12))
    assert ids(kept(store, job(commands=orders)).commands) == ids(orders)


# -- settling ----------------------------------------------------------------------------------------------------------


def test_settled_commands_are_gone_and_the_rest_stays(store: Store) -> None:
    """Only what is named is taken out."""
    record = kept(store, job(commands=(pending(JOB, 1), pending(JOB, 2), pending(JOB, 3))))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1", f"{JOB}/1/3"), {})
    loaded = store.load_job(JOB)
    assert loaded is not None and ids(loaded.commands) == [f"{JOB}/1/2"]
    assert replace(loaded, commands=(), revision=0) == replace(record, commands=(), revision=0)


def test_settling_refuses_whoever_read_before_it(store: Store) -> None:
    """A writer with the commands still in hand cannot bring a settled one back."""
    record = kept(store, job(commands=(pending(JOB, 1),)))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {})
    with pytest.raises(StaleRecord):
        store.save_job(replace(record, reason="would bring the command back"))
    loaded = store.load_job(JOB)
    assert loaded is not None and loaded.commands == ()


def test_settling_after_somebody_else_wrote_keeps_their_change(store: Store) -> None:
    """Their fields and their commands stay; only the done command goes."""
    record = kept(store, job(commands=(pending(JOB, 1),)))
    theirs = replace(
        record, status=JobStatus.CANCELED, reason="theirs", commands=(*record.commands, pending(JOB, 1, version=2))
    )
    store.save_job(theirs)
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {})
    loaded = store.load_job(JOB)
    assert loaded is not None
    assert (loaded.status, loaded.reason) == (JobStatus.CANCELED, "theirs")
    assert ids(loaded.commands) == [f"{JOB}/2/1"]


def test_a_deferred_command_counts_a_refusal_and_waits(store: Store) -> None:
    """It keeps its tries, its refusals rise by one, and it may not be acted on before the time given."""
    record = kept(store, job(commands=(pending(JOB, 1), pending(JOB, 2))))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {f"{JOB}/1/2": later(10)})
    again = store.load_job(JOB)
    assert again is not None
    assert [(c.command_id, c.refusals, c.tries, c.acting_until) for c in again.commands] == [
        (f"{JOB}/1/2", 1, 1, later(10))
    ]
    store.remove_finished_job_commands(again, (), {f"{JOB}/1/2": later(20)})
    last = store.load_job(JOB)
    assert last is not None and [(c.refusals, c.acting_until) for c in last.commands] == [(2, later(20))]


def test_a_command_is_deferred_although_somebody_else_wrote(store: Store) -> None:
    """The refusal is not lost with the race."""
    record = kept(store, job(commands=(pending(JOB, 1), pending(JOB, 2))))
    store.save_job(replace(record, reason="theirs"))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {f"{JOB}/1/2": later(10)})
    loaded = store.load_job(JOB)
    assert loaded is not None and loaded.reason == "theirs"
    assert [(c.command_id, c.refusals, c.acting_until) for c in loaded.commands] == [(f"{JOB}/1/2", 1, later(10))]


def test_settling_does_not_bring_a_deferred_command_back(store: Store) -> None:
    """What others have taken out stays out, and what is done is taken out all the same."""
    record = kept(store, job(commands=(pending(JOB, 1), pending(JOB, 2))))
    store.save_job(replace(record, commands=(record.commands[0],)))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {f"{JOB}/1/2": later(10)})
    loaded = store.load_job(JOB)
    assert loaded is not None and loaded.commands == ()


def test_settling_what_is_settled_changes_nothing(store: Store) -> None:
    """A second settle of the same commands is no error."""
    record = kept(store, job(commands=(pending(JOB, 1), pending(JOB, 2))))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {})
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {})
    loaded = store.load_job(JOB)
    assert loaded is not None and ids(loaded.commands) == [f"{JOB}/1/2"]


def test_settling_nothing_is_no_error(store: Store) -> None:
    """The reconciler settles nothing to correct a due time."""
    record = kept(store, job())
    store.remove_finished_job_commands(record, (), {})
    store.remove_finished_job_commands(record, (), {})
    loaded = store.load_job(JOB)
    assert loaded is not None and replace(loaded, revision=0) == replace(record, revision=0)


def test_settling_a_job_that_is_not_there_makes_none(store: Store) -> None:
    """A conditional write on nothing leaves nothing."""
    store.remove_finished_job_commands(job(revision=1), (f"{JOB}/1/1",), {})
    assert store.load_job(JOB) is None


# -- due ---------------------------------------------------------------------------------------------------------------


def test_a_job_is_due_at_the_first_of_deadline_look_and_claim(store: Store) -> None:
    """Exactly at its time, not before."""
    times = {"deadline": 10, "look": 20, "claim": 30, "limit": 40}
    store.create_job(job("deadline", deadline_at=later(10), look_at=later(99)), "")
    store.create_job(job("look", deadline_at=later(99), look_at=later(20)), "")
    store.create_job(job("claim", deadline_at=later(99), commands=(pending("claim", 1, until=30),)), "")
    store.create_job(job("limit", deadline_at=later(99), look_at=later(99), limit_at=later(40)), "")
    store.create_job(job("never"), "")
    for name, at in times.items():
        assert name not in set(store.due_jobs(later(at - 0.001)))
        assert set(store.due_jobs(later(at))) == {n for n, t in times.items() if t <= at}
    assert "never" not in set(store.due_jobs(later(10**6)))


def test_a_limit_of_a_recovery_contract_stays_due_when_commands_are_removed(store: Store) -> None:
    """The index is written again then."""
    store.create_job(job(limit_at=later(40), commands=(pending(JOB, 1, until=30),)), "")
    record = store.load_job(JOB)
    assert record is not None
    store.remove_finished_job_commands(record, (record.commands[0].command_id,), {})
    assert JOB not in set(store.due_jobs(later(39))) and JOB in set(store.due_jobs(later(40)))


def test_the_records_that_are_overdue_for_longest_come_first(store: Store) -> None:
    """Whatever their ids: a reconciler that has no time for all of them must not leave out the same ones each time."""
    names = [f"job-{(7 * number) % 24}" for number in range(24)]
    for at, name in enumerate(names):
        store.create_job(job(name, deadline_at=later(at)), "")
    assert list(store.due_jobs(later(99))) == names


def test_a_settled_record_is_not_due_until_its_next_time(store: Store) -> None:
    """With the last command gone its deadline is what is left; with no deadline it leaves the index."""
    waiting = kept(store, job(JOB, deadline_at=later(50), commands=(pending(JOB, 1, until=5),)))
    ended = kept(store, job(OTHER_JOB, commands=(pending(OTHER_JOB, 1, until=5),)))
    assert set(store.due_jobs(later(5))) == {JOB, OTHER_JOB}
    store.remove_finished_job_commands(waiting, (f"{JOB}/1/1",), {})
    store.remove_finished_job_commands(ended, (f"{OTHER_JOB}/1/1",), {})
    assert set(store.due_jobs(later(49))) == set()
    assert set(store.due_jobs(later(50))) == {JOB}


def test_settling_leaves_others_their_due_time(store: Store) -> None:
    """Whoever read an older record does not know when the newer one is due."""
    record = kept(store, job(commands=(pending(JOB, 1, until=30), pending(JOB, 2, until=40))))
    store.save_job(replace(record, deadline_at=later(20)))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {f"{JOB}/1/2": later(50)})
    assert set(store.due_jobs(later(19))) == set()
    assert set(store.due_jobs(later(20))) == {JOB}


def test_a_deferred_command_makes_its_record_due_at_the_time_given(store: Store) -> None:
    """The retry is not forgotten and not early."""
    record = kept(store, job(deadline_at=later(500), commands=(pending(JOB, 1, until=180),)))
    store.remove_finished_job_commands(record, (), {f"{JOB}/1/1": later(10)})
    assert set(store.due_jobs(later(9))) == set()
    assert set(store.due_jobs(later(10))) == {JOB}


def test_a_saved_record_moves_in_the_index_of_what_is_due(store: Store) -> None:
    """A new deadline replaces the old one; a terminal record waits for nothing."""
    record = kept(store, job(deadline_at=later(10)))
    moved = store.save_job(replace(record, deadline_at=later(20)))
    assert set(store.due_jobs(later(19))) == set()
    store.save_job(replace(moved, status=JobStatus.FAILED, deadline_at=None))
    assert set(store.due_jobs(later(10**6))) == set()


def test_attempts_are_never_due(store: Store) -> None:
    """Only records wait; progress and plans are read when their job is opened."""
    store.create_job(job(), "text")
    store.begin_attempt(plan())
    store.add_stopped(JOB, 1, 0, failure(0))
    store.add_checked(JOB, 1, 0, checked())
    assert set(store.due_jobs(later(10**9))) == set()


# -- listing -----------------------------------------------------------------------------------------------------------


def test_the_first_jobs_of_each_status_come_in_the_order_they_were_queued(store: Store) -> None:
    """`limit` counts within each status, and statuses keep the order asked for."""
    for n, status in enumerate(
        [JobStatus.QUEUED, JobStatus.RECOVERING, JobStatus.QUEUED, JobStatus.QUEUED, JobStatus.RUNNING]
    ):
        store.create_job(job(f"job-{n}", status=status, queued_at=later(-n)), "")
    found = store.jobs_in((JobStatus.RECOVERING, JobStatus.QUEUED), 2)
    assert [one.job_id for one in found] == ["job-1", "job-3", "job-2"]


def test_the_jobs_on_ray_are_found_while_they_wait_or_live(store: Store) -> None:
    """By a line of their own, whatever else is in the table; they are in nobody else's."""
    on_ray = replace(job().spec, backend=Backend.RAY, entrypoint="true")
    for status in JobStatus:
        kept(store, job(status.lower(), status=status, spec=on_ray))
        kept(store, job(f"{status.lower()}-ecs", status=status))
    found = {one.status for one in store.jobs_on_ray()}
    assert found == {JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, *LIVE}
    assert all(one.spec.backend is Backend.RAY for one in store.jobs_on_ray())
    assert all(entry.job_id.endswith("-ecs") for entry in store.load_queue())
    entries = {entry.job_id: entry for entry in store.load_ray_queue()}
    assert entries == {one.job_id: entry_on_ray(one) for one in store.jobs_on_ray()}
    running = store.load_job(JobStatus.RUNNING.lower())
    assert running is not None
    store.save_job(replace(running, status=JobStatus.SUCCEEDED))
    assert running.job_id not in {one.job_id for one in store.jobs_on_ray()}


def test_jobs_are_listed_as_they_are_now(store: Store) -> None:
    """The records are read, not the index: commands and revision are there."""
    record = kept(store, job(commands=(pending(JOB, 1, commands.StopAttempt(1)),)))
    assert store.jobs_in((JobStatus.QUEUED,), 10) == (record,)


def test_a_listing_visits_every_job_once_whatever_the_page(store: Store) -> None:
    """All statuses, what is under way first, and each cursor continues where its page ended."""
    for n, status in enumerate(LISTED_STATUSES * 2):
        store.create_job(job(f"job-{n:02d}", status=status, queued_at=later(n)), "")
    everything = store.list_jobs(None, 100, None)
    assert everything.cursor is None
    assert [one.status for one in everything.jobs] == [status for status in LISTED_STATUSES for _ in range(2)]
    for limit in (3, 11, 22):
        seen, cursor = [], None
        while True:
            page = store.list_jobs(None, limit, cursor)
            assert len(page.jobs) <= limit
            seen += page.jobs
            if page.cursor is None:
                break
            cursor = page.cursor
        assert seen == list(everything.jobs)


def test_a_cursor_stays_good_while_jobs_come_and_move(store: Store) -> None:
    """A page already read is not repeated, and nothing after it is skipped."""
    for n in range(4):
        store.create_job(job(f"job-{n}", status=JobStatus.QUEUED, queued_at=later(n)), "")
    first = store.list_jobs(JobStatus.QUEUED, 2, None)
    store.create_job(job("early", queued_at=later(-1)), "")
    moving = store.load_job("job-1")
    assert moving is not None
    store.save_job(replace(moving, status=JobStatus.RUNNING))
    rest = store.list_jobs(JobStatus.QUEUED, 2, first.cursor)
    assert [one.job_id for one in first.jobs] == ["job-0", "job-1"]
    assert [one.job_id for one in rest.jobs] == ["job-2", "job-3"]


def test_a_listing_of_one_status_holds_no_other(store: Store) -> None:
    """And a page is empty where there is none."""
    store.create_job(job(JOB), "")
    store.create_job(job(OTHER_JOB, status=JobStatus.FAILED, queued_at=NOW), "")
    assert [one.job_id for one in store.list_jobs(JobStatus.FAILED, 10, None).jobs] == [OTHER_JOB]
    assert store.list_jobs(JobStatus.CANCELED, 10, None).jobs == ()


@pytest.mark.parametrize(
    "cursor",
    ["rubbish", "AAAA", "e30=", "W10=", "NQ==", "ü", "[]", '["NO", "x", "y"]', "eyJzdGF0dXMiOiAiTk8ifQ==", "IiI="],
)
def test_a_cursor_of_nobody_is_refused(store: Store, cursor: str) -> None:
    """Text, JSON of another shape, an unknown status: CursorInvalid, not a crash."""
    with pytest.raises(CursorInvalid):
        store.list_jobs(None, 10, cursor)


def test_a_cursor_of_another_listing_is_refused(store: Store) -> None:
    """A cursor of QUEUED does not continue FAILED."""
    store.create_job(job(), "")
    cursor = store.list_jobs(JobStatus.QUEUED, 1, None).cursor
    assert cursor is not None
    with pytest.raises(CursorInvalid):
        store.list_jobs(JobStatus.FAILED, 1, cursor)


def _pages_by_time(store: Store, query: JobQuery, limit: int) -> list[list[str]]:
    """The ids of every page of a listing by time."""
    pages, cursor = [], None
    while True:
        page = store.list_jobs_by_time(query, limit, cursor)
        pages.append([one.job_id for one in page.jobs])
        if page.cursor is None:
            return pages
        cursor = page.cursor


@pytest.mark.parametrize("limit", [1, 3, 50])
def test_jobs_are_listed_by_the_time_of_their_submission(store: Store, limit: int) -> None:
    """The newest or the oldest first across all statuses, each once, and jobs of the same time too."""
    for n, status in enumerate((*LISTED_STATUSES[:6], *LISTED_STATUSES[:3])):
        store.create_job(job(f"job-{n:02d}", status=status, queued_at=later(n // 3)), "")
    expected = [f"job-{n:02d}" for n in range(9)]
    oldest, newest = (_pages_by_time(store, JobQuery(LISTED_STATUSES, is_newest), limit) for is_newest in (False, True))
    assert list(chain(*oldest)) == expected and list(chain(*newest)) == expected[::-1]
    assert max(map(len, (*oldest, *newest))) <= limit


def test_a_listing_by_time_is_filtered(store: Store) -> None:
    """By statuses, time, beginning of the id, user, group and name; a range of times in either order."""
    for n in range(6):
        own = spec(user="ana" if n % 2 else "bob", group="a100" if n < 3 else "", name="night" if n in (2, 4) else "")
        status = JobStatus.QUEUED if n < 4 else JobStatus.FAILED
        store.create_job(job(f"{'sft' if n < 5 else 'ppo'}-{n}", status=status, queued_at=later(n), spec=own), "")

    def found(**query: Any) -> list[str]:
        return list(chain(*_pages_by_time(store, JobQuery(**{"statuses": LISTED_STATUSES} | query), 1)))

    assert found(statuses=(JobStatus.FAILED,)) == ["ppo-5", "sft-4"]
    assert found(since=later(3)) == ["ppo-5", "sft-4", "sft-3"]
    assert found(since=later(3), newest=False) == ["sft-3", "sft-4", "ppo-5"]
    assert found(prefix="ppo") == ["ppo-5"] and found(prefix="none") == []
    assert found(user="ana", group="a100") == ["sft-1"]
    assert found(name="night") == ["sft-4", "sft-2"] and found(name="night", group="a100") == ["sft-2"]


def test_a_page_by_time_neither_repeats_nor_skips_a_job_that_moves(store: Store) -> None:
    """The cursor names a time, so a job that changed its status between two pages keeps its place."""
    for n in range(4):
        store.create_job(job(f"job-{n}", status=JobStatus.QUEUED, queued_at=later(n)), "")
    query = JobQuery((JobStatus.QUEUED, JobStatus.RUNNING))
    first = store.list_jobs_by_time(query, 2, None)
    for name in ("job-3", "job-1"):
        moving = store.load_job(name)
        assert moving is not None
        store.save_job(replace(moving, status=JobStatus.RUNNING))
    rest = store.list_jobs_by_time(query, 5, first.cursor)
    assert [[one.job_id for one in page.jobs] for page in (first, rest)] == [["job-3", "job-2"], ["job-1", "job-0"]]


@pytest.mark.parametrize("cursor", ["rubbish", "[]", "{}", '["x", "y"]', "[5, 6]", "null"])
def test_a_cursor_by_time_of_nobody_is_refused(store: Store, cursor: str) -> None:
    """CursorInvalid, not a crash."""
    with pytest.raises(CursorInvalid):
        store.list_jobs_by_time(JobQuery(LISTED_STATUSES), 10, cursor)


@pytest.mark.parametrize("deferred", [{}, {f"{JOB}/1/2": later(20)}])
def test_a_removal_that_finds_nothing_to_do_writes_nothing(store: Store, deferred: dict[str, datetime]) -> None:
    """Another function removed and put off the same commands. A decision that has read the record is not stale."""
    record = kept(store, job(commands=(pending(JOB, 1), pending(JOB, 2))))
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), {f"{JOB}/1/2": later(10)})
    before = store.load_job(JOB)
    assert before is not None
    store.remove_finished_job_commands(record, (f"{JOB}/1/1",), deferred)
    assert store.load_job(JOB) == before
    store.save_job(before)
