"""The simulated cluster under the production code, with every call of AWS counted, and DynamoDB's units."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Any

import pytest
from gpu_recovery.aws.console_snapshots import S3ConsoleSnapshots
from gpu_recovery.aws.ecs_events import detail_of, instance_fact, task_fact
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.ecs_events import tasks
from gpu_recovery.ports.console_snapshots import SnapshotWriter
from gpu_recovery.scheduler.console_snapshot import QueueSnapshots

from simulator.dynamodb.attribute_values import size_of
from simulator.dynamodb.table import projected
from simulator.faults.delivery import Delivery, prompt
from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.platform.cloud import Answer, Carry, Request, nobody_sleeps
from tests.platform.platform_world import PlatformWorld

SERVICES = {"ecs": "ECS", "ec2": "EC2", "sqs": "SQS", "eventbridge": "bus", "sns": "SNS", "s3": "S3"}
READS = ("GetItem", "BatchGetItem", "Query")
KIB = 1024
READ_BYTES, WRITE_BYTES = 4 * KIB, KIB
"""What one unit of DynamoDB on demand reads, strongly consistent, or writes."""


@dataclass
class Counting:
    """Stands between the product and AWS, and counts: requests by service, and DynamoDB's units."""

    world: PlatformWorld | None = None
    counted: Counter[str] = field(default_factory=Counter)

    def meets(self, request: Request, carry_out: Carry) -> Answer:
        """As a fault of the platform's tests, but harmless."""
        answer = carry_out()
        if request.service != "dynamodb":
            self.counted[SERVICES[request.service]] += 1
        elif request.operation in READS:
            self.counted["reads"] += 1
            self.counted["read units"] += _read_units(request, answer)
        else:
            self.counted["writes"] += 1
            self.counted["write units"] += sum(self._write_units(request))
        return answer

    def write(self, instance_id: str, at: datetime, text: str) -> None:
        """A sample of the GPU history, whose table this world lacks: its text, and 100 bytes of keys and names."""
        self.counted.update({"writes": 1, "write units": ceil((len(text) + 100) / WRITE_BYTES)})

    def _write_units(self, request: Request) -> Iterator[int]:
        if request.operation == "TransactWriteItems":
            for action in request.asked["TransactItems"]:
                yield 2 * self._units_of(next(iter(action.values())))
        else:
            yield self._units_of(request.asked)

    def _units_of(self, asked: dict[str, Any]) -> int:
        """Of the item as it is afterwards; a refused write costs one unit at least."""
        assert self.world is not None
        key = next(iter(_key(asked).values()))["S"]
        item = self.world.cloud.dynamodb.tables[asked["TableName"]].items.get(key)
        if item is None:
            return 1
        table = self.world.cloud.dynamodb.tables[asked["TableName"]]
        entries = [
            projected(item, index) for index in table.indexes.values() if index.partition in item and index.sort in item
        ]
        return sum(ceil(size_of(written) / WRITE_BYTES) for written in (item, *entries))


def _raise(name: SnapshotName, failure: Exception) -> None:
    """Fail the count: a snapshot that is not written costs nothing."""
    raise failure


def _key(asked: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = asked.get("Key") or asked["Item"]
    return {name: given[name] for name in ("job_id_rank", "container_inst_id") if name in given}


def _read_units(request: Request, answer: Answer) -> float:
    """Half as much where the read may lag, as every index's does."""
    found = answer.json
    if request.operation == "BatchGetItem":
        asked = request.asked["RequestItems"]
        return sum(
            ceil(len(json.dumps(one)) / READ_BYTES) * (1.0 if asked[table].get("ConsistentRead") else 0.5)
            for table, items in found["Responses"].items()
            for one in items
        )
    share = 1.0 if request.asked.get("ConsistentRead") else 0.5
    items = found.get("Items", [found.get("Item", {})])
    return share * max(1, ceil(sum(len(json.dumps(one)) for one in items) / READ_BYTES))


class CountingWorld(PlatformWorld):
    """The simulated cluster under the production code, with every call of AWS and every invocation counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
        self.counting = Counting()
        super().__init__(monkeypatch, self.counting, **given)
        self.counting.world = self
        stored = S3ConsoleSnapshots(FUNCTION["VERDICT_BUCKET"])
        self.snapshots = SnapshotWriter(stored, self.timeline.clock, _raise)
        self.queue_snapshots = QueueSnapshots(SnapshotWriter(stored, self.timeline.clock, _raise))

    def invoke(self, name: str, work: Callable[[], object], tried: int = 0) -> None:
        """As the world's."""
        if hasattr(self, "counting"):
            self.counting.counted["Lambda"] += 1
        super().invoke(name, work, tried)

    def spent(self, work: Callable[[], object]) -> Counter[str]:
        """What `work` costs."""
        before = self.counting.counted.copy()
        work()
        after = self.counting.counted.copy()
        after.subtract(before)
        return after

    def told(self, event: dict[str, Any]) -> Callable[[], None]:
        """One task event, to the function that it wakes."""
        return lambda: self.invoke(
            "ecs_task_handler",
            lambda: tasks.task_changed(self.recovery, task_fact(detail_of(event), self.timeline.now)),
        )

    def instance_told(self, event: dict[str, Any]) -> Callable[[], None]:
        """One container-instance event."""
        fact = instance_fact(detail_of(event), self.timeline.now)
        return lambda: self.invoke("ecs_instance_monitor", lambda: self.recovery.handle(*fact))


@contextmanager
def counting_world(delivery: Delivery = prompt, **given: Any) -> Iterator[CountingWorld]:
    """A world whose calls are counted from the first minute on."""
    with pytest.MonkeyPatch.context() as patch, nobody_sleeps():
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield CountingWorld(patch, delivery=delivery, **given)
