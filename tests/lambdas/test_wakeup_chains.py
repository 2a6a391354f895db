"""The scheduler wakes itself by its own queue: each chain of messages ends, and the clock's next message goes on."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.execution.context import HOPS_MAX
from gpu_recovery.scheduler import schedule as schedule_module

from tests.aws.records import A, instance, job, later, spec
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
LAMBDA_STOPS_AT = 16
"""Invocations in a row after which Lambda's detection of recursive loops stops a function, by its documentation."""


class Queue:
    """The scheduler's queue: each message is an invocation of its own. `chains`: the invocations of each chain."""

    def __init__(self, functions: Functions) -> None:
        self.functions, self.chains = functions, list[int]()
        self.sent: deque[dict[str, Any]] = deque()
        functions.aws.answers["SendMessage"] = self._send

    def _send(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.sent.append(json.loads(asked["MessageBody"]))
        return {"MessageId": "m"}

    def deliver(self, body: dict[str, Any]) -> None:
        """Deliver the message and all that follow from it."""
        self.chains.append(0)
        self.sent.append(body)
        while self.sent:
            self.chains[-1] += 1
            assert self.chains[-1] < 100, "the chain never ends"
            self.functions.call("scheduler", {"Records": [{"body": json.dumps(self.sent.popleft())}]})

    def tick(self) -> None:
        """Deliver the message of the clock."""
        self.deliver({"detail-type": "Scheduled Event", "id": f"tick-{len(self.chains)}", "source": "aws.events"})


def _submit(functions: Functions, count: int, nodes: int = 1) -> list[str]:
    names = [f"sft-{number:04}" for number in range(count)]
    for number, name in enumerate(names):
        functions.store.create_job(job(name, spec=spec(nnodes=nodes, gpus_per_node=8), queued_at=later(number)), "")
    return names


def _refuse(asked: dict[str, Any]) -> dict[str, Any]:
    error = {"Code": "ClientException", "Message": "TaskDefinition is inactive"}
    raise ClientError({"Error": error}, "RunTask")


@pytest.mark.slow
def test_a_line_of_jobs_that_fail_at_launch_is_gone_through_in_chains_that_end(functions: Functions) -> None:
    """Twenty jobs take turns on one machine; each failure wakes the scheduler for the next job."""
    functions.store.save_instance(instance(A))
    functions.aws.answers["RunTask"] = _refuse
    names = _submit(functions, 20)
    queue = Queue(functions)
    queue.deliver({"key": f"{names[0]}/1", "hops": 1})
    assert queue.chains == [HOPS_MAX]
    queue.tick()
    assert {functions.job(name).status for name in names} == {JobStatus.FAILED}
    assert max(queue.chains) <= HOPS_MAX + 1 < LAMBDA_STOPS_AT


def test_a_line_of_jobs_without_a_permission_is_held_after_one_launch(functions: Functions) -> None:
    """The denied job wakes the scheduler once for the others, which are told why they wait."""
    functions.store.save_instance(instance(A))
    functions.aws.denied["gpu-training:3"] = "User: u is not authorized to perform: iam:PassRole on resource: r"
    names = _submit(functions, 20)
    queue = Queue(functions)
    queue.deliver({"key": f"{names[0]}/1", "hops": 1})
    assert queue.chains[0] < HOPS_MAX
    assert {functions.job(name).status for name in names} == {JobStatus.PENDING_RESOURCES}
    assert sum(functions.job(name).attempt for name in names) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("waiting", "at_once"), [(54, 3), pytest.param(3_600, 200, marks=pytest.mark.full)])
def test_a_long_line_is_told_what_it_waits_for_in_chains_that_end(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, waiting: int, at_once: int
) -> None:
    """Eighteen passes tell all jobs; the tick after the tenth pass goes on with the eleventh."""
    monkeypatch.setattr(schedule_module, "WAIT_EVENTS_MAX", at_once)
    functions.store.save_instance(instance(A))
    names = _submit(functions, waiting, nodes=2)
    queue = Queue(functions)
    queue.deliver({"key": f"{names[0]}/1", "hops": 1})
    assert queue.chains == [HOPS_MAX]
    queue.tick()
    assert {functions.job(name).status for name in names} == {JobStatus.PENDING_RESOURCES}
    assert max(queue.chains) <= HOPS_MAX + 1 < LAMBDA_STOPS_AT


@pytest.mark.parametrize("body", [{}, {"hops": "many"}])
def test_a_message_without_a_count_begins_a_chain(functions: Functions, body: dict[str, Any]) -> None:
    """An older release sent such messages."""
    functions.store.save_instance(instance(A))
    functions.aws.answers["RunTask"] = _refuse
    first, second = _submit(functions, 2)
    queue = Queue(functions)
    queue.deliver({"key": f"{first}/1", **body})
    assert queue.chains[0] > 1
    assert {functions.job(name).status for name in (first, second)} == {JobStatus.FAILED}
