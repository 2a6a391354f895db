"""What an event costs, counted in calls where botocore makes them."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.ecs_events import instance_fact, task_fact
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.ecs_events import tasks
from gpu_recovery.reconciler.reconcile import reconcile
from gpu_recovery.recovery import Recovery
from gpu_recovery.scheduler.schedule import schedule
from moto.dynamodb.parsing.reserved_keywords import ReservedKeywords

from tests.aws.counted_aws import CountedAws
from tests.aws.deployed_tables import create_tables
from tests.aws.ecs_events import check_event, instance_event, rank_event, task_event
from tests.aws.environment import FUNCTION
from tests.aws.records import JOB, NOW, A, instance, job, launched, spec

LAMBDAS = Path(__file__).parents[2] / "lambdas"
PACKAGE_BYTES_MAX = 1_150_000
"""A library that is copied into the folder by accident is larger than the difference to this bound."""


class Silent:
    """Nobody reads the log here."""

    def job_created(self, decision: Any) -> None:
        """Said to nobody."""

    def decided(self, record: Any, event: Any, decision: Any) -> None:
        """Said to nobody."""

    def record_due(self, record: Any, now: datetime) -> None:
        """Said to nobody."""

    def fleet_checked(self, fleet: Any, now: datetime) -> None:
        """Said to nobody."""

    def queue_checked(self, totals: Any) -> None:
        """Said to nobody."""

    def notified(self, record: Any, command: Any, failure: Exception | None) -> None:
        """Said to nobody."""

    def placement_failed(self, failure: Exception) -> None:
        """Nobody reads it."""

    def snapshot_failed(self, name: Any, failure: Exception) -> None:
        """Said to nobody."""

    def unknown_record(self, record_id: str, event: Any) -> None:
        """Said to nobody."""


@dataclass
class World:
    """The loop on counted calls, with a clock that tests turn."""

    aws: CountedAws
    recovery: Recovery
    store: DynamoStore
    now: datetime = NOW

    def task(self, event: dict[str, Any]) -> CountedAws:
        """What one task event costs."""
        self.aws.forget()
        tasks.task_changed(self.recovery, task_fact(event["detail"], NOW))
        return self.aws

    def machine(self, event: dict[str, Any]) -> CountedAws:
        """What one container-instance event costs."""
        self.aws.forget()
        self.recovery.handle(*instance_fact(event["detail"], NOW))
        return self.aws

    def job(self) -> Job:
        found = self.store.load_job(JOB)
        assert found is not None
        return found

    def running(self, world: int) -> None:
        """A job all of whose ranks run."""
        gang = launched(world=world)
        status = {"status": JobStatus.RUNNING, "attempt": 1, "launched": True, "instances": gang.instances}
        self.store.create_job(job(spec=spec(nnodes=world), **status), "")
        self.store.begin_attempt(gang)
        for rank in range(world):
            self.store.add_running(JOB, 1, rank)
        self.aws.tasks[attempt_id(JOB, 1)] = list(gang.task_ids)


@contextmanager
def counted_world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Empty tables, and nothing called yet."""
    aws = CountedAws()
    monkeypatch.setattr(boto3, "client", aws.client)
    told = LambdaSettings.from_environment(FUNCTION)
    client = aws.client("dynamodb")
    create_tables(client, told.job_table, told.instance_table)
    store = DynamoStore(client, told.job_table, told.instance_table)
    loop = Recovery(store, AwsActions(told, lambda: NOW), told.policy, lambda: made.now, Silent())
    made = World(aws, loop, store)
    yield made


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Empty tables, and nothing called yet."""
    with counted_world(monkeypatch) as made:
        yield made


ONE_FACT = {"GetItem": 1, "UpdateItem": 1}
"""What a fact about a rank costs: the read of the plan, and the addition to the progress."""


# -- one event ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adoption", Adoption)
def test_a_task_without_a_job_costs_nothing(world: World, adoption: Adoption) -> None:
    """Somebody else's task in our cluster: no call at all, whether or not tasks are adopted."""
    world.recovery = replace(world.recovery, adoption=adoption)
    assert world.task(task_event("t", "ecs-svc/1", "RUNNING", {"RANK": "0"})).calls == []
    assert world.task(task_event("t", "", "STOPPED", {}, exit_code=1)).calls == []


