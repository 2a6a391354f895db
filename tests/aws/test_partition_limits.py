"""Partition keys: units a second that the worst second of a large gang, or of a large fleet, asks of each of them.

Units are counted on a sample of instances. Each index spreads them by a number of the record; the fullest partition key
has its share of a gang, or of a fleet, of the size in question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.aws.ecs_events import detail_of, task_fact
from gpu_recovery.aws.instance_index import SHARDS, shard_of
from gpu_recovery.aws.pending_commands import due_shard
from gpu_recovery.aws.queue_store import WAITING, waiting_key
from gpu_recovery.aws.rank_parts import PART_RANKS, parts_in
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import ConfirmEnd, ReportCheck
from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.heartbeat import Heartbeat, RankHeartbeat
from gpu_recovery.core.instance.record import PRESENT, CheckRun, Instance, InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import NNODES_MAX
from gpu_recovery.core.state_machine import HistoryEntry, PendingCommand
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.ecs_events.tasks import task_changed
from gpu_recovery.execution import execute
from gpu_recovery.execution.health_checks import SUMMARIES_BYTES_MAX, SUMMARY_BYTES_MAX
from gpu_recovery.ports.values import StartedCheck
from gpu_recovery.recovery import Recovery

from simulator.dynamodb.capacity_meter import READ_BYTES, PartitionKey
from simulator.dynamodb.double import DynamoDb
from simulator.world import World
from tests.aws.conftest import dynamo_store
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.ecs_events import task_event
from tests.aws.records import JOB, NOW, A, claim, instance, job, later, pending, spec

READS_MAX = 3_000
"""Read units a second of one partition key (DynamoDB Developer Guide, designing partition keys)."""
PLAN_READS_MAX, RESULT_READS_MAX = 128, 280
"""Read units a second of an item of a plan: all ranks of a gang end, or 140 of its checks (docs/deploy.md)."""
GANG_WRITES_MAX, PROGRESS_WRITES_MAX = 800, 900
"""Write units a second that a gang asks of a key of an index, and of an item of its progress (docs/deploy.md).

