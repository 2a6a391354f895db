"""Jobs are healed as without a web console, whatever happens to the writes for the console.

Each seed runs once without a console and then with a broken or slow console, under the same faults of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

import pytest
from gpu_recovery.aws.clients import ONE_SHORT_TRY
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.node_api.gauge_recorder import GaugeRecorder
from gpu_recovery.ports.console_snapshots import BEGIN_WITHIN, SnapshotWriter
from gpu_recovery.reconciler import reconcile
from gpu_recovery.reconciler.reconcile import SNAPSHOT_S

from simulator.cloud.agents import NODE_API
from simulator.cloud.rate_limits import Costs
from simulator.console import GAUGE_S, RECORDER, SAVE_S, SNAPSHOTS_S, ConsoleDown, ConsoleFault, ConsoleSide
from simulator.lambda_runtime import RECONCILER, SCHEDULER
from simulator.trials.generator import in_passing, scenario_of
from simulator.trials.trial import Played, play
from tests.tiers import seeds

FREE = Costs(throttled=False)
"""Nothing but the console takes time, so every delay is a delay by the console."""
WRITERS = {RECONCILER, SCHEDULER, RECORDER}
SEEDS = seeds(400, fast=1, default=2)


def played(
    seed: int, fault: ConsoleFault, costs: Costs | None = None, *, is_calm: bool = False
) -> tuple[Played, ConsoleSide]:
    """The run of a seed with this fault of the console, and the console.

    Args:
        seed: what the cluster, the jobs and all faults are drawn from.
        fault: what is wrong with the console.
        costs: what calls take.
        is_calm: whether the transient faults are left out. They are drawn anew for each effect in its order.
    """
    consoles: list[ConsoleSide] = []
    source = None if is_calm else in_passing(seed)
    run = play(
        scenario_of(seed), source, costs=costs, begun=lambda world: consoles.append(ConsoleSide(world, fault, seed))
    )
    return run, consoles[0]


@lru_cache(maxsize=4)
def undisturbed(seed: int, costs: Costs | None = None, *, is_calm: bool = False) -> Played:
    """The run of a seed without a console."""
    run, console = played(seed, ConsoleFault.ABSENT, costs, is_calm=is_calm)
    assert not console.written + console.failures
    return run


def course(run: Played) -> Mapping[str, list[Any]]:
    """Everything that the product decided and did, with its times."""
    world = run.world
    return {
        "transcript": world.transcript.text().splitlines(),
        "effects": [(step.invocation, step.name) for step in world.invocations.done],
        "messages": [(at, message.subject, message.body) for at, message in world.actions.notified],
        "events": [(event.detail_type, event.data) for event in world.actions.published],
        "decided by": world.actions.causes,
        "failures": [(name, repr(failure)) for name, failure in world.failures],
        "violations": run.violations,
    }


def differences(expected: Played, run: Played) -> list[str]:
    """What differs between two runs."""
    one, other = course(expected), course(run)
    return [name for name in one if one[name] != other[name]]


def decisions(run: Played) -> dict[str, list[tuple[str, str, str, datetime]]]:
    """The changes of status of each record in their order, with their reasons and their times."""
    found: dict[str, list[tuple[str, str, str, datetime]]] = {}
    for event, cause in zip(run.world.actions.published, run.world.actions.causes, strict=True):
        record, _, version = cause.rpartition("/")
        what = f"{event.detail_type} {event.data.get('before')} -> {event.data.get('after')}"
        at = datetime.fromisoformat(str(event.data["at"]))
        found.setdefault(record, []).append((version.zfill(10), what, str(event.data.get("reason")), at))
    return {record: sorted(moves) for record, moves in found.items()}


def delays(expected: Played, run: Played) -> Iterator[float]:
    """By how many seconds each decision came later. Fails if the decisions are not the same."""
    one, other = decisions(expected), decisions(run)
    assert {name: [move[:3] for move in moves] for name, moves in one.items()} == {
        name: [move[:3] for move in moves] for name, moves in other.items()
    }
    for name, moves in one.items():
        for before, after in zip(moves, other[name], strict=True):
            yield abs((after[3] - before[3]).total_seconds())


@pytest.mark.parametrize("fault", [ConsoleFault.NONE, ConsoleFault.RAISES, ConsoleFault.DEAD])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_decision_is_the_same_at_the_same_time(seed: int, fault: ConsoleFault) -> None:
    """With writes that succeed, that raise now and then, and that raise for hours."""
    without = undisturbed(seed)
    run, console = played(seed, fault)
    assert differences(without, run) == []
    if fault is ConsoleFault.RAISES:
        assert console.failures[RECONCILER] and console.written[RECONCILER]  # the other writers may have been lucky
        return
    kept = console.written if fault is ConsoleFault.NONE else console.failures
    assert kept.keys() >= WRITERS and (NODE_API in kept) == (run.world.agents is not None)


@pytest.mark.parametrize("fault", [ConsoleFault.HANGS, ConsoleFault.SLOW])
@pytest.mark.parametrize("seed", SEEDS)
def test_slow_writes_delay_a_round_by_their_limit_at_most(seed: int, fault: ConsoleFault) -> None:
    """Each decision is the same. Only a message that comes during a write waits for the scheduler."""
    without = undisturbed(seed, FREE, is_calm=True)
    run, console = played(seed, fault, FREE, is_calm=True)
    assert max(delays(without, run), default=0.0) <= SNAPSHOTS_S
    assert course(run)["violations"] == course(without)["violations"] == []
    assert {RECONCILER, SCHEDULER} <= console.spent_s.keys() <= {RECONCILER, SCHEDULER, NODE_API}
    assert min(console.spent_s.values()) > 0 and max(console.spent_s.values()) <= SNAPSHOTS_S


@pytest.mark.parametrize("seed", seeds(400, fast=0, default=1))
def test_slow_writes_break_nothing_under_any_fault(seed: int) -> None:
    """With transient faults, which strike other effects after a delay."""
    run, console = played(seed, ConsoleFault.HANGS, FREE)
    assert run.violations == []
    assert max(console.spent_s.values()) <= SNAPSHOTS_S


def test_the_limits_are_those_of_the_clients() -> None:
    """The time that a write takes at most, and the time after which a run begins no further write."""
    config: Any = ONE_SHORT_TRY
    assert config.connect_timeout + config.read_timeout == SAVE_S == GAUGE_S
    assert config.retries["total_max_attempts"] == 1
    assert BEGIN_WITHIN.total_seconds() + SAVE_S <= SNAPSHOTS_S < SNAPSHOT_S


# -- planted -----------------------------------------------------------------------------------------------------------


def snapshot_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write of a snapshot fails the round."""

    def write(
        writer: Any, documents: Mapping[SnapshotName, Callable[[], Any]], as_of: datetime | None = None
    ) -> frozenset[SnapshotName]:
        for name, document in documents.items():
            writer._write(name, document(), writer._clock(), writer._clock())
        return frozenset()

    monkeypatch.setattr(SnapshotWriter, "write", write)