def test_a_status_between_costs_nothing(world: World) -> None:
    """PENDING and the rest carry no news."""
    world.running(2)
    assert world.task(rank_event(JOB, 1, 0, "PENDING")).calls == []


@pytest.mark.parametrize("status", ["RUNNING", "STOPPED"])
def test_a_rank_of_an_unknown_job_costs_one_call(world: World, status: str) -> None:
    """The read that finds no plan."""
    aws = world.task(rank_event("nobody-knows-it", 1, 0, status))
    assert aws.operations() == {"GetItem": 1}


def test_a_rank_that_starts_costs_a_read_and_a_write(world: World) -> None:
    """The plan, which has the task's id, and the addition. Unless it is the last of its gang."""
    world.store.create_job(job(status=JobStatus.SUBMITTED, attempt=1, launched=True), "")
    world.store.begin_attempt(launched())
    assert world.task(rank_event(JOB, 1, 0, "RUNNING")).operations() == ONE_FACT


def test_the_rank_that_completes_its_gang_moves_the_job_with_five(world: World) -> None:
    """Plan, add, load, save, settle; and the event on the bus."""
    world.store.create_job(job(status=JobStatus.SUBMITTED, attempt=1, launched=True), "")
    world.store.begin_attempt(launched())
    world.store.add_running(JOB, 1, 0)
    aws = world.task(rank_event(JOB, 1, 1, "RUNNING"))
    assert world.job().status is JobStatus.RUNNING
    assert aws.count("dynamodb") - 1 <= 5  # one is the look of this test
    assert aws.operations()["PutEvents"] == 1


@pytest.mark.parametrize("status", ["RUNNING", "STOPPED"])
def test_a_duplicate_costs_no_more_than_the_first(world: World, status: str) -> None:
    """Whatever the first delivery did."""
    world.running(3)
    world.task(rank_event(JOB, 1, 0, status, **({"exit_code": 139} if status == "STOPPED" else {})))
    assert world.task(rank_event(JOB, 1, 0, status, exit_code=139)).operations() == ONE_FACT


def test_a_word_of_an_attempt_that_is_over_costs_a_read_and_a_write(world: World) -> None:
    """Its end is known; the job is not read."""
    world.running(2)
    world.store.add_stopped(JOB, 1, 0, None)
    world.store.add_stopped(JOB, 1, 1, None)
    world.store.save_job(replace(world.job(), attempt=2, status=JobStatus.RUNNING))
    for status in ("RUNNING", "STOPPED"):
        assert world.task(rank_event(JOB, 1, 1, status, exit_code=1)).operations() == ONE_FACT


def test_an_outdated_word_of_an_instance_costs_one_read(world: World) -> None:
    """ECS said it before what is known: nothing is written."""
    world.store.save_instance(instance(ecs_version=9))
    for version in (9, 8):
        assert world.machine(instance_event(A, version)).operations() == {"GetItem": 1}


def test_the_noise_of_an_instance_costs_a_read_and_a_write(world: World) -> None:
    """ECS tells of every placement: the record takes note and nobody else hears of it."""
    world.store.save_instance(instance(ecs_version=9))
    assert world.machine(instance_event(A, 10)).operations() == {"GetItem": 1, "PutItem": 1}


def described(task_id: str) -> dict[str, Any]:
    """What ECS says of a rank: rank 0 has ended, and the others run."""
    status = "STOPPED" if task_id == launched().task_ids[0] else "RUNNING"
    detail: dict[str, Any] = rank_event(JOB, 1, int(task_id.rsplit("-", 1)[1]), status)["detail"]
    return {**detail, "desiredStatus": status}


@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_the_first_failure_costs_nine_calls_of_dynamodb_and_a_stop_for_each_other_rank(
    world: World, ranks: int
) -> None:
    """Whatever the size of the gang. Three are batches of reads for the evidence of the e-mail."""
    world.running(ranks)
    world.aws.answers["DescribeTasks"] = lambda asked: {"tasks": list(map(described, asked["tasks"])), "failures": []}
    aws = world.task(rank_event(JOB, 1, 0, "STOPPED", exit_code=139))
    assert aws.count("dynamodb") <= 9 and aws.operations("dynamodb")["BatchGetItem"] == 3
    stopped = [asked["task"] for asked in aws.asked("StopTask")]
    assert sorted(stopped) == sorted(launched(world=ranks).task_ids[1:])
    assert aws.operations("ecs") == {"DescribeTasks": 1, "StopTask": ranks - 1}
    assert world.job().status is JobStatus.STOPPING


