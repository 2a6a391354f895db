"""Records that nobody can read: one of them is an error that names it, and no other record waits for it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import Table, plain
from gpu_recovery.aws.instance_index import LISTED
from gpu_recovery.aws.item_codec import ItemUnreadable
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.job.record import JobStatus
from hypothesis import given

from tests.aws.ecs_events import instance_event, rank_event
from tests.aws.records import JOB, OTHER_JOB, A, B, instance, job, later, pending, plan
from tests.fuzz.conftest import World
from tests.fuzz.mutations import mutated
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
SPOILT: list[tuple[str, Any, str]] = [
    ("commands", None, "commands"),
    ("commands", {"S": "none"}, "str"),
    ("commands", {"L": []}, "list"),
    ("spec", None, "spec"),
    ("spec", {"S": "sft"}, "Job.spec"),
    ("history", {"N": "7"}, "Job.history"),
    ("attempt", {"S": "first"}, "Job.attempt"),
    ("status_at", {"S": "yesterday"}, "Job.status_at"),
    ("origin", {"S": "AN_ORIGIN_OF_TOMORROW"}, "Job.origin"),
    ("schema", {"N": "99"}, "newer release"),
    ("schema", {"S": "two"}, "schema"),
]


def spoil(functions: Functions, name: str, field: str, value: Any) -> None:
    """Write something else into one field of a record, or take the field out."""
    item = functions.kept()[name]
    table = functions.store.jobs if "job_id_rank" in item else functions.store.table
    changed = {key: kept for key, kept in item.items() if key != field} | ({} if value is None else {field: value})
    counted = len(functions.aws.calls)
    table.client.put_item(TableName=table.name, Item=changed)
    del functions.aws.calls[counted:]


def refused_for(functions: Functions, handler: str, name: str) -> str:
    """The handler raises in the end, because of the record `name`; what it says of it."""
    with pytest.raises((ExceptionGroup, RecoveryError)) as raised:
        functions.call(handler, {})
    (said,) = {str(one) for one in leaves(raised.value)}
    assert name in said, said
    return said


def leaves(error: BaseException) -> list[BaseException]:
    """The errors inside a group, at every depth."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in leaves(one)]
    assert isinstance(error, ItemUnreadable), error
    return [error]


def in_line(functions: Functions) -> None:
    """Two jobs that wait, and a place for each."""
    functions.store.create_job(job(JOB), "")
    functions.store.create_job(job(OTHER_JOB, queued_at=later(1)), "")
    for machine in plan(world=4).instances:
        functions.store.save_instance(instance(machine))


def logged_for(functions: Functions, name: str) -> str:
    """The error that a pass of the scheduler logs about this record, and about no other."""
    functions.call("scheduler", {})
    (line,) = functions.logged("placement_failed")
    assert name in line["exception"]
    return str(line["exception"])


@pytest.mark.parametrize(("field", "value", "said"), SPOILT)
def test_a_job_that_cannot_be_read_keeps_nobody_waiting_in_line(
    functions: Functions, field: str, value: Any, said: str
) -> None:
    """The next job is placed, and the log of the pass names the record and what is wrong with it."""
    in_line(functions)
    spoil(functions, JOB, field, value)
    before = functions.kept()[JOB]
    assert said in logged_for(functions, JOB)
    assert functions.job(OTHER_JOB).status is JobStatus.SUBMITTED
    assert functions.kept()[JOB] == before


def test_an_instance_that_cannot_be_read_is_no_place(functions: Functions) -> None:
    """Both jobs would have fitted; one is placed beside the spoilt instance, none on it. The reconciler says why."""
    in_line(functions)
    sick = plan(world=4).instances[0]
    spoil(functions, sick, "claims", {"S": "many"})
    functions.call("scheduler", {})
    assert "Instance.claims" in refused_for(functions, "reconciler", sick)
    assert functions.job(JOB).status is JobStatus.SUBMITTED
    assert sick not in functions.job(JOB).instances
    assert functions.job(OTHER_JOB).status is not JobStatus.SUBMITTED


def test_an_unreadable_record_alone_is_reported_too(functions: Functions) -> None:
    """An empty line is no reason to keep quiet about it."""
    functions.store.create_job(job(JOB), "")
    spoil(functions, JOB, "spec", None)
    logged_for(functions, JOB)


