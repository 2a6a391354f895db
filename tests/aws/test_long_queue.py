"""A long line of jobs: what a tick of the scheduler costs, counted where botocore makes the calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.queue_store import queue_keys
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.scheduler.schedule import PASS_INTERVAL_MAX, schedule

from tests.aws.cost_page import PAGE
from tests.aws.records import NOW, A, instance, job, spec
from tests.aws.test_cost import World, counted_world

ON_THE_PAGE = 10_000
"""Jobs in line of which docs/costs.md speaks."""
SAID = re.compile(
    r"(\d+) calls with 10,000 queued jobs, (\d+) of them pages and statuses of queries and (\d+) of them writes"
)
"""What the page says of a complete pass. Only the pages of queries depend on the length of the line."""
AT_ONCE = 25
"""BatchWriteItem takes no more."""


def in_line(count: int) -> Iterator[dict[str, Any]]:
    """The items of so many jobs that know what they wait for, as far as a pass of the scheduler reads them."""
    for number in range(count):
        asked = spec(user=f"user-{number % 50}", nnodes=2)
        known = {"status": JobStatus.PENDING_RESOURCES, "short_of": "gpus" if number == 0 else "turn"}
        record = job(f"sft-{number:05}", spec=asked, queued_at=NOW + timedelta(seconds=number), **known)
        yield {"job_id_rank": record.job_id, **queue_keys(record)}


def write(client: Any, table: str, items: Sequence[dict[str, Any]]) -> None:
    """All of the items, as many at once as DynamoDB takes."""
    for first in range(0, len(items), AT_ONCE):
        puts = [{"PutRequest": {"Item": typed(item)}} for item in items[first : first + AT_ONCE]]
        assert not client.batch_write_item(RequestItems={table: puts})["UnprocessedItems"]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, waiting: int) -> Iterator[World]:
    """So many jobs of two instances each wait for the only one there is."""
    with counted_world(monkeypatch) as made:
        write(made.store.jobs.client, made.store.jobs.name, list(in_line(waiting)))
        for number in range(2):
            made.store.save_instance(instance(f"{A[:-1]}{number}", gpus_free=8 - 8 * number))
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [1_000, pytest.param(ON_THE_PAGE, marks=pytest.mark.full)])
def test_an_idle_tick_costs_one_read_however_many_are_in_line(world: World, waiting: int) -> None:
    """The pass that looks at everything each five minutes costs what docs/costs.md says."""
    tick = ("#tick/1",)
    schedule(world.recovery, tick)
    assert world.store.load_last_pass().waiting == waiting
    world.aws.forget()
    world.now += timedelta(seconds=60)
    assert schedule(world.recovery, tick) == 0
    assert world.aws.operations() == {"GetItem": 1}
    world.aws.forget()
    world.now += PASS_INTERVAL_MAX
    assert schedule(world.recovery, tick) == 0
    calls = world.aws.operations()
    assert set(calls) == {"GetItem", "Query", "BatchGetItem", "UpdateItem"}
    total, pages, writes = SAID.search(" ".join(PAGE.read_text(encoding="utf-8").split())).groups()  # type: ignore[union-attr]
    assert calls.total() - calls["Query"] == int(total) - int(pages), calls
    assert calls["UpdateItem"] == int(writes)
    assert calls["Query"] <= int(pages)
    assert waiting < ON_THE_PAGE or calls["Query"] == int(pages)
