"""Heartbeats in memory and on DynamoDB: told the same reports and marks in any order, both stores answer the same."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from gpu_recovery.aws import heartbeat_store, heartbeat_update
from gpu_recovery.core.heartbeat import BY_ROLE, REPORTS_WINDOW_S, GpuHealth, Heartbeat
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyReports
from gpu_recovery.ports.store import Store
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from moto import mock_aws

from simulator.dynamodb.double import DynamoDb
from simulator.memory_store import heartbeats
from simulator.memory_store.store import MemoryStore
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.heartbeats import log, order, ranks
from tests.aws.records import A, B, later
from tests.aws.test_stores_agree import CLIENT, WEIGHT
from tests.tiers import examples

INSTANCES = (A, B)
BOOTS = {"": None, "boot-1": later(-7_200), "boot-2": later(-30), "boot-3": later(400)}
instance_ids, flags = st.sampled_from(INSTANCES), st.booleans()
steps = st.sampled_from((0, 1, 15, 40, REPORTS_WINDOW_S, 2 * REPORTS_WINDOW_S))
numbers = st.sets(st.integers(0, 9), max_size=8)


class BothStores(RuleBasedStateMachine):
    """Every rule does one thing to both stores; time goes on, reports are lost, repeated and overtaken."""

    @initialize()
    def begin(self) -> None:
        """Two stores in which nobody was heard of."""
        self.leaving = ExitStack()
        # A window that is full after a few reports: 120 of them would say nothing more.
        for module in (heartbeat_store, heartbeat_update, heartbeats):
            self.leaving.enter_context(patch.object(module, "REPORTS_MAX", 5))
        self.stores: tuple[Store, Store] = (MemoryStore(), self.production_store())
        self.seconds = 0

    def production_store(self) -> Store:
        """The production store on the DynamoDB double."""
        return dynamo_store(DoubleClient(DynamoDb()))

    def teardown(self) -> None:
        self.leaving.close()

    def both(self, name: str, *given: Any) -> Any:
        """The answer of both, or what both raised."""
        answers: list[Any] = []
        for store in self.stores:
            try:
                answers.append(getattr(store, name)(*given))
            except (SequenceStale, AnotherAgent, TooManyReports) as refused:
                answers.append((type(refused), str(refused)))
        assert answers[0] == answers[1], name
        return answers[0]

    @rule(
        instance_id=instance_ids,
        passed=steps,
        boot=st.sampled_from(tuple(BOOTS)),
        sequence=st.integers(1, 9),
        present=st.sampled_from((True, True, False)),
        numbers=numbers,
        attempt=st.integers(1, 4),
        health=st.none() | st.sampled_from(GpuHealth),
        run=st.sampled_from(("", "a", "b", "c")),
        by=st.sampled_from((BY_ROLE, "0123456789ab", "cdef01234567")),
    )
    def report(
        self,
        instance_id: str,
        passed: int,
        boot: str,
        sequence: int,
        present: bool,
        numbers: set[int],
        attempt: int,
        health: GpuHealth | None,
        run: str,
        by: str,
    ) -> None:
        """A report of some boot, in time or late, with ranks of some attempt, by one of two tokens or by none."""
        self.seconds += passed
        at, booted_at = later(self.seconds), BOOTS[boot]
        if booted_at is not None:
            booted_at += timedelta(seconds=sequence)
        seen = ranks(at, *(sorted(numbers) if present else ()), attempt=attempt)
        beat = Heartbeat(
            instance_id,
            at,
            boot,
            booted_at,
            sequence if boot else 0,
            15 if boot else 0,
            seen,
            health=health,
            digest=f"d{sequence}" if health else "",
            utilisation=f"{sequence:02x}" if health is GpuHealth.OK else "",
            run=run if boot else "",
        )
        self.both("save_heartbeat", beat, present, by)

    @rule(instance_id=instance_ids, latest=flags)
    def mark_silent(self, instance_id: str, latest: bool) -> None:
        """Since it was last seen, or since some other time."""
        beat = self.stores[0].load_heartbeats((instance_id,)).get(instance_id)
        self.both("mark_heartbeat_missing", instance_id, beat.seen_at if beat is not None and latest else later(-1))

    @rule(instance_id=instance_ids, number=st.integers(0, 9), attempt=st.integers(1, 4), latest=flags)
    def mark_rank_silent(self, instance_id: str, number: int, attempt: int, latest: bool) -> None:
        """A rank that is remembered, or one that is not."""
        beat, name = self.stores[0].load_heartbeats((instance_id,)).get(instance_id), log(number, attempt=attempt)
        rank = beat.ranks.get(name) if beat is not None else None
        self.both("mark_rank_heartbeat_missing", instance_id, int(name), rank.seen_at if rank and latest else later(-1))

    @rule(instance_id=instance_ids, forgotten=st.sets(st.integers(0, 9), min_size=1, max_size=3), latest=flags)
    def forget_ranks(self, instance_id: str, forgotten: set[int], latest: bool) -> None:
        """Some that are remembered, or not, since they were last seen or since some other time."""
        beat = self.stores[0].load_heartbeats((instance_id,)).get(instance_id)
        known = [(name, rank.seen_at) for name, rank in sorted(beat.ranks.items())] if beat is not None else []
        chosen = dict(known[n] for n in forgotten if n < len(known)) if latest else {log(0): later(-1)}
        if chosen:
            self.both("forget_ranks", instance_id, chosen)

    @rule(instance_id=instance_ids, number=st.integers(1, 3), gone=st.lists(st.integers(1, 3), max_size=2, unique=True))
    def orders(self, instance_id: str, number: int, gone: list[int]) -> None:
        """One is given, others are withdrawn."""
        self.both("add_agent_command", instance_id, order(number))
        self.both("remove_agent_commands", instance_id, tuple(order(one).order_id for one in gone))

    @rule(instance_id=instance_ids, digest=st.sampled_from(("d1", "d2")))
    def inventory(self, instance_id: str, digest: str) -> None:
        """What it says of its GPUs."""
        self.both("save_inventory", instance_id, digest, "{}", later(self.seconds))
        self.both("load_inventory", instance_id)

    @invariant()
    def the_heartbeats_are_the_same(self) -> None:
        """Each field of each."""
        self.both("load_heartbeats", INSTANCES)


class OnMoto(BothStores):
    """The same with the production store on moto."""

    def production_store(self) -> Store:
        self.leaving.enter_context(mock_aws())
        return dynamo_store(CLIENT)


def test_both_stores_keep_the_same_heartbeats() -> None:
    """A few hundred operations, the same every time; in the tier `full` several thousand, others every time."""
    run_state_machine_as_test(BothStores, settings=examples(WEIGHT))


@pytest.mark.slow
def test_the_store_answers_the_same_on_moto() -> None:
    """The double is not alone in what it answers."""
    run_state_machine_as_test(OnMoto, settings=examples(WEIGHT / 2))
