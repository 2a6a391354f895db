"""What every store keeps beside the reports: ranks, silence, orders and inventories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpu_recovery.core.heartbeat import HEARTBEAT_RANKS_MAX, REPORTS_WINDOW_S, Heartbeat, ranks_to_forget
from gpu_recovery.ports.store import Store

from tests.aws.heartbeats import BOOT, UP, beat, kept, log, order, ranks
from tests.aws.records import NOW, OTHER_JOB, A, B, instance, later

# -- ranks -------------------------------------------------------------------------------------------------------------


def test_a_rank_that_is_no_longer_reported_is_remembered_as_it_was_last_seen(store: Store) -> None:
    """Otherwise nobody could say that it fell silent."""
    store.save_heartbeat(beat(1, 0, 0, 1), True)
    store.save_heartbeat(beat(2, 15, 1), True)
    assert {rank.rank: rank.seen_at for rank in kept(store).ranks.values()} == {0: NOW, 1: later(15)}


def test_ranks_long_unseen_outgrow_a_heartbeat_first_and_are_forgotten_together(store: Store) -> None:
    """No more than the item can hold; those that are reported are never among them."""
    for attempt in range(1, HEARTBEAT_RANKS_MAX + 4):
        at = later(attempt)
        seen = ranks(at, 0, attempt=attempt)
        store.save_heartbeat(Heartbeat(A, at, BOOT, NOW - UP, attempt, 15, seen), True)
    store.save_heartbeat(beat(90, REPORTS_WINDOW_S, 0, 1), True)
    assert store.mark_rank_heartbeat_missing(A, int(log(0, attempt=2)), later(2))
    old = ranks_to_forget(kept(store), {})
    assert old == {log(0, attempt=n): later(n) for n in range(2, 6)}
    assert store.forget_ranks(A, old)
    left = kept(store).ranks
    assert len(left) == HEARTBEAT_RANKS_MAX and ranks_to_forget(kept(store), {}) == {}
    assert {log(0), log(1)} <= set(left)
    assert {rank.attempt for rank in left.values()} - {1} == set(range(6, HEARTBEAT_RANKS_MAX + 4))


def test_a_rank_that_was_seen_meanwhile_is_not_forgotten(store: Store) -> None:
    """Nor any that was to be forgotten with it; of an instance that is not known there is nothing to forget."""
    assert not store.forget_ranks(A, {log(0): NOW})
    store.save_heartbeat(beat(1, 0, 0, 1), True)
    store.save_heartbeat(beat(2, 15, 1), True)
    assert not store.forget_ranks(A, {log(0): NOW, log(1): NOW})
    assert not store.forget_ranks(A, {log(2): NOW})
    assert set(kept(store).ranks) == {log(0), log(1)}
    assert store.forget_ranks(A, {log(0): NOW, log(1): later(15)}) and kept(store).ranks == {}


# -- silence -----------------------------------------------------------------------------------------------------------


def test_an_instance_is_marked_silent_only_since_it_was_last_seen(store: Store) -> None:
    """A report between the look and the mark wins, and the next one after a mark takes it away."""
    assert not store.mark_heartbeat_missing(A, NOW)
    store.save_heartbeat(beat(1), True)
    store.save_heartbeat(beat(2, 15), True)
    assert not store.mark_heartbeat_missing(A, NOW)
    assert store.mark_heartbeat_missing(A, later(15)) and store.mark_heartbeat_missing(A, later(15))
    assert kept(store).silent_since == later(15)
    before = store.save_heartbeat(beat(3, 400), True)
    assert before is not None and before.silent_since == later(15)
    assert kept(store).silent_since is None


def test_a_rank_is_marked_silent_only_since_it_was_last_seen(store: Store) -> None:
    """As an instance; others of it are not touched."""
    assert not store.mark_rank_heartbeat_missing(A, int(log(0)), NOW)
    store.save_heartbeat(beat(1, 0, 0, 1), True)
    store.save_heartbeat(beat(2, 15, 1), True)
    assert not store.mark_rank_heartbeat_missing(A, int(log(2)), NOW)
    assert not store.mark_rank_heartbeat_missing(A, int(log(1)), NOW)
    assert store.mark_rank_heartbeat_missing(A, int(log(0)), NOW)
    assert {rank.rank: rank.silent for rank in kept(store).ranks.values()} == {0: True, 1: False}
    before = store.save_heartbeat(beat(3, 400, 0, 1), True)
    assert before is not None and before.ranks[log(0)].silent
    assert not kept(store).ranks[log(0)].silent


# -- orders and inventories --------------------------------------------------------------------------------------------


def test_an_order_stays_until_it_is_withdrawn(store: Store) -> None:
    """Reports come and go; giving it twice, or withdrawing it twice, changes nothing."""
    assert not store.add_agent_command(A, order())
    store.remove_agent_commands(A, (order().order_id,))
    assert store.load_heartbeats((A,)) == {}
    store.save_heartbeat(beat(1), True)
    for one in (order(), order(2), order()):
        assert store.add_agent_command(A, one)
    before = store.save_heartbeat(beat(2, 15, 0), True)
    assert before is not None and set(before.orders.values()) == {order(), order(2)}
    for _ in range(2):
        store.remove_agent_commands(A, (order().order_id, "never given"))
    store.remove_agent_commands(A, ())
    assert kept(store).orders == {order(2).order_id: order(2)}


def test_the_latest_inventory_is_kept_beside_the_heartbeat(store: Store) -> None:
    """Of each instance its own."""
    assert store.load_inventory(A) is None
    store.save_inventory(A, "d1", '{"gpus":[]}', NOW)
    store.save_inventory(A, "d2", '{"gpus":[1]}', later(1))
    assert store.load_inventory(A) == ("d2", '{"gpus":[1]}', later(1))
    assert store.load_inventory(B) is None and store.load_heartbeats((A, B)) == {}


def test_heartbeats_are_found_for_those_who_have_one(store: Store) -> None:
    """Whoever was never heard of is not in the answer."""
    for n in range(103):
        store.save_heartbeat(beat(1, n, instance_id=f"i-{n:03d}"), True)
    found = store.load_heartbeats([f"i-{n:03d}" for n in range(-1, 104)])
    assert {one.instance_id: one.seen_at for one in found.values()} == {f"i-{n:03d}": later(n) for n in range(103)}


def test_a_heartbeat_is_no_instance(store: Store) -> None:
    """It lies in the same table, and nothing that lists instances may meet it."""
    store.save_instance(instance(look_at=NOW))
    store.save_heartbeat(beat(1, 0, 0), True)
    store.save_inventory(A, "d1", "{}", NOW)
    assert [one.instance_id for one in store.instances_in([instance().status])] == [A]
    assert set(store.due_instances(later(10**6))) == {A}
    record = store.load_instance(A)
    assert record is not None and record.revision == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.save_heartbeat(beat(2, 15, 0), True),
        lambda store: store.mark_heartbeat_missing(A, NOW),
        lambda store: store.add_agent_command(A, order()),
        lambda store: store.save_inventory(A, "d", "{}", NOW),
    ],
)
def test_no_write_of_a_heartbeat_makes_an_instances_record_stale(store: Store, write: Callable[[Store], Any]) -> None:
    """Whoever decides on the record is never overtaken by a sign of life."""
    saved = store.save_instance(instance())
    store.save_heartbeat(beat(1), True)
    write(store)
    assert store.save_instance(saved).revision == 2


def test_reports_of_several_jobs_keep_their_ranks_apart(store: Store) -> None:
    """The running log is made of job, attempt and rank."""
    both = {**ranks(NOW, 0), **ranks(NOW, 0, job_id=OTHER_JOB), **ranks(NOW, 0, attempt=2)}
    assert len(both) == 3
    store.save_heartbeat(Heartbeat(A, NOW, ranks=both), True)
    assert kept(store).ranks == both