DynamoDB admits 1,000 for one partition key.
"""
GANG, FLEET, LINE = 3_000, 10_000, 50_000
"""Ranks of the largest gang (`NNODES_MAX`), instances, and waiting jobs."""
SAMPLE = 40
LAUNCHES_PER_S = 140
"""RunTask calls of one second: the burst of 100 and 40 that are added (Service Quotas, ECS)."""
HEARTBEAT_S = 15
HISTORY = tuple(
    HistoryEntry(NOW, "AVAILABLE", "AVAILABLE", "InstanceObserved", 1, f"{n}: the agent reports again after some time")
    for n in range(60)
)
INSTANCE, QUEUED = "i-{:017x}", "sft-20261121-090000-{:04x}"
TASK = "{:032x}"
"""Forms of ids."""
NAMES = tuple(INSTANCE.format(number) for number in range(SAMPLE))
SPREADS: Mapping[str, Callable[[str], object]] = {"listing": shard_of, "due": due_shard, "line": waiting_key}
"""The partition key of a record in each index."""


@pytest.fixture
def counted(metered: DynamoDb) -> DynamoStore:
    """Instances with full histories, as they are after some weeks."""
    store = dynamo_store(DoubleClient(metered))
    for name in NAMES:
        store.save_instance(instance(name, history=HISTORY, boot_id="0b7c1d2e-1111-4222-8333-444455556666"))
    return store


def units(metered: DynamoDb, work: Callable[[], object]) -> Mapping[PartitionKey, float]:
    """The write units that `work` asks of each partition key of an index."""
    assert metered.meter is not None
    metered.meter.clear()
    work()
    return {key: found for key, found in metered.meter.writes.items() if key.index_name}


def hottest(found: Mapping[PartitionKey, float], count: int) -> dict[str, float]:
    """The units of the fullest partition key of each index, for so many instances."""
    total: Counter[str] = Counter()
    for key, number in found.items():
        total[key.index_name] += number  # type: ignore[assignment]
    return {
        name: number / SAMPLE * fullest(SPREADS.get(name, lambda _: "one key"), INSTANCE, count)
        for name, number in total.items()
    }


def fullest(spread: Callable[[str], object], name: str, count: int) -> int:
    """How many of so many records the fullest partition key has. `name`: the form of their names."""
    return max(Counter(spread(name.format(number)) for number in range(count)).values())


def claimed(store: DynamoStore) -> None:
    """A gang gets its instances."""
    for name in NAMES:
        assert store.claim_instance(name, JOB, claim(), 0)


def observed(store: DynamoStore) -> None:
    """ECS tells of each instance that its tasks have changed."""
    for name in NAMES:
        record = store.load_instance(name)
        assert record is not None
        store.save_instance(replace(record, ecs_version=record.ecs_version + 1, gpus_free=8))


def released(store: DynamoStore) -> None:
    """The end of each rank is confirmed."""
    for name in NAMES:
        store.release_instance(name, JOB, False, 1)


def check_begun(store: DynamoStore) -> None:
    """Each instance is to be checked, and its check starts."""
    for name in NAMES:
        record = store.load_instance(name)
        assert record is not None
        check = CheckRun(f"check/{name}/1", JOB, 1)
        saved = store.save_instance(
            replace(
                record,
                status=InstanceStatus.CHECKING,
                check=check,
                commands=(pending(name, 1),),
                deadline_at=later(900),
            )
        )
        store.remove_finished_instance_commands(saved, (f"{name}/1/1",), {}, StartedCheck(check.check_id, "task"))


def test_a_gang_that_is_launched_and_checked_is_slower_than_any_partition_key(
    counted: DynamoStore, metered: DynamoDb
) -> None:
    """ECS starts 140 ranks or checks in a second at most; each is a claim or a check, and an event of its instance."""
    for work in (claimed, observed, check_begun):
        found = hottest(units(metered, lambda work=work: work(counted)), LAUNCHES_PER_S)  # type: ignore[misc]
        assert found and max(found.values()) <= GANG_WRITES_MAX, (work.__name__, found)


def test_a_gang_of_3000_may_end_within_one_second(counted: DynamoStore, metered: DynamoDb) -> None:
    """No limit of ECS slows that down: each instance has an event, and an entry of the listing that changes."""
    claimed(counted)
    for work in (observed, released):  # one function releases the instances, one after the other
        found = hottest(units(metered, lambda work=work: work(counted)), GANG)  # type: ignore[misc]
        assert set(found) == {"listing"} and found["listing"] <= GANG_WRITES_MAX, (work.__name__, found)


def test_a_healthy_instance_is_one_write_unit_of_the_listing(counted: DynamoStore, metered: DynamoDb) -> None:
    """Whatever its history. An entry over a kilobyte would be two, and the shards would have to be twice as many."""
    claimed(counted)
    found = units(metered, lambda: observed(counted))
    assert sum(number for key, number in found.items() if key.index_name == "listing") == SAMPLE


def test_heartbeats_of_ten_thousand_instances_touch_no_index(counted: DynamoStore, metered: DynamoDb) -> None:
    """667 a second, each of an item of its own. A partition key of the table takes four writes a minute."""
    beats = [Heartbeat(name, NOW, "boot", NOW, 1, 15, {"77": RankHeartbeat(JOB, 1, 0, NOW, 4)}) for name in NAMES]
    for beat in beats:
        counted.save_heartbeat(beat, present=True)
    assert metered.meter is not None
    metered.meter.clear()
    for beat in beats:
        counted.save_heartbeat(replace(beat, sequence=2, seen_at=NOW + timedelta(seconds=HEARTBEAT_S)), present=True)
    assert not [key for key in metered.meter.writes if key.index_name]
    assert len(metered.meter.writes) == SAMPLE and max(metered.meter.writes.values()) <= 2


def test_a_list_of_ten_thousand_instances_may_be_read_ten_times_in_a_second(
    counted: DynamoStore, metered: DynamoDb
) -> None:
    """The scheduler, the reconciler and the pages of eight users."""
    claimed(counted)
    assert metered.meter is not None
    metered.meter.clear()
    assert len(counted.instances_in(PRESENT)) == SAMPLE
    each = metered.meter.bytes_read / SAMPLE / READ_BYTES / 2
    assert len(metered.meter.reads) == SHARDS
    assert each * fullest(shard_of, INSTANCE, FLEET) * 10 <= READS_MAX, each


def test_the_queue_of_fifty_thousand_jobs_may_be_read_thrice_in_a_second(
    counted: DynamoStore, metered: DynamoDb
) -> None:
    """By the scheduler, the reconciler and the API. Queued jobs are spread, and a submission is one unit of a key."""
    waits = {"status": JobStatus.PENDING_RESOURCES, "short_of": "turn", "deadline_at": later(600)}

    def submit() -> None:
        for number in range(SAMPLE):
            counted.create_job(job(QUEUED.format(number), **waits), "")

    written = units(metered, submit)
    line = {key.value: number for key, number in written.items() if key.index_name == "line"}
    assert len(line) == len(WAITING) and sum(line.values()) == SAMPLE
    assert metered.meter is not None
    metered.meter.clear()
    assert len(counted.load_waiting()) == SAMPLE
    each = metered.meter.bytes_read / SAMPLE / READ_BYTES / 2
    assert each * fullest(waiting_key, QUEUED, LINE) * 3 <= READS_MAX, each


def test_due_records_are_spread_so_that_a_gang_may_become_due_in_one_second(
    counted: DynamoStore, metered: DynamoDb
) -> None:
    """The index `due` has keys only: an entry that comes, or goes, is one unit."""

    def fall_due() -> None:
        for name in NAMES:
            record = counted.load_instance(name)
            assert record is not None
            counted.save_instance(replace(record, deadline_at=later(60)))

    found = hottest(units(metered, fall_due), GANG)
    assert set(found) == {"due", "listing"} and max(found.values()) <= GANG_WRITES_MAX, found


def test_the_meter_counts_as_dynamodb_bills(metered: DynamoDb, counted: DynamoStore) -> None:
    """An entry with another key is deleted and put, an unchanged entry costs nothing, and a read is of whole items."""
    meter = metered.meter
    assert meter is not None
    record = counted.save_instance(instance(A, deadline_at=later(60)))
    found = units(metered, lambda: counted.save_instance(replace(record, deadline_at=later(120))))
    assert {key.index_name: number for key, number in found.items()} == {"due": 2, "listing": 1}
    latest = counted.load_instance(A)
    assert latest is not None
    found = units(metered, lambda: counted.save_instance(replace(latest, checks=7)))
    assert found == {}
    meter.clear()
    counted.load_instance(NAMES[0])
    assert sum(meter.reads.values()) == -(-meter.bytes_read // 4_096) > 1


FACTS: Mapping[str, Callable[[DynamoStore, int, str], object]] = {
    "run": lambda store, rank, _: store.add_running(JOB, 1, rank),
    "fail": lambda store, rank, text: store.add_stopped(
        JOB, 1, rank, RankFailure(rank, INSTANCE.format(rank), NOW, Ending(EndingKind.CRASHED, 139, text))
    ),
    "checked": lambda store, rank, text: store.add_checked(
        JOB, 1, rank, Checked(CheckOutcome.INCONCLUSIVE, text, True)
    ),
}
"""The facts of a rank. Each comes within one second for all ranks of a gang, with a text of the greatest length."""


@pytest.mark.parametrize(
    "nnodes",
    [
        PART_RANKS,
        4 * PART_RANKS,
        pytest.param(16 * PART_RANKS, marks=pytest.mark.full),
        pytest.param(NNODES_MAX, marks=pytest.mark.full),
    ],
)
def test_all_ranks_of_a_gang_may_start_fail_and_be_checked_within_a_second(nnodes: int, metered: DynamoDb) -> None:
    """The facts of 64 ranks share an item. The head has a few further writes for each part, and one call reads all."""
    client = CountedCalls(DoubleClient(metered))
    store = dynamo_store(client)
    store.begin_attempt(Plan(JOB, 1, tuple(map(INSTANCE.format, range(nnodes))), (0,) * nnodes, 0, ("",) * nnodes))
    assert metered.meter is not None
    text, parts = "x" * min(SUMMARY_BYTES_MAX, SUMMARIES_BYTES_MAX // nnodes), parts_in(nnodes)
    for name, add in FACTS.items():
        metered.meter.clear()
        client.calls.clear()
        answers = [add(store, rank, text) for rank in range(nnodes)]
        assert all(answers) and len(metered.meter.writes) == parts
        assert max(metered.meter.writes.values()) <= PROGRESS_WRITES_MAX, (name, metered.meter.writes.most_common(3))
        assert client.calls["update_item"] <= nnodes + 2 * parts
        assert client.calls["batch_get_item"] == (parts > 1) and len(client.calls) <= 2


def test_ranks_that_a_user_started_ask_for_their_attempt_at_different_keys(metered: DynamoDb) -> None:
    """Each event of a rank asks whether its attempt was begun: 3,000 within a second, of 47 keys."""
    store = dynamo_store(DoubleClient(metered))
    assert metered.meter is not None
    store.begin_attempt(Plan(JOB, 1, ("",) * NNODES_MAX, task_ids=("",) * NNODES_MAX))
    metered.meter.clear()
    assert all(store.has_progress(JOB, 1, rank) for rank in range(NNODES_MAX))
    assert max(metered.meter.reads.values()) <= PART_RANKS


def gang(metered: DynamoDb, nnodes: int) -> Recovery:
    """The loop over the counted tables, which hold a running gang of so many ranks."""
    store = dynamo_store(DoubleClient(metered))
    instances, task_ids = tuple(map(INSTANCE.format, range(nnodes))), tuple(map(TASK.format, range(nnodes)))
    store.create_job(job(spec=spec(nnodes=nnodes), status=JobStatus.RUNNING, attempt=1, instances=instances), "")
    store.begin_attempt(Plan(JOB, 1, instances, (0,) * nnodes, 0, task_ids, signed=True))
    assert metered.meter is not None
    metered.meter.clear()
    return replace(World(instances=1).recovery, store=store)


def of_plans(metered: DynamoDb) -> dict[str, float]:
    """The units that were read of each item of a plan."""
    assert metered.meter is not None
    return {str(key.value): number for key, number in metered.meter.reads.items() if "#plan" in str(key.value)}


@pytest.mark.parametrize(
    ("nnodes", "exit_code", "status"),
    [
        (4 * PART_RANKS, 0, JobStatus.SUCCEEDED),
        (4 * PART_RANKS, 139, JobStatus.DIAGNOSING),
        pytest.param(NNODES_MAX, 139, JobStatus.DIAGNOSING, marks=pytest.mark.full),
    ],
)
def test_all_ranks_of_a_gang_may_end_within_a_second(
    nnodes: int, exit_code: int, status: JobStatus, metered: DynamoDb
) -> None:
    """Each event of a rank reads the recorded task of this rank. 64 ranks share a key, whatever their gang has."""
    recovery = gang(metered, nnodes)
    for rank in range(nnodes):
        event = task_event(TASK.format(rank), f"{JOB}--a01", "STOPPED", {"RANK": str(rank)}, exit_code=exit_code)
        task_changed(recovery, task_fact(detail_of(event), NOW))
    assert metered.meter is not None
    found = metered.meter.reads
    assert max(of_plans(metered).values()) <= PLAN_READS_MAX, found.most_common(3)
    assert max(found.values()) <= READS_MAX, found.most_common(3)
    record = recovery.store.load_job(JOB)
    assert record is not None and record.status is status


@pytest.mark.parametrize(
    "order",
    [
        ReportCheck(JOB, 1, CheckOutcome.HEALTHY, "", False),
        ConfirmEnd(JOB, 1, "its instance was booted after the launch"),
    ],
    ids=["checked", "rebooted"],
)
def test_the_results_of_140_instances_a_second_may_be_recorded(order: object, metered: DynamoDb) -> None:
    """Each result looks for its instance in the plan of 3,000 ranks. No key has all of them."""
    recovery = gang(metered, GANG)
    for name in NAMES:
        execute(recovery._context(), Instance(name, NOW), PendingCommand(f"{name}/1/1", order, NOW))
    assert metered.meter is not None
    busiest = metered.meter.reads.most_common(3)
    assert busiest[0][1] / SAMPLE * LAUNCHES_PER_S <= RESULT_READS_MAX, busiest


class CountedCalls:
    """A client of DynamoDB that counts its calls."""

    def __init__(self, client: object) -> None:
        self.client, self.calls = client, Counter[str]()

    def __getattr__(self, name: str) -> object:
        self.calls[name] += 1
        return getattr(self.client, name)