def round_is_left_out_without_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reconciler takes the fleet from the snapshot of the last round, and waits for it."""
    real = reconcile.reconcile

    def instead(recovery: Any, resyncs: Any, seconds_left: Any, snapshots: Any) -> None:
        if snapshots is None or snapshots._snapshots.load(SnapshotName.MAP) is not None:
            real(recovery, resyncs, seconds_left, snapshots)

    monkeypatch.setattr("simulator.world.reconcile", instead)


def gauge_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write of a gauge fails the heartbeat."""

    def record(recorder: GaugeRecorder, instance_id: str, inventory: Any, at: datetime) -> None:
        recorder.history.write(instance_id, at, "")

    monkeypatch.setattr(GaugeRecorder, "record", record)


def snapshot_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write is repeated within the round."""
    real = SnapshotWriter.write

    def write(writer: SnapshotWriter, documents: Any, as_of: datetime | None = None) -> frozenset[SnapshotName]:
        for _ in range(2):
            real(writer, documents, as_of)
        return real(writer, documents, as_of)

    monkeypatch.setattr(SnapshotWriter, "write", write)


@pytest.mark.parametrize("seed", [0])
@pytest.mark.parametrize("bug", [snapshot_error_is_raised, round_is_left_out_without_a_snapshot, gauge_error_is_raised])
def test_a_console_that_changes_a_decision_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one seed."""
    without = undisturbed(seed)
    bug(monkeypatch)
    try:
        found = differences(without, played(seed, ConsoleFault.DEAD)[0])
    except ConsoleDown as raised:  # the error reaches the agent, which knows no such answer
        found = [repr(raised)]
    assert found


def test_a_write_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three tries of 1.5 s are more than a round may spend."""
    snapshot_is_tried_again(monkeypatch)
    _, console = played(1, ConsoleFault.HANGS, FREE, is_calm=True)
    assert max(console.spent_s[RECONCILER], console.spent_s[SCHEDULER]) > SNAPSHOTS_S
