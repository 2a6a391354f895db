"""Items carry the version they were written in: what a newer release wrote is left alone, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import Table, plain, typed
from gpu_recovery.aws.item_codec import SCHEMA, ItemUnreadable
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.events import Checked
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from tests.aws.records import JOB, A, failure, instance, job, later, pending, plan

ATTEMPT = f"{JOB}#a01"
LOADS: dict[str, tuple[str, Callable[[DynamoStore], Any]]] = {
    "job": (JOB, lambda store: store.load_job(JOB)),
    "progress": (ATTEMPT, lambda store: store.load_progress(JOB, 1)),
    "plan": (f"{ATTEMPT}#plan", lambda store: store.load_plan(JOB, 1)),
    "instance": (A, lambda store: store.load_instance(A)),
    "fleet": ("fleet", lambda store: store.load_fleet()),
}


@pytest.fixture
def store(double_store: DynamoStore) -> DynamoStore:
    """One record of each kind."""
    double_store.create_job(job(look_at=later(1), commands=(pending(JOB, 1),)), "text")
    double_store.begin_attempt(plan())
    double_store.save_instance(instance(look_at=later(1), commands=(pending(A, 1),)), Fleet(gpu_instances=3))
    return double_store


def table_of(store: DynamoStore, key: str) -> Table:
    return store.jobs if key.startswith(JOB) else store.table


def item(store: DynamoStore, key: str) -> dict[str, Any]:
    """The item as it lies in its table."""
    found = table_of(store, key).get(key)
    assert found is not None
    return found


def rewrite(store: DynamoStore, key: str, **changes: Any) -> None:
    """Another release's item: some keys otherwise, or (None) not there."""
    table = table_of(store, key)
    left = {name: value for name, value in {**item(store, key), **changes}.items() if value is not None}
    store.jobs.client.put_item(TableName=table.name, Item=typed(left))


@pytest.mark.parametrize("kind", LOADS)
def test_every_item_carries_the_schema_it_is_written_in(store: DynamoStore, kind: str) -> None:
    """The first write, whichever function makes it."""
    assert item(store, LOADS[kind][0])["schema"] == SCHEMA


@pytest.mark.parametrize("kind", LOADS)
def test_what_a_newer_release_wrote_is_not_read(store: DynamoStore, kind: str) -> None:
    """The error names the record; half-understood it could be acted upon."""
    key, load = LOADS[kind]
    rewrite(store, key, schema=SCHEMA + 1)
    with pytest.raises(ItemUnreadable, match=f"{key if kind != 'fleet' else 'fleet'}.*written by a newer release"):
        load(store)


@pytest.mark.parametrize("kind", LOADS)
@pytest.mark.parametrize("schema", [None, 1])
def test_what_an_older_release_wrote_is_read(store: DynamoStore, kind: str, schema: int | None) -> None:
    """The first release wrote no version at all."""
    key, load = LOADS[kind]
    before = load(store)
    rewrite(store, key, schema=schema)
    assert load(store) == before


def test_a_newer_record_among_listed_ones_is_an_error(store: DynamoStore) -> None:
    """Left out, a job would be scheduled around as if it were not there."""
    rewrite(store, JOB, schema=SCHEMA + 1)
    rewrite(store, A, schema=SCHEMA + 1)
    with pytest.raises(ItemUnreadable, match=f"job {JOB}"):
        store.jobs_in((JobStatus.QUEUED,), 10)
    with pytest.raises(ItemUnreadable, match=f"instance {A}"):
        store.instances_in([InstanceStatus.AVAILABLE])


@pytest.mark.parametrize(
    "add",
    [
        lambda store: store.add_running(JOB, 1, 0),
        lambda store: store.add_stopped(JOB, 1, 0, failure(0)),
        lambda store: store.add_checked(JOB, 1, 0, Checked(CheckOutcome.HEALTHY, "")),
    ],
)
def test_the_progress_of_a_newer_release_is_not_understood_after_an_addition_either(
    store: DynamoStore, add: Callable[[DynamoStore], Any]
) -> None:
    """What follows from a rank's fact is decided from the answer."""
    rewrite(store, ATTEMPT, schema=SCHEMA + 1)
    with pytest.raises(ItemUnreadable, match=ATTEMPT):
        add(store)


@pytest.mark.parametrize(("kind", "missing"), [("job", "commands"), ("instance", "commands"), ("job", "spec")])
def test_an_item_without_what_its_record_needs_is_named_with_the_key(
    store: DynamoStore, kind: str, missing: str
) -> None:
    """A KeyError would name the key alone, and no record."""
    key, load = LOADS[kind]
    rewrite(store, key, **{missing: None})
    with pytest.raises(ItemUnreadable, match=f"{kind} {key}.*without {missing}"):
        load(store)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("job", {"status": "DREAMING"}),
        ("job", {"spec": "text"}),
        ("instance", {"epoch": "two"}),
        ("instance", {"commands": {"x/1/1": {"acting_until": "soon"}}}),
        ("plan", {"instances": 7}),
        ("fleet", {"opened_at": "yesterday"}),
    ],
)
def test_an_item_that_is_not_what_it_must_be_is_named(store: DynamoStore, kind: str, changes: dict[str, Any]) -> None:
    """Whoever wrote it: somebody has to find it."""
    key, load = LOADS[kind]
    rewrite(store, key, **changes)
    with pytest.raises(ItemUnreadable, match=key):
        load(store)


def test_numbers_of_the_schema_are_numbers(store: DynamoStore) -> None:
    """As everything else that is one."""
    raw = store.jobs.client.get_item(TableName=store.jobs.name, Key=typed({"job_id_rank": JOB}))["Item"]
    assert raw["schema"] == {"N": str(SCHEMA)}
    assert plain(raw)["schema"] == SCHEMA