def due_together(functions: Functions) -> None:
    """Two jobs and two instances, each with an order that somebody left undone."""
    for name in (JOB, OTHER_JOB):
        gang(functions, name, commands=(pending(name, 1, until=1),))
    for name in (A, B):
        functions.store.save_instance(instance(name, commands=(pending(name, 1, until=1),)))
    functions.now = later(10)


@pytest.mark.parametrize(("name", "others"), [(JOB, (OTHER_JOB, A, B)), (A, (JOB, OTHER_JOB, B))])
@pytest.mark.parametrize("field", ["commands", "history", "status_at"])
def test_a_record_that_cannot_be_read_keeps_nobody_from_the_reconciler(
    functions: Functions, name: str, others: tuple[str, ...], field: str
) -> None:
    """Every other record's order is carried out, whichever comes first."""
    due_together(functions)
    spoil(functions, name, field, {"S": "rubbish"})
    refused_for(functions, "reconciler", name)
    left = functions.kept()
    assert [one for one in others if left[one]["commands"] != {"M": {}}] == []


def test_events_about_other_records_are_not_touched_by_an_unreadable_one(functions: Functions) -> None:
    """Its own event is an error and ends among the dead letters; the next record's is entered."""
    gang(functions, JOB)
    gang(functions, OTHER_JOB)
    spoil(functions, JOB, "spec", None)
    with pytest.raises(ItemUnreadable, match=JOB):
        functions.call("ecs_task_handler", rank_event(JOB, 1, 0, "STOPPED", exit_code=1))
    functions.call("ecs_task_handler", rank_event(OTHER_JOB, 1, 0, "STOPPED", exit_code=1))
    assert functions.job(OTHER_JOB).status is JobStatus.STOPPING
    functions.store.save_instance(instance(A))
    spoil(functions, A, "history", {"S": "rubbish"})
    before = functions.kept()
    with pytest.raises(ItemUnreadable, match=rf"{A}.*Instance\.history"):
        functions.call("ecs_instance_monitor", instance_event(A, 9))
    assert functions.kept() == before


def test_listings_show_the_rest_and_name_what_cannot_be_read(functions: Functions) -> None:
    """One spoilt record must not hide a cluster from its operator."""
    in_line(functions)
    sick = plan(world=4).instances[1]
    spoil(functions, JOB, "spec", None)
    spoil(functions, sick, LISTED, {"S": "rubbish"})
    api = Api(functions)
    jobs, machines = api.get("/jobs").body, api.get("/instances").body
    assert [one["job_id"] for one in jobs["jobs"]] == [OTHER_JOB]
    assert len(jobs["unreadable"]) == 1 and JOB in jobs["unreadable"][0]
    assert len(machines["instances"]) == 3 and sick not in json.dumps(machines["instances"])
    assert len(machines["unreadable"]) == 1 and sick in machines["unreadable"][0]


def times_unreadable(
    monkeypatch: pytest.MonkeyPatch, kind: str, item: dict[str, Any], table: Table, load: Callable[[], Any]
) -> int:
    """How often a damaged `item` was refused by an error that names the record."""
    keys = {key: item[key] for key in ("job_id_rank", "container_inst_id") if key in item}
    refusals: list[str] = []

    @given(mutated([item], 2))
    def each(damaged: Any) -> None:
        found = {**(damaged if isinstance(damaged, dict) else {}), **keys}  # an item has its key, whatever else it has
        monkeypatch.setattr(table, "get", lambda key: found)
        try:
            load()
        except ItemUnreadable as error:
            refusals.append(str(error))

    each()
    assert all(re.match(rf"^(the )?{kind} .*: .", refusal) or "newer release" in refusal for refusal in refusals)
    return len(refusals)


def test_records_with_anything_wrong_are_read_or_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random damage to items of every kind: a record, or an error with its name; never an accident of the reader."""
    store = world.functions.store
    items = {name: plain(item) for name, item in world.start.items()}
    kinds = {
        "job": (JOB, store.jobs, lambda: store.load_job(JOB)),
        "progress": (f"{JOB}#a01", store.jobs, lambda: store.load_progress(JOB, 1)),
        "plan": (f"{JOB}#a01#plan", store.jobs, lambda: store.load_plan(JOB, 1)),
        "instance": (A, store.table, lambda: store.load_instance(A)),
    }
    read: dict[str, int] = {}
    for kind, (name, table, load) in kinds.items():
        read[kind] = times_unreadable(monkeypatch, kind, items[name], table, load)
    assert all(read.values()), f"nothing was damaged: {read}"
