"""Lists of the fleet: what they hold, page by page, and how an upgraded table comes to have its index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.instance_index import (
    ADDED_MAX,
    COMPARED_EACH,
    IN_PLACE,
    LISTED,
    LISTING,
    MARK,
    OLD_RELEASE,
    PROJECTED,
    SHARDS,
    ListingIncomplete,
)
from gpu_recovery.aws.item_codec import SCHEMA
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.health_signals import DepartureKind, HealthKind, HealthStatus
from gpu_recovery.core.instance.record import (
    PRESENT,
    CheckRefusal,
    CheckRun,
    HealthReport,
    Instance,
    InstanceStatus,
    Interruption,
    ListedInstance,
    Reboot,
    RepairHold,
    RepairLevel,
    RepairNeed,
)
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import RefusedCheck, StartedCheck

from simulator.dynamodb.double import DynamoDb
from tests.aws.deployed_tables import LISTING as DEPLOYED
from tests.aws.deployed_tables import create_tables
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.records import JOB, NOW, A, B, claim, instance, later, pending

ENTRY = HistoryEntry(NOW, "AVAILABLE", "CHECKING", "CheckRequested", 1, "x" * 200)
SICK = instance(
    status=InstanceStatus.QUARANTINED,
    reason="no one repairs it now",
    ecs_status="DRAINING",
    agent_connected=False,
    gpus_free=3,
    group="a",
    rack="r-1",
    health={HealthKind.NODE_AGENT: HealthReport(HealthStatus.IMPAIRED, NOW, "XID 79")},
    silent_since=NOW,
    departure=Interruption(DepartureKind.INTERRUPTION, "spot", later(60), "Spot takes it"),
    need=RepairNeed(RepairLevel.REBOOT, "XID 79", NOW),
    held=RepairHold(NOW, "the budget is used"),
    reboot=Reboot(NOW, "boot", started=True),
    healed_at=NOW,
    boot_id="boot",
    booted_at=NOW,
    incident_id="i",
    deadline_at=later(60),
    epoch=7,
    history=(ENTRY,) * 60,
    commands=(pending(A, 1),),
)


def part(record: Instance) -> ListedInstance:
    """The fields of a record that lists hold."""
    return ListedInstance(**{field.name: getattr(record, field.name) for field in fields(ListedInstance)})


def listed(store: Store) -> dict[str, ListedInstance]:
    """Every present instance by id, as lists hold it."""
    return {one.instance_id: one for one in store.instances_in(PRESENT)}


# -- contract of every store -------------------------------------------------------------------------------------------


def test_a_list_holds_each_field_of_a_record_but_what_only_its_decisions_read(store: Store) -> None:
    """Health, silence, ECS status, held repairs and announcements are in it; history and commands are not."""
    store.save_instance(SICK)
    assert listed(store) == {A: part(SICK)}
    assert store.list_instances(10, None).instances == (part(SICK),)
    assert not {"history", "commands", "revision"} & {field.name for field in fields(ListedInstance)}


@pytest.mark.parametrize(
    "answer", [StartedCheck("check/i-0a/1", "task-1"), RefusedCheck("check/i-0a/1", CheckRefusal("no"))]
)
def test_a_list_shows_what_is_written_without_the_whole_record(store: Store, answer: Any) -> None:
    """A claim, its release with a signal, a reservation that ends, the answer about a check: each is in the list."""
    saved = store.save_instance(instance(reserved_for=JOB, check=CheckRun("check/i-0a/1"), commands=(pending(A, 1),)))

    def is_as_the_record() -> bool:
        record = store.load_instance(A)
        assert record is not None
        return listed(store) == {A: part(record)}

    store.remove_finished_instance_commands(saved, (f"{A}/1/1",), {}, answer)
    assert is_as_the_record() and listed(store)[A].check != CheckRun("check/i-0a/1")
    assert store.claim_instance(A, JOB, claim(), 0)
    assert is_as_the_record() and listed(store)[A].claims and not listed(store)[A].reserved_for
    store.release_instance(A, JOB, False, left_out_at=NOW)
    assert is_as_the_record() and listed(store)[A].past and not listed(store)[A].claims


def test_what_leaves_the_cluster_leaves_the_lists_and_what_returns_is_in_them(store: Store) -> None:
    """By the next write of the record."""
    record = store.save_instance(instance())
    gone = store.save_instance(replace(record, status=InstanceStatus.GONE))
    assert listed(store) == {} and store.list_instances(10, None).instances == ()
    back = store.save_instance(replace(gone, status=InstanceStatus.AVAILABLE))
    assert listed(store) == {A: part(back)}


@pytest.mark.parametrize("limit", [1, 7, 20])
def test_pages_of_a_list_have_each_instance_once_in_the_order_of_ids(store: Store, limit: int) -> None:
    """However they are spread over partition keys. The last page has no cursor."""
    names = sorted(f"i-{number * 7919 % 1000:017x}" for number in range(20))
    for name in names:
        store.save_instance(instance(name))
    pages, cursor = [], None
    for _ in range(len(names) + 1):
        page = store.list_instances(limit, cursor)
        pages.append([one.instance_id for one in page.instances])
        cursor = page.cursor
        if cursor is None:
            break
    assert [name for page_names in pages for name in page_names] == names
    assert [len(one) for one in pages] == [min(limit, 20 - n) for n in range(0, 20, limit)]


@pytest.mark.parametrize(("prefix", "numbers"), [("i-0", range(12)), ("i-00000000000000001", (10, 11)), ("i-1", ())])
def test_a_list_of_a_prefix_has_the_instances_whose_ids_begin_so(
    store: Store, prefix: str, numbers: Sequence[int]
) -> None:
    """Page by page, in the order of ids."""
    for number in range(12):
        store.save_instance(instance(f"i-{number:018d}"))
    names, cursor = [], None
    for _ in range(14):
        page = store.list_instances(5, cursor, prefix=prefix)
        names += [one.instance_id for one in page.instances]
        cursor = page.cursor
        if cursor is None:
            break
    assert names == [f"i-{number:018d}" for number in numbers]


# -- DynamoDB ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def upgraded(metered: DynamoDb) -> DynamoStore:
    """Tables on which no round of the reconciler has run since the upgrade, deployed with `upgrade_from`."""
    client = DoubleClient(metered)
    create_tables(client, "jobs", "instances", is_complete=False, upgrade_from="0.1")
    return DynamoStore(client, "jobs", "instances")


@pytest.fixture
def new(metered: DynamoDb) -> DynamoStore:
    """Tables of a new deployment, before the first round of the reconciler."""
    client = DoubleClient(metered)
    create_tables(client, "jobs", "instances", is_complete=False)
    return DynamoStore(client, "jobs", "instances")


def deployed_without_setting(metered: DynamoDb) -> None:
    """Remove the index of whole records, as the next deployment without `upgrade_from` does."""
    del metered.tables["instances"].indexes["by_status"]


def of_old_release(store: DynamoStore, *records: Instance) -> None:
    """Write records as release 0.1 does, which knows no list."""
    for record in records:
        store.save_instance(record)
        item = store.table.get(record.instance_id)
        assert item is not None
        old = {name: value for name, value in item.items() if name not in (LISTING, LISTED)}
        store.table.client.put_item(TableName=store.table.name, Item=typed(old))


def read_indexes(metered: DynamoDb) -> set[str]:
    """The indexes that were read since the last question."""
    assert metered.meter is not None
    found = {partition.index_name for partition in metered.meter.reads} - {""}
    metered.meter.clear()
    return found


def test_the_deployed_index_projects_what_a_list_reads() -> None:
    """An attribute that is not projected would be missing from every list."""
    assert set(DEPLOYED) == set(PROJECTED) and len(DEPLOYED) <= 20
    assert set(IN_PLACE) <= {field.name for field in fields(ListedInstance)}


def test_a_list_reads_no_history(upgraded: DynamoStore, metered: DynamoDb) -> None:
    """Nothing but the index is read, and its entries have no history, so that DynamoDB does not bill it either."""
    upgraded.save_instance(SICK)
    upgraded.complete_listing(NOW)
    read_indexes(metered)
    answers: list[Mapping[str, Any]] = []
    call = metered.call
    metered.call = lambda operation, asked: answers.append(found := call(operation, asked)) or found  # type: ignore[method-assign, func-returns-value]
    assert upgraded.instances_in(PRESENT) and upgraded.list_instances(10, None).instances
    assert metered.meter is not None and metered.meter.bytes_read < 4_000
    assert read_indexes(metered) == {"listing"}
    items = [item for found in answers for item in found.get("Items", ())]
    assert items and all("history" not in item and "xxx" not in str(item) for item in items)


@pytest.mark.parametrize("count", [10, 1_000])
def test_a_list_costs_as_many_calls_as_there_are_partition_keys(
    upgraded: DynamoStore, metered: DynamoDb, count: int
) -> None:
    """A thousand instances are 4 queries and no other read; so are ten. A page of a hundred is 4 small queries."""
    for number in range(count):
        upgraded.save_instance(replace(SICK, instance_id=f"i-{number * 7919:017x}", history=()))
    upgraded.complete_listing(NOW)
    assert upgraded.instances_in(PRESENT)
    operations: list[str] = []
    call = metered.call
    metered.call = lambda operation, asked: operations.append(operation) or call(operation, asked)  # type: ignore[method-assign, func-returns-value]
    read_indexes(metered)
    assert len(upgraded.instances_in(PRESENT)) == count
    assert operations == ["Query"] * SHARDS
    operations.clear()
    assert metered.meter is not None
    metered.meter.clear()
    assert len(upgraded.list_instances(100, None).instances) == min(count, 100)
    assert len(operations) <= 2 * SHARDS and set(operations) == {"Query"}
    assert metered.meter.bytes_read < 100 * 1.6 * 2_000


# -- upgrade -----------------------------------------------------------------------------------------------------------


def test_records_of_an_older_release_are_listed_from_the_first_read_on(
    upgraded: DynamoStore, metered: DynamoDb
) -> None:
    """From the older index, also next to records of this release, and without their histories in the answer."""
    of_old_release(upgraded, SICK)
    new = upgraded.save_instance(instance(B))
    assert listed(upgraded) == {A: part(SICK), B: part(new)}
    assert [one.instance_id for one in upgraded.list_instances(1, A).instances] == [B]
    assert "by_status" in read_indexes(metered)


def test_the_reconciler_lists_old_records_and_then_lists_are_lean(upgraded: DynamoStore, metered: DynamoDb) -> None:
    """Once no function of the older release can write any more. Records stay as they are, to the revision."""
    of_old_release(upgraded, SICK, instance(B, status=InstanceStatus.GONE))
    before = upgraded.load_instance(A)
    upgraded.complete_listing(NOW)
    assert upgraded.load_instance(A) == before and listed(upgraded) == {A: part(SICK)}
    of_old_release(upgraded, instance("i-0c"))  # by a function of the older release that was still running
    upgraded.complete_listing(later(60))
    assert set(listed(upgraded)) == {A, "i-0c"} and "by_status" in read_indexes(metered)
    upgraded.complete_listing(later(120))
    assert listed(upgraded) and "by_status" in read_indexes(metered)
    upgraded.complete_listing(later(60) + OLD_RELEASE)
    read_indexes(metered)
    assert set(listed(upgraded)) == {A, "i-0c"} and read_indexes(metered) == {"listing"}


@pytest.mark.parametrize("tables", ["new", "upgraded"])
def test_a_new_deployment_is_complete_after_one_round(
    tables: str, request: pytest.FixtureRequest, metered: DynamoDb
) -> None:
    """No record lacks the attributes, so nothing is waited for. A later round costs one read."""
    store: DynamoStore = request.getfixturevalue(tables)
    store.complete_listing(NOW)
    read_indexes(metered)
    store.complete_listing(later(60))
    assert metered.meter is not None and read_indexes(metered) == set()
    store.save_instance(instance())
    assert set(listed(store)) == {A} and read_indexes(metered) == {"listing"}


def test_a_new_deployment_lists_its_instances_before_the_first_round(new: DynamoStore) -> None:
    """It has neither the mark nor the index of 0.1, so the listing has had every record from the first one on."""
    saved = [new.save_instance(instance(name)) for name in (A, B)]
    assert listed(new) == {one.instance_id: part(one) for one in saved}
    page = new.list_instances(1, None)
    assert page.instances == (part(saved[0]),) and page.cursor == A
    assert new.list_instances(1, A).instances == (part(saved[1]),)


def test_a_mark_that_the_index_does_not_show_yet_is_read_from_the_table(new: DynamoStore, metered: DynamoDb) -> None:
    """An index lags behind its table. A list after the first round is as complete as the lists before it."""
    saved = new.save_instance(instance())
    new.complete_listing(NOW)
    index = metered.tables["instances"].indexes["listing"]
    for keys in index.entries.values():
        keys.pop(MARK, None)
    index.in_order.clear()
    assert listed(new) == {A: part(saved)}


@pytest.mark.parametrize("cursor", [None, "i-0"])
@pytest.mark.parametrize("change", [{}, {"epoch": "no number"}])
def test_an_index_that_is_removed_too_early_is_an_error_and_no_shorter_list(
    upgraded: DynamoStore, metered: DynamoDb, change: Mapping[str, Any], cursor: str | None
) -> None:
    """Functions of 0.1 may still write, or a record waits for an operator. The error says what to deploy."""
    of_old_release(upgraded, SICK)
    item = upgraded.table.get(A)
    assert item is not None
    upgraded.table.client.put_item(TableName="instances", Item=typed({**item, **change}))
    upgraded.complete_listing(NOW)
    deployed_without_setting(metered)
    advice = "deploy again with gpu-recovery:upgrade_from=0.1"
    with pytest.raises(ListingIncomplete, match=advice):
        upgraded.instances_in(PRESENT, [])
    with pytest.raises(ListingIncomplete, match=advice):
        upgraded.list_instances(10, cursor, [])
    with pytest.raises(ListingIncomplete, match=advice):
        upgraded.complete_listing(later(2 * OLD_RELEASE.total_seconds()))


def test_a_complete_listing_needs_no_other_index_ever_again(upgraded: DynamoStore, metered: DynamoDb) -> None:
    """The next deployment without the setting removes the index of 0.1. The daily comparison ends with it."""
    of_old_release(upgraded, SICK)
    upgraded.complete_listing(NOW)
    upgraded.complete_listing(NOW + OLD_RELEASE)
    deployed_without_setting(metered)
    for days in (1, 2):
        upgraded.complete_listing(NOW + OLD_RELEASE + days * COMPARED_EACH)
        read_indexes(metered)
        upgraded.complete_listing(NOW + OLD_RELEASE + days * COMPARED_EACH + timedelta(minutes=1))
        assert read_indexes(metered) == set()
        assert listed(upgraded) == {A: part(SICK)} and read_indexes(metered) == {"listing"}


def test_instances_that_ecs_shows_and_the_list_lacks_are_added(
    upgraded: DynamoStore, metered: DynamoDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that 0.1 wrote after the mark, without the index that they could be compared with. A bounded number."""
    monkeypatch.setattr("gpu_recovery.aws.instance_index.ADDED_MAX", 3)
    upgraded.complete_listing(NOW)
    deployed_without_setting(metered)
    of_old_release(upgraded, SICK, instance("i-0g", status=InstanceStatus.GONE), instance("i-0z"))
    new = upgraded.save_instance(instance(B))
    before = {name: upgraded.load_instance(name) for name in (A, B, "i-0g")}
    upgraded.add_to_listing([A, "i-none", "i-0g", B, "i-0z"])
    assert listed(upgraded) == {A: part(SICK), B: part(new)}
    assert {name: upgraded.load_instance(name) for name in before} == before


