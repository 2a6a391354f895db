"""What every store promises about heartbeats: which reports count, what is remembered, and what came before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    RANKS_KEPT_MAX,
    REPORTS_MAX,
    REPORTS_WINDOW_S,
    RETRY_AFTER_MAX_S,
    RUNS_KEPT_MAX,
    Beat,
    GpuHealth,
    Order,
    OrderKind,
    RankBeat,
    outgrown,
    running_log_id,
)
from gpu_recovery.core.instance.repair_proof import CLOCK_SKEW
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyReports
from gpu_recovery.ports.store import Store

from tests.aws.records import JOB, NOW, OTHER_JOB, A, B, instance, later

BOOT, NEXT_BOOT = "boot-1", "boot-2"
UP = timedelta(hours=2)
REBOOTED_AT = NOW + timedelta(minutes=5)


def log(rank: int = 0, job_id: str = JOB, attempt: int = 1) -> str:
    """The running log of a rank, as heartbeats key it."""
    return str(running_log_id(job_id, attempt, rank))


def ranks(at: datetime, *numbers: int, job_id: str = JOB, attempt: int = 1) -> dict[str, RankBeat]:
    """These ranks of one attempt, seen at that time."""
    return {log(n, job_id, attempt): RankBeat(job_id, attempt, n, at, 0) for n in numbers}


def beat(sequence: int = 1, seconds: float = 0, *numbers: int, instance_id: str = A, **changes: Any) -> Beat:
    """Report `sequence` of the usual boot, `seconds` after the present, with these ranks of the usual job."""
    at = later(seconds)
    usual: dict[str, Any] = {"boot_id": BOOT, "booted_at": NOW - UP, "sequence": sequence, "interval_s": 15}
    return Beat(instance_id, at, ranks=ranks(at, *numbers), **{**usual, **changes})


def of_next_boot(sequence: int = 1, seconds: float = 600, *numbers: int) -> Beat:
    """A report of the boot after the usual one."""
    return beat(sequence, seconds, *numbers, boot_id=NEXT_BOOT, booted_at=REBOOTED_AT)


def by_gputasker(seconds: float, *numbers: int) -> Beat:
    """What an agent of seed 000 says: no boot, no number, no interval."""
    return beat(0, seconds, *numbers, boot_id="", booted_at=None, interval_s=0)


def kept(store: Store, instance_id: str = A) -> Beat:
    """The heartbeat, which must be there."""
    return store.beats((instance_id,))[instance_id]


def order(number: int = 1) -> Order:
    """An order to stop the usual rank."""
    return Order(f"stop/{JOB}--a01/{number}", OrderKind.STOP, JOB, 1, 5)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_the_first_report_has_none_before_it_and_is_read_back_whole(store: Store) -> None:
    """Every field survives."""
    first = beat(7, 0, 0, 1, health=GpuHealth.OK, digest="d1")
    assert store.keep_beat(first, True) is None
    found = kept(store)
    assert (found.instance_id, found.seen_at, found.boot_id, found.booted_at) == (A, NOW, BOOT, NOW - UP)
    assert (found.sequence, found.interval_s, found.health, found.digest) == (7, 15, GpuHealth.OK, "d1")
    assert (found.ranks, found.orders, found.silent_since, found.heard) == (
        first.ranks,
        {},
        None,
        {BY_ROLE: 1},
    )


def test_each_report_answers_with_the_heartbeat_before_it(store: Store) -> None:
    """Whoever is heard of again, or has booted, is found by it without a read."""
    store.keep_beat(beat(1, 0, 0), True)
    for sequence in (2, 3, 4):
        before = kept(store)
        assert store.keep_beat(beat(sequence, 15 * sequence, 0), True) == before
        found = kept(store)
        assert (found.sequence, found.seen_at, found.heard[BY_ROLE]) == (sequence, later(15 * sequence), sequence)


def test_a_report_repeated_after_a_lost_answer_counts_again(store: Store) -> None:
    """It keeps its number, and it is a sign of life."""
    store.keep_beat(beat(3), True)
    store.keep_beat(beat(3, 2), True)
    assert (kept(store).sequence, kept(store).seen_at) == (3, later(2))


@pytest.mark.parametrize("present", [True, False])
def test_an_older_report_of_the_boot_is_refused_with_the_latest_number(store: Store, present: bool) -> None:
    """The agent goes on from there; nothing is written."""
    store.keep_beat(beat(9, 0, 0), True)
    before = kept(store)
    with pytest.raises(SequenceStale) as refused:
        store.keep_beat(beat(8, 15, 1), present)
    assert refused.value.last == 9
    assert kept(store) == before


def test_a_boot_before_the_last_is_refused(store: Store) -> None:
    """Its numbers may be higher: another machine speaks with this token, or an old report was held up."""
    store.keep_beat(of_next_boot(4, 600, 0), True)
    before = kept(store)
    with pytest.raises(SequenceStale) as refused:
        store.keep_beat(beat(99, 615, 1), True)
    assert refused.value.last == 4 and kept(store) == before


def test_another_boot_begins_to_count_anew(store: Store) -> None:
    """Its first number may be lower than the last of the boot before."""
    store.keep_beat(beat(900, 0, 0), True)
    before = store.keep_beat(of_next_boot(1, 600, 1), True)
    assert before is not None and (before.boot_id, before.sequence) == (BOOT, 900)
    found = kept(store)
    assert (found.boot_id, found.booted_at, found.sequence) == (NEXT_BOOT, REBOOTED_AT, 1)
    assert set(found.ranks) == {log(0), log(1)}


@pytest.mark.parametrize(("sooner", "heard"), [(0, True), (60, True), (61, False)])
def test_boots_are_told_apart_by_their_time_but_for_some_skew(store: Store, sooner: int, heard: bool) -> None:
    """Each is reckoned from an uptime and the time of receipt: they may differ by how long a report travelled."""
    store.keep_beat(beat(5), True)
    other = beat(1, 15, boot_id=NEXT_BOOT, booted_at=NOW - UP - timedelta(seconds=sooner))
    assert timedelta(seconds=60) == CLOCK_SKEW
    if heard:
        store.keep_beat(other, True)
    else:
        with pytest.raises(SequenceStale):
            store.keep_beat(other, True)
    assert kept(store).boot_id == (NEXT_BOOT if heard else BOOT)


# -- reports that come late --------------------------------------------------------------------------------------------


def test_a_late_report_moves_the_number_and_nothing_else(store: Store) -> None:
    """It is no sign of life: neither the instance nor a rank is seen by it, and silence goes on."""
    store.keep_beat(beat(1, 0, 0, health=GpuHealth.OK, digest="d1"), True)
    assert store.mark_silent(A, NOW)
    before = kept(store)
    assert store.keep_beat(beat(2, 300, 0, 1, health=GpuHealth.IMPAIRED, digest="d2"), False) == before
    found = kept(store)
    assert found.sequence == 2
    for field in ("seen_at", "silent_since", "ranks", "health", "digest", "boot_id", "booted_at"):
        assert getattr(found, field) == getattr(before, field), field


def test_a_late_report_is_no_first_one(store: Store) -> None:
    """An instance that was never heard of stays so."""
    assert store.keep_beat(beat(1), False) is None
    assert store.beats((A,)) == {}


def test_a_late_report_of_a_boot_that_is_over_is_passed_over(store: Store) -> None:
    """Its exits are told by themselves; the number of the boot that lives is not touched."""
    store.keep_beat(of_next_boot(4), True)
    before = kept(store)
    assert store.keep_beat(beat(99, 615, 0), False) == before
    assert kept(store) == before


def test_a_late_report_after_one_of_seed_000_is_passed_over(store: Store) -> None:
    """It may be of a boot that is over; the first report that is present says which one lives."""
    store.keep_beat(by_gputasker(0, 0), True)
    before = kept(store)
    assert store.keep_beat(beat(5, 15, 0), False) == before
    assert kept(store) == before
    assert store.keep_beat(of_next_boot(1, 600, 0), True) == before
    assert (kept(store).boot_id, kept(store).sequence) == (NEXT_BOOT, 1)


# -- agents of seed 000 ------------------------------------------------------------------------------------------------


def test_reports_without_a_boot_count_beside_those_with_one(store: Store) -> None:
    """An agent of seed 000 and ours may run side by side for a while: neither makes the other stale."""
    store.keep_beat(by_gputasker(0, 0), True)
    store.keep_beat(beat(41, 5, 1), True)
    store.keep_beat(by_gputasker(10, 0), True)
    found = kept(store)
    assert (found.boot_id, found.sequence, found.booted_at, found.interval_s) == (BOOT, 41, NOW - UP, 15)
    assert found.seen_at == later(10)
    assert {one: rank.seen_at for one, rank in found.ranks.items()} == {log(0): later(10), log(1): later(5)}
    with pytest.raises(SequenceStale):
        store.keep_beat(beat(40, 15), True)


def test_a_report_that_says_nothing_of_gpus_keeps_what_was_said(store: Store) -> None:
    """Health and digest are those of the last report that spoke of them."""
    store.keep_beat(beat(1, 0, health=GpuHealth.IMPAIRED, digest="d1"), True)
    store.keep_beat(by_gputasker(5), True)
    assert (kept(store).health, kept(store).digest) == (GpuHealth.IMPAIRED, "d1")
    store.keep_beat(beat(2, 10, health=GpuHealth.OK, digest="d2"), True)
    assert (kept(store).health, kept(store).digest) == (GpuHealth.OK, "d2")


# -- floods ------------------------------------------------------------------------------------------------------------


def test_so_many_reports_in_a_window_and_no_more(store: Store) -> None:
    """The refused one is not written, and the next window begins anew."""
    for n in range(REPORTS_MAX):
        store.keep_beat(beat(n + 1, n / 10), True)
    before = kept(store)
    with pytest.raises(TooManyReports) as refused:
        store.keep_beat(beat(REPORTS_MAX + 1, 200), True)
    assert refused.value.retry_after_s == RETRY_AFTER_MAX_S
    assert kept(store) == before
    with pytest.raises(TooManyReports) as refused:
        store.keep_beat(beat(REPORTS_MAX + 1, REPORTS_WINDOW_S - 7), True)
    assert refused.value.retry_after_s == 7
    store.keep_beat(beat(REPORTS_MAX + 1, REPORTS_WINDOW_S), True)
    assert (kept(store).heard, kept(store).sequence) == ({BY_ROLE: 1}, REPORTS_MAX + 1)


def test_late_reports_and_those_of_seed_000_count_into_the_window(store: Store) -> None:
    """Each is a write, whoever makes it."""
    store.keep_beat(beat(1), True)
    store.keep_beat(beat(2, 1), False)
    store.keep_beat(by_gputasker(2), True)
    assert kept(store).heard == {BY_ROLE: 3}


def test_whoever_floods_with_one_token_leaves_the_other_its_own_limit(store: Store) -> None:
    """The old one of a rotation may be in wrong hands; the agent with the new one is heard all the same, as often."""
    for n in range(REPORTS_MAX):
        store.keep_beat(beat(n + 1, 1), True, "old")
    for n in range(REPORTS_MAX):
        with pytest.raises(TooManyReports):
            store.keep_beat(beat(REPORTS_MAX + n + 1, 1), True, "old")
        store.keep_beat(beat(REPORTS_MAX + n + 1, 1), True, "new")
    with pytest.raises(TooManyReports):
        store.keep_beat(beat(2 * REPORTS_MAX + 1, 1), True, "new")
    store.keep_beat(beat(2 * REPORTS_MAX + 1, 1), True)
    assert kept(store).heard == {"old": REPORTS_MAX, "new": REPORTS_MAX, BY_ROLE: 1}
    store.keep_beat(beat(2 * REPORTS_MAX + 2, REPORTS_WINDOW_S), True, "new")
    assert kept(store).heard == {"new": 1}


def test_a_flood_of_one_instance_is_nobody_elses(store: Store) -> None:
    """Each has its own window."""
    for n in range(REPORTS_MAX):
        store.keep_beat(beat(n + 1, 1), True)
    assert store.keep_beat(beat(1, 2, instance_id=B), True) is None


# -- ranks -------------------------------------------------------------------------------------------------------------


def test_a_rank_that_is_no_longer_reported_is_remembered_as_it_was_last_seen(store: Store) -> None:
    """Otherwise nobody could say that it fell silent."""
    store.keep_beat(beat(1, 0, 0, 1), True)
    store.keep_beat(beat(2, 15, 1), True)
    assert {rank.rank: rank.seen_at for rank in kept(store).ranks.values()} == {0: NOW, 1: later(15)}


def test_ranks_long_unseen_outgrow_a_heartbeat_first_and_are_forgotten_together(store: Store) -> None:
    """No more than the item can hold; those that are reported are never among them."""
    for attempt in range(1, RANKS_KEPT_MAX + 4):
        at = later(attempt)
        seen = ranks(at, 0, attempt=attempt)
        store.keep_beat(Beat(A, at, BOOT, NOW - UP, attempt, 15, seen), True)
    store.keep_beat(beat(90, REPORTS_WINDOW_S, 0, 1), True)
    assert store.mark_rank_silent(A, int(log(0, attempt=2)), later(2))
    old = outgrown(kept(store))
    assert old == {log(0, attempt=n): later(n) for n in range(2, 6)}
    assert store.forget_ranks(A, old)
    left = kept(store).ranks
    assert len(left) == RANKS_KEPT_MAX and outgrown(kept(store)) == {}
    assert {log(0), log(1)} <= set(left)
    assert {rank.attempt for rank in left.values()} - {1} == set(range(6, RANKS_KEPT_MAX + 4))


def test_a_rank_that_was_seen_meanwhile_is_not_forgotten(store: Store) -> None:
    """Nor any that was to be forgotten with it; of an instance that is not known there is nothing to forget."""
    assert not store.forget_ranks(A, {log(0): NOW})
    store.keep_beat(beat(1, 0, 0, 1), True)
    store.keep_beat(beat(2, 15, 1), True)
    assert not store.forget_ranks(A, {log(0): NOW, log(1): NOW})
    assert not store.forget_ranks(A, {log(2): NOW})
    assert set(kept(store).ranks) == {log(0), log(1)}
    assert store.forget_ranks(A, {log(0): NOW, log(1): later(15)}) and kept(store).ranks == {}


# -- silence -----------------------------------------------------------------------------------------------------------


def test_an_instance_is_marked_silent_only_since_it_was_last_seen(store: Store) -> None:
    """A report between the look and the mark wins, and the next one after a mark takes it away."""
    assert not store.mark_silent(A, NOW)
    store.keep_beat(beat(1), True)
    store.keep_beat(beat(2, 15), True)
    assert not store.mark_silent(A, NOW)
    assert store.mark_silent(A, later(15)) and store.mark_silent(A, later(15))
    assert kept(store).silent_since == later(15)
    before = store.keep_beat(beat(3, 400), True)
    assert before is not None and before.silent_since == later(15)
    assert kept(store).silent_since is None


def test_a_rank_is_marked_silent_only_since_it_was_last_seen(store: Store) -> None:
    """As an instance; others of it are not touched."""
    assert not store.mark_rank_silent(A, int(log(0)), NOW)
    store.keep_beat(beat(1, 0, 0, 1), True)
    store.keep_beat(beat(2, 15, 1), True)
    assert not store.mark_rank_silent(A, int(log(2)), NOW)
    assert not store.mark_rank_silent(A, int(log(1)), NOW)
    assert store.mark_rank_silent(A, int(log(0)), NOW)
    assert {rank.rank: rank.silent for rank in kept(store).ranks.values()} == {0: True, 1: False}
    before = store.keep_beat(beat(3, 400, 0, 1), True)
    assert before is not None and before.ranks[log(0)].silent
    assert not kept(store).ranks[log(0)].silent


# -- orders and inventories --------------------------------------------------------------------------------------------


def test_an_order_stays_until_it_is_withdrawn(store: Store) -> None:
    """Reports come and go; giving it twice, or withdrawing it twice, changes nothing."""
    assert not store.give_order(A, order())
    store.withdraw_orders(A, (order().order_id,))
    assert store.beats((A,)) == {}
    store.keep_beat(beat(1), True)
    for one in (order(), order(2), order()):
        assert store.give_order(A, one)
    before = store.keep_beat(beat(2, 15, 0), True)
    assert before is not None and set(before.orders.values()) == {order(), order(2)}
    for _ in range(2):
        store.withdraw_orders(A, (order().order_id, "never given"))
    store.withdraw_orders(A, ())
    assert kept(store).orders == {order(2).order_id: order(2)}


def test_the_latest_inventory_is_kept_beside_the_heartbeat(store: Store) -> None:
    """Of each instance its own."""
    assert store.inventory(A) is None
    store.keep_inventory(A, "d1", '{"gpus":[]}', NOW)
    store.keep_inventory(A, "d2", '{"gpus":[1]}', later(1))
    assert store.inventory(A) == ("d2", '{"gpus":[1]}', later(1))
    assert store.inventory(B) is None and store.beats((A, B)) == {}


def test_heartbeats_are_found_for_those_who_have_one(store: Store) -> None:
    """Whoever was never heard of is not in the answer."""
    for n in range(103):
        store.keep_beat(beat(1, n, instance_id=f"i-{n:03d}"), True)
    found = store.beats([f"i-{n:03d}" for n in range(-1, 104)])
    assert {one.instance_id: one.seen_at for one in found.values()} == {f"i-{n:03d}": later(n) for n in range(103)}


def test_a_heartbeat_is_no_instance(store: Store) -> None:
    """It lies in the same table, and nothing that lists instances may meet it."""
    store.save_instance(instance(look_at=NOW))
    store.keep_beat(beat(1, 0, 0), True)
    store.keep_inventory(A, "d1", "{}", NOW)
    assert [one.instance_id for one in store.instances_in([instance().status])] == [A]
    assert set(store.due_instances(later(10**6))) == {A}
    record = store.load_instance(A)
    assert record is not None and record.revision == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.keep_beat(beat(2, 15, 0), True),
        lambda store: store.mark_silent(A, NOW),
        lambda store: store.give_order(A, order()),
        lambda store: store.keep_inventory(A, "d", "{}", NOW),
    ],
)
def test_no_write_of_a_heartbeat_makes_an_instances_record_stale(store: Store, write: Callable[[Store], Any]) -> None:
    """Whoever decides on the record is never overtaken by a sign of life."""
    saved = store.save_instance(instance())
    store.keep_beat(beat(1), True)
    write(store)
    assert store.save_instance(saved).revision == 2


def test_reports_of_several_jobs_keep_their_ranks_apart(store: Store) -> None:
    """The running log is made of job, attempt and rank."""
    both = {**ranks(NOW, 0), **ranks(NOW, 0, job_id=OTHER_JOB), **ranks(NOW, 0, attempt=2)}
    assert len(both) == 3
    store.keep_beat(Beat(A, NOW, ranks=both), True)
    assert kept(store).ranks == both


# -- two agents --------------------------------------------------------------------------------------------------------

OLD, NEW = "0" * 16, "f" * 16


def test_of_two_agents_in_step_the_one_that_was_heard_of_later_is_heard(store: Store) -> None:
    """The same boot and the same numbers: only their names tell them apart, and a name never returns."""
    store.keep_beat(beat(1, 0, run=OLD), True)
    store.keep_beat(beat(2, 15, run=OLD), True)
    store.keep_beat(beat(2, 16, run=NEW), True)
    assert (kept(store).run, kept(store).past_runs) == (NEW, (OLD,))
    with pytest.raises(AnotherAgent) as refused:
        store.keep_beat(beat(3, 30, run=OLD), True)
    assert refused.value.known.run == NEW
    assert (kept(store).run, kept(store).sequence, kept(store).seen_at) == (NEW, 2, later(16))
    store.keep_beat(beat(3, 31, run=NEW), True)
    assert kept(store).sequence == 3


def test_an_agent_that_is_started_again_takes_its_own_place(store: Store) -> None:
    """Its numbers go on, or begin anew with the next boot; so many names are known again."""
    for number in range(1, 2 * RUNS_KEPT_MAX):
        store.keep_beat(beat(number, number, run=f"{number:016x}"), True)
    assert kept(store).past_runs == tuple(f"{n:016x}" for n in range(RUNS_KEPT_MAX - 1, 2 * RUNS_KEPT_MAX - 1))
    store.keep_beat(replace(of_next_boot(1, 700), run=NEW), True)
    assert (kept(store).run, kept(store).boot_id, kept(store).sequence) == (NEW, NEXT_BOOT, 1)


def test_a_last_report_of_a_killed_agent_is_stale_and_no_sign_of_two(store: Store) -> None:
    """It was on its way while the next one began."""
    store.keep_beat(beat(4, 0, run=OLD), True)
    store.keep_beat(beat(6, 15, run=NEW), True)
    with pytest.raises(SequenceStale):
        store.keep_beat(beat(5, 16, run=OLD), True)


def test_an_agent_without_a_name_is_heard_as_ever(store: Store) -> None:
    """An older one, or one of seed 000: it takes nobody's place, and nobody's is kept from it."""
    store.keep_beat(beat(1, 0, run=OLD), True)
    store.keep_beat(beat(2, 15), True)
    store.keep_beat(by_gputasker(16), True)
    store.keep_beat(beat(3, 30, run=OLD), True)
    assert (kept(store).run, kept(store).past_runs, kept(store).sequence) == (OLD, (), 3)


def test_it_is_kept_when_operators_were_told_of_two(store: Store) -> None:
    """Of an instance that was heard of; of another nothing is made."""
    store.mark_doubled(A, NOW)
    assert not store.beats((A,))
    store.keep_beat(beat(1, 0), True)
    store.mark_doubled(A, later(5))
    store.keep_beat(beat(2, 15), True)
    assert kept(store).doubled_at == later(5)
