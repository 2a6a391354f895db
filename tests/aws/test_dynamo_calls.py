"""What only DynamoDB can do to its caller: pages, keys left over, a record that moves while it is being listed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.execution.context import previous_try_died
from gpu_recovery.ports.errors import CursorInvalid

from tests.aws.records import JOB, A, instance, job, later, pending


class Meddling:
    """A client that does something of its own around one operation."""

    def __init__(self, client: Any, operation: str, meddle: Callable[[Any, dict[str, Any]], Any]) -> None:
        self._client, self._operation, self._meddle = client, operation, meddle

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return (lambda **request: self._meddle(call, request)) if name == self._operation else call


def meddled(store: DynamoStore, operation: str, meddle: Callable[[Any, dict[str, Any]], Any]) -> DynamoStore:
    """The same tables through a meddling client."""
    return DynamoStore(Meddling(store.jobs.client, operation, meddle), store.jobs.name, store.table.name)


def one_at_a_time(call: Any, request: dict[str, Any]) -> Any:
    """The smallest pages there can be."""
    return call(**{**request, "Limit": 1})


def test_a_job_that_moves_between_two_queries_is_found_once(double_store: DynamoStore) -> None:
    """Both queries find it; DynamoDB refuses to be asked for one key twice."""
    double_store.create_job(job(), "")

    def move(call: Any, request: dict[str, Any]) -> Any:
        answer = call(**request)
        found = double_store.load_job(JOB)
        if answer["Items"] and found is not None and found.status is JobStatus.QUEUED:
            double_store.save_job(replace(found, status=JobStatus.PENDING_RESOURCES))
        return answer

    moving = meddled(double_store, "query", move)
    waiting = (JobStatus.QUEUED, JobStatus.PENDING_RESOURCES)
    assert [one.status for one in moving.jobs_in(waiting, 10)] == [JobStatus.PENDING_RESOURCES]
    found = double_store.load_job(JOB)
    assert found is not None
    double_store.save_job(replace(found, status=JobStatus.QUEUED))
    assert [one.job_id for one in moving.list_jobs(None, 10, None).jobs] == [JOB]


def test_a_job_is_not_found_in_a_status_that_it_has_left(double_store: DynamoStore) -> None:
    """Another function changes the job between the query of the index and the read of the record."""
    double_store.create_job(job(), "")

    def start(call: Any, request: dict[str, Any]) -> Any:
        found = double_store.load_job(JOB)
        if found is not None and found.status is JobStatus.QUEUED:
            double_store.save_job(replace(found, status=JobStatus.RUNNING))
        return call(**request)

    moving = meddled(double_store, "batch_get_item", start)
    assert moving.jobs_in((JobStatus.QUEUED,), 10) == ()
    assert [one.job_id for one in moving.jobs_in((JobStatus.RUNNING,), 10)] == [JOB]
    assert [one.status for one in moving.list_jobs(None, 10, None).jobs] == [JobStatus.RUNNING]


def test_every_page_of_an_index_is_read(double_store: DynamoStore) -> None:
    """However small the pages are."""
    for n in range(5):
        double_store.create_job(job(f"job-{n}", queued_at=later(n), deadline_at=later(n)), "")
        double_store.save_instance(instance(f"i-{n}", look_at=later(n)))
    paged = meddled(double_store, "query", one_at_a_time)
    assert [one.job_id for one in paged.jobs_in((JobStatus.QUEUED,), 4)] == [f"job-{n}" for n in range(4)]
    assert len(paged.instances_in([InstanceStatus.AVAILABLE])) == 5
    assert set(paged.due_jobs(later(3))) == {f"job-{n}" for n in range(4)}
    assert set(paged.due_instances(later(9))) == {f"i-{n}" for n in range(5)}


def test_keys_that_dynamodb_leaves_over_are_asked_for_again(double_store: DynamoStore) -> None:
    """A throttled batch answers in part; over a hundred keys are several batches."""
    for n in range(103):
        double_store.create_job(job(f"job-{n:03d}", queued_at=later(n)), "")

    def in_part(call: Any, request: dict[str, Any]) -> Any:
        (name, wanted), *_ = request["RequestItems"].items()
        keys = wanted["Keys"]
        assert len(keys) <= 100
        answer = call(RequestItems={name: {**wanted, "Keys": keys[:60]}})
        rest = {name: {**wanted, "Keys": keys[60:]}} if keys[60:] else {}
        return {**answer, "UnprocessedKeys": rest}

    partial = meddled(double_store, "batch_get_item", in_part)
    assert [one.job_id for one in partial.jobs_in((JobStatus.QUEUED,), 200)] == [f"job-{n:03d}" for n in range(103)]


@pytest.mark.parametrize(("queued_at", "name"), [("", JOB), ("yesterday", JOB), ("2026-11-21T09:00:00Z", "")])
def test_a_forged_place_in_a_listing_is_refused(double_store: DynamoStore, queued_at: str, name: str) -> None:
    """DynamoDB would call it a mistake of ours."""
    place = {"status": "QUEUED", "queued_at": queued_at, "job_id_rank": name}
    with pytest.raises(CursorInvalid):
        double_store.list_jobs(None, 10, base64.urlsafe_b64encode(json.dumps(place).encode()).decode())


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("put_item", lambda store: store.create_job(job(), "")),
        ("put_item", lambda store: store.save_job(job())),
        ("update_item", lambda store: store.add_running(JOB, 1, 0)),
        ("update_item", lambda store: store.remove_finished_job_commands(job(), (), {})),
        ("get_item", lambda store: store.load_job(JOB)),
    ],
)
def test_only_a_failed_condition_is_an_answer(double_store: DynamoStore, operation: str, act: Any) -> None:
    """Any other error of DynamoDB is raised: it says nothing about the record."""

    def refuse(call: Any, request: dict[str, Any]) -> Any:
        raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, operation)

    with pytest.raises(ClientError, match="ProvisionedThroughput"):
        act(meddled(double_store, operation, refuse))


# -- a lost answer -----------------------------------------------------------------------------------------------------


def sent_twice(call: Any, request: dict[str, Any]) -> Any:
    """The answer to the first request is lost, so botocore sends the request again."""
    with suppress(ClientError):
        call(**request)
    return call(**request)


@pytest.mark.parametrize("done", [(), (f"{JOB}/1/1",)], ids=["alone", "with a finished command"])
def test_a_command_is_put_off_once_although_the_answer_is_lost(
    double_store: DynamoStore, done: tuple[str, ...]
) -> None:
    """Its number of deferrals shows later whether a try was cut off: a reboot is sent a second time otherwise."""
    first, second = pending(JOB, 1), pending(JOB, 2)
    double_store.create_job(job(commands=(first, second)), "")
    record = double_store.load_job(JOB)
    assert record is not None
    lossy = meddled(double_store, "update_item", sent_twice)
    lossy.remove_finished_job_commands(record, done, {second.command_id: later(9)})
    after = double_store.load_job(JOB)
    assert after is not None
    (put_off,) = [one for one in after.commands if one.command_id == second.command_id]
    assert (put_off.refusals, put_off.acting_until) == (1, later(9))
    assert [one.command_id for one in after.commands if one != put_off] == [] if done else [first.command_id]
    taken_over_and_cut_off = replace(put_off, tries=put_off.tries + 2)
    assert previous_try_died(taken_over_and_cut_off) and not previous_try_died(replace(put_off, tries=2))


def test_a_repeated_settling_changes_nothing_further(double_store: DynamoStore) -> None:
    """Also with many commands, which need several writes: the record is not written again after its last change."""
    many = tuple(pending(A, n) for n in range(1, 131))
    double_store.save_instance(instance(A, commands=many))
    record = double_store.load_instance(A)
    assert record is not None
    done = [one.command_id for one in many[:120]]
    deferred = {one.command_id: later(9) for one in many[120:]}
    double_store.remove_finished_instance_commands(record, done, deferred)
    after = double_store.load_instance(A)
    double_store.remove_finished_instance_commands(record, done, deferred)
    assert double_store.load_instance(A) == after and after is not None
    assert [one.refusals for one in after.commands] == [1] * 10


def test_a_command_that_another_function_put_off_meanwhile_stays_as_it_is(double_store: DynamoStore) -> None:
    """A function that comes late must not shorten the wait of the command."""
    order = pending(JOB, 1)
    double_store.create_job(job(commands=(order,)), "")
    late = double_store.load_job(JOB)
    assert late is not None
    double_store.remove_finished_job_commands(late, (), {order.command_id: later(60)})
    double_store.remove_finished_job_commands(late, (), {order.command_id: later(9)})
    after = double_store.load_job(JOB)
    assert after is not None and [(one.refusals, one.acting_until) for one in after.commands] == [(1, later(60))]