def test_an_index_that_is_still_built_is_not_read(upgraded: DynamoStore, metered: DynamoDb) -> None:
    """CloudFormation does not wait for it. The lists come from the older index until it can be read."""
    metered.tables["instances"].indexes["listing"].is_backfilling = True
    of_old_release(upgraded, SICK)
    for after in (0, 60, 2 * OLD_RELEASE.total_seconds()):
        upgraded.complete_listing(later(after))
        assert listed(upgraded) == {A: part(SICK)}
    metered.tables["instances"].indexes["listing"].is_backfilling = False
    read_indexes(metered)
    upgraded.complete_listing(later(3 * OLD_RELEASE.total_seconds()))
    read_indexes(metered)
    assert listed(upgraded) == {A: part(SICK)} and read_indexes(metered) == {"listing"}


def test_lists_are_there_while_the_index_is_built_anew(upgraded: DynamoStore, metered: DynamoDb) -> None:
    """After a way back to the older release and another upgrade the mark is older than the index."""
    upgraded.save_instance(SICK)
    upgraded.complete_listing(NOW)
    metered.tables["instances"].indexes["listing"].is_backfilling = True
    assert listed(upgraded) == {A: part(SICK)}
    assert upgraded.list_instances(5, None).instances == (part(SICK),)
    del metered.tables["instances"].indexes["listing"]
    assert listed(upgraded) == {A: part(SICK)}