@pytest.mark.parametrize("ranks", [3, 64])
def test_a_later_failure_costs_at_most_two_calls(world: World, ranks: int) -> None:
    """It only adds that the rank has ended."""
    world.running(ranks)
    world.task(rank_event(JOB, 1, 0, "STOPPED", exit_code=139))
    for rank in {1, ranks // 2, ranks - 2}:
        aws = world.task(rank_event(JOB, 1, rank, "STOPPED", exit_code=143, stop_code="UserInitiated"))
        assert sum(aws.operations().values()) <= 2


# -- a whole incident --------------------------------------------------------------------------------------------------


def incident(world: World) -> CountedAws:
    """A job is placed, loses a rank, has its instances checked, is placed again and succeeds; both kinds of sweep."""
    world.aws.forget()
    machines = [f"i-0{rank:016x}" for rank in range(2)]
    for machine in machines:
        world.recovery.handle(*instance_fact(instance_event(machine, 1)["detail"], NOW))
    world.recovery.create_job(state_machine.created(JOB, spec(), world.recovery.policy, NOW), '{"workload": "sft"}')
    assert schedule(world.recovery) == 1
    told: list[dict[str, Any]] = [rank_event(JOB, 1, rank, "RUNNING") for rank in range(2)]
    told += [rank_event(JOB, 1, rank, "STOPPED", exit_code=139) for rank in range(2)]
    for event in told:
        tasks.task_changed(world.recovery, task_fact(event["detail"], NOW))
    for machine in machines:
        check_id = f"check/{machine}/1"
        world.aws.documents[f"verdicts/{check_id}.json"] = {"check_id": check_id, "outcome": "HEALTHY"}
        tasks.check_changed(world.recovery, task_fact(check_event(machine, 1, 0)["detail"], NOW))
    world.now += timedelta(seconds=world.recovery.policy.poll_interval_s)
    reconcile(world.recovery)
    assert schedule(world.recovery) == 1
    for event in [rank_event(JOB, 2, r, s, exit_code=0) for s in ("RUNNING", "STOPPED") for r in range(2)]:
        tasks.task_changed(world.recovery, task_fact(event["detail"], NOW))
    world.store.list_jobs(None, 10, None)
    assert world.job().status is JobStatus.SUCCEEDED and world.job().attempt == 2
    return world.aws


@pytest.fixture(scope="module")
def whole_incident() -> CountedAws:
    """The calls of an incident."""
    with pytest.MonkeyPatch.context() as patch, counted_world(patch) as world:
        return incident(world)


def test_a_whole_incident_scans_no_table(whole_incident: CountedAws) -> None:
    """Only reads and writes by key, and queries of an index by its own key."""
    keyed = {"GetItem", "PutItem", "UpdateItem", "Query", "BatchGetItem", "TransactWriteItems"}
    assert set(whole_incident.operations("dynamodb")) == keyed
    assert all(asked.get("KeyConditionExpression") for asked in whole_incident.asked("Query"))


def test_no_expression_uses_a_word_that_dynamodb_reserves(whole_incident: CountedAws) -> None:
    """DynamoDB refuses such an expression; the servers of the tests let many of them pass."""
    reserved = {word.upper() for word in ReservedKeywords.get_reserved_keywords()}
    grammar = {"SET", "REMOVE", "ADD", "AND", "OR", "NOT", "EXISTS", "CONTAINS"}
    functions = {"attribute_exists", "attribute_not_exists", "if_not_exists", "contains", "size"}
    expressions = {
        text
        for service, _, asked in whole_incident.calls
        for name, text in asked.items()
        if service == "dynamodb" and name.endswith("Expression")
    }
    words = {
        word for text in expressions for word in re.findall(r"(?<![#:\w])[A-Za-z_]\w*", text) if word not in functions
    }
    assert expressions and {word for word in words if word.upper() in reserved - grammar} == set()


def test_the_package_is_small() -> None:
    """The folder is the deployment package. Zipped it has little more than a megabyte, and no library."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in LAMBDAS.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(LAMBDAS))
    assert 10_000 < len(packed.getvalue()) <= PACKAGE_BYTES_MAX
