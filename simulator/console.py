"""The web console's side of a world: what the product writes for people to look at, and the faults of those writes.

Three writers run beside the recovery loop: the reconciler and the scheduler write console snapshots, the node API
writes gauges of GPUs, and the event recorder writes the event history. No decision may depend on them. Each of their
writes can fail here, at once or after its declared time limit, without any effect that the nemesis of the world sees.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gpu_recovery.aws.notification_requests import event_entry
from gpu_recovery.core.commands import PublishEvent
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.event_recorder.recorder import record
from gpu_recovery.node_api.gauge_recorder import GaugeRecorder
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.ports.errors import Unavailable
from gpu_recovery.scheduler.console_snapshot import QueueSnapshots

from simulator.cloud.agents import NODE_API
from simulator.lambda_runtime import RECONCILER, RETRIES_S, SCHEDULER
from simulator.memory_store.console_snapshots import MemorySnapshots
from simulator.memory_store.event_history import MemoryEventHistory

if TYPE_CHECKING:
    from simulator.world import World

SAVE_S = GAUGE_S = 1.5
"""Seconds after which a put of a snapshot and a write of a gauge give up: `ONE_SHORT_TRY` in `aws/clients.py`."""
SNAPSHOTS_S = 2.0
"""Declared limit of the seconds that one run of the reconciler or the scheduler spends on snapshots."""
DELIVERED_S = 1.0
"""Seconds from an event on the bus to the invocation of the event recorder."""
DEAD_FOR = timedelta(hours=6)
"""How long everything of the console is dead in `ConsoleFault.DEAD`."""
RECORDER = "event_recorder"
Sent = tuple[str, dict[str, Any]]
"""Detail type and detail of an event on the bus."""


class ConsoleFault(StrEnum):
    """What is wrong with the writes for the console."""

    ABSENT = "absent"  # there is no console, and nothing is written
    NONE = "none"
    RAISES = "raises"  # half of the writes raise
    DEAD = "dead"  # every write raises for hours
    HANGS = "hangs"  # every write takes its time limit, and raises
    SLOW = "slow"  # every write takes its time limit, and succeeds


class ConsoleDown(Unavailable):
    """A write for the console failed."""


class ConsoleSide:
    """The writers of one world, and what they have written.

    Args:
        world: the world. Its agents, if there are any, send the gauges of their GPUs from now on.
        fault: what is wrong with the writes.
        seed: what `ConsoleFault.RAISES` is drawn from.

    Attributes:
        written: number of writes that succeeded, by writer.
        failures: number of writes that failed, by writer.
        spent_s: longest time that one invocation spent on writes for the console, by writer.
        undelivered: events that the recorder recorded at no try, as the queue of failed events holds them.
    """

    def __init__(self, world: World, fault: ConsoleFault = ConsoleFault.NONE, seed: int = 0) -> None:
        self.world, self.fault = world, fault
        self.snapshots, self.history = MemorySnapshots(), MemoryEventHistory()
        self.gauges: dict[tuple[str, datetime], str] = {}
        self.written, self.failures = Counter[str](), Counter[str]()
        self.spent_s: dict[str, float] = {}
        self.undelivered: list[Sent] = []
        self._dead_until = world.timeline.now + DEAD_FOR
        self._random = random.Random(f"console {seed}")
        is_there = fault is not ConsoleFault.ABSENT
        if is_there:
            world.snapshots, world.queue_snapshots = _Writer(self, RECONCILER), QueueSnapshots(_Writer(self, SCHEDULER))
            world.actions.on_event = self._published
        if world.agents is not None:
            world.agents.sends_gauges = True
            loop = replace(world.node_recovery, has_time=lambda: True)
            recorder = GaugeRecorder(_Gauges(self), lambda failure: None)
            world.agents.receiver = HeartbeatReceiver(loop, gauges=recorder if is_there else None)

    def clock(self) -> datetime:
        """Return the time in the invocation under way: the virtual time, and what the invocation has spent."""
        timeline = self.world.timeline
        return timeline.now + timedelta(seconds=timeline.lag)

    def spend(self, writer: str, since: datetime) -> None:
        """Note what an invocation has spent on writes since the time `since`."""
        self.spent_s[writer] = max(self.spent_s.get(writer, 0.0), (self.clock() - since).total_seconds())

    def attempt(self, writer: str, limit_s: float, write: Callable[[], object]) -> None:
        """Make a write of `writer`, which gives up after `limit_s`, with the fault of this console.

        Raises:
            ConsoleDown: the write failed.
        """
        fault, meter = self.fault, self.world.invocations.meter
        if fault in (ConsoleFault.HANGS, ConsoleFault.SLOW) and meter is not None:
            meter.wait(limit_s)
        is_dead = fault is ConsoleFault.DEAD and self.world.timeline.now < self._dead_until
        raises = fault is ConsoleFault.RAISES and self._random.random() < 0.5
        if is_dead or raises or fault is ConsoleFault.HANGS:
            self.failures[writer] += 1
            raise ConsoleDown(f"{writer} cannot write")
        write()
        self.written[writer] += 1

    # -- the event recorder --------------------------------------------------------------------------------------------

    def _published(self, event: PublishEvent, cause: str) -> None:
        entry = event_entry(event, cause, "gpu-recovery")
        sent = entry["DetailType"], json.loads(entry["Detail"])
        self.world.timeline.after(DELIVERED_S, self._record, sent, utc_text(self.world.timeline.now), 0)

    def _record(self, sent: Sent, sent_at: str, tried: int) -> None:
        """Run the event recorder. Lambda retries it, and then moves the event to the queue of failed events."""
        try:
            self.attempt(RECORDER, 0.0, lambda: self._recorded(sent, sent_at))
        except ConsoleDown:
            if tried < len(RETRIES_S):
                self.world.timeline.after(RETRIES_S[tried], self._record, sent, sent_at, tried + 1)
            else:
                self.undelivered.append(sent)

    def _recorded(self, sent: Sent, sent_at: str) -> None:
        record(self.history, *sent, sent_at)


class _Writer(SnapshotWriter):
    """The writer of console snapshots of one function."""

    def __init__(self, console: ConsoleSide, name: str) -> None:
        self._console, self._name = console, name
        super().__init__(_Snapshots(console, name), console.clock, lambda snapshot, failure: None)

    def write(
        self, documents: Mapping[SnapshotName, Callable[[], Mapping[str, Any]]], as_of: datetime | None = None
    ) -> frozenset[SnapshotName]:
        """Write the documents, and note the time that it took."""
        began = self._console.clock()
        failed = super().write(documents, as_of)
        self._console.spend(self._name, began)
        return failed


class _Snapshots:
    """Console snapshots in memory, as the function `name` reaches them with the console's fault."""

    def __init__(self, console: ConsoleSide, name: str) -> None:
        self._console, self._name = console, name

    def save(self, name: SnapshotName, text: str) -> None:
        """Save the document under the name."""
        self._console.attempt(self._name, SAVE_S, lambda: self._console.snapshots.save(name, text))

    def load(self, name: SnapshotName) -> Mapping[str, Any] | None:
        """Return the document that was saved last under the name; None if there is none."""
        return self._console.snapshots.load(name)


class _Gauges:
    """The GPU history in memory, if the console's fault allows it."""

    def __init__(self, console: ConsoleSide) -> None:
        self._console = console

    def write(self, instance_id: str, at: datetime, text: str) -> None:
        """Write one sample."""
        console, began = self._console, self._console.clock()
        try:
            console.attempt(NODE_API, GAUGE_S, lambda: console.gauges.update({(instance_id, at): text}))
        finally:
            console.spend(NODE_API, began)