def test_what_an_older_release_registered_meanwhile_is_found_within_a_day(upgraded: DynamoStore) -> None:
    """The indexes are compared once a day also after they were found equal."""
    upgraded.complete_listing(NOW)
    of_old_release(upgraded, SICK)
    upgraded.complete_listing(NOW + COMPARED_EACH / 2)
    assert listed(upgraded) == {}
    upgraded.complete_listing(NOW + COMPARED_EACH)
    assert listed(upgraded) == {A: part(SICK)}


def test_a_round_lists_a_bounded_number_of_records(upgraded: DynamoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand at once would take longer than the function has. The next round goes on."""
    assert ADDED_MAX <= 2_000
    monkeypatch.setattr("gpu_recovery.aws.instance_index.ADDED_MAX", 2)
    of_old_release(upgraded, *(instance(f"i-{number}") for number in range(5)))

    def left() -> int:
        items = (upgraded.table.get(f"i-{number}") for number in range(5))
        return sum(item is not None and LISTING not in item for item in items)

    lefts = []
    for minute in range(3):
        upgraded.complete_listing(later(60 * minute))
        lefts.append(left())
    assert lefts == [3, 1, 0]


@pytest.mark.parametrize("change", [{"epoch": "no number"}, {"schema": SCHEMA + 1}])
def test_an_old_record_that_cannot_be_read_keeps_the_older_index_in_use(
    upgraded: DynamoStore, metered: DynamoDb, change: Mapping[str, Any]
) -> None:
    """Else it would be in no list, and nobody would hear of it."""
    of_old_release(upgraded, SICK)
    item = upgraded.table.get(A)
    assert item is not None
    upgraded.table.client.put_item(TableName="instances", Item=typed({**item, **change}))
    for after in (0, 2 * OLD_RELEASE.total_seconds()):
        upgraded.complete_listing(later(after))
    failures: list[Exception] = []
    assert upgraded.instances_in(PRESENT, failures) == () and len(failures) == 1
    assert upgraded.list_instances(5, None, failures).instances == () and len(failures) == 2


@pytest.mark.parametrize("change", [{LISTED: "{"}, {LISTED: '{"epoch": "x"}'}, {"schema": SCHEMA + 1}])
def test_an_entry_that_cannot_be_read_is_reported_and_its_page_goes_on(
    upgraded: DynamoStore, change: Mapping[str, Any]
) -> None:
    """It counts as an instance of the page, so that the next page begins after it."""
    upgraded.complete_listing(NOW)
    for name in (A, B):
        upgraded.save_instance(instance(name))
    item = upgraded.table.get(A)
    assert item is not None
    upgraded.table.client.put_item(TableName="instances", Item=typed({**item, **change}))
    failures: list[Exception] = []
    assert [one.instance_id for one in upgraded.instances_in(PRESENT, failures)] == [B] and len(failures) == 1
    first = upgraded.list_instances(1, None, failures)
    assert first.instances == () and first.cursor == A
    assert [one.instance_id for one in upgraded.list_instances(1, first.cursor, failures).instances] == [B]


def test_the_mark_is_no_instance(upgraded: DynamoStore) -> None:
    """It lies in the instances' table and in none of their lists."""
    upgraded.complete_listing(NOW)
    assert upgraded.table.get(MARK) is not None and listed(upgraded) == {}
    assert upgraded.load_instance(MARK) is None
