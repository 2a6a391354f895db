"""The simulator's world with AWS put back in: the production `aws/` package through botocore, faults and all.

The clock, the machines, what runs on them and the invariants are the simulator's. Store and actions are the
product's own, on the clients that the product configures.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import boto3
import pytest
from gpu_recovery.aws import parallel_calls
from gpu_recovery.aws.actions import AwsActions
from gpu_recovery.aws.clients import client
from gpu_recovery.aws.dynamodb import plain
from gpu_recovery.aws.instance_store import _instance
from gpu_recovery.aws.job_store import _job
from gpu_recovery.aws.parallel_calls import WorkerThreads
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.commands import NotifyOperator
from gpu_recovery.core.health_check import Verdict
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.job_api.submission import submit
from gpu_recovery.recovery import Recovery

from sandbox.cluster.model.records import ModelInstance
from simulator.invocations import Effect
from simulator.lambda_runtime import RETRIES_S
from simulator.world import World
from simulator.world_builder import TRAINING_FAMILY
from tests.aws.deployed_tables import create_tables
from tests.aws.environment import FUNCTION
from tests.platform.cloud import Cloud, Fault, Request

SUBMISSIONS_MAX = 10
IN_TURN = WorkerThreads(1).each
"""Work in the caller's thread: faults fall on the same calls in every run of a seed."""


def put_document(s3: Any, bucket: str, key: str, check_id: str, verdict: Verdict) -> None:
    """Write a verdict document to S3, as the container of the check does."""
    document = {
        "schema_version": 1,
        "check_id": check_id,
        "outcome": verdict.outcome.value,
        "summary": verdict.summary,
        "boot_id": verdict.boot_id,
        "booted_at": verdict.booted_at.isoformat() if verdict.booted_at else None,
        "findings": [],
    }
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(document).encode())


class PlatformWorld(World):
    """One run against `fault`, which begins once the machines have registered.

    loses_failed: an event whose invocation failed is not delivered again.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, fault: Fault | None = None, loses_failed: bool = False, **given: Any
    ) -> None:
        self.loses_failed = loses_failed
        self.cloud = Cloud()
        told = LambdaSettings.from_environment(FUNCTION)
        quiet = self.cloud.quiet_client
        create_tables(quiet("dynamodb"), told.job_table, told.instance_table)
        store = DynamoStore(quiet("dynamodb"), told.job_table, told.instance_table)
        quiet("s3").create_bucket(Bucket=told.verdict_bucket)
        quiet("sns").create_topic(Name=told.topic_arn.rsplit(":", 1)[-1])
        quiet("events").create_event_bus(Name=told.bus_name)
        name = told.scheduler_queue_url.rsplit("/", 1)[-1]
        quiet("sqs").create_queue(QueueName=name, Attributes={"FifoQueue": "true"})
        self._job_table, self._instance_table = told.job_table, told.instance_table
        self._decoded: dict[tuple[str, str], tuple[str, Any]] = {}
        self.published: list[str] = []
        self.mutations: list[Request] = []
        super().__init__(store=store, **given)
        self.checks.on_document = partial(put_document, quiet("s3"), told.verdict_bucket)
        self.settings = replace(told, policy=self.policy, check_task_definition=self.actions.check_task.task_definition)
        self.cloud.connect(self.fleet, self.definitions)
        self.cloud.happened = self._happened
        monkeypatch.setattr(boto3, "client", self.cloud.client)
        monkeypatch.setattr(parallel_calls, "in_parallel", IN_TURN)
        self.recovery = self.production()
        if fault is not None:
            self.cloud.fault = fault

    def production(self) -> Recovery:
        """The loop as `aws/wiring.py` puts it together."""
        actions = AwsActions(self.settings, self.timeline.clock)
        made = DynamoStore(client("dynamodb"), self.settings.job_table, self.settings.instance_table)
        actions.ecs.rate = None  # the world has no clock that a wait could advance
        return replace(self.recovery, store=made, actions=actions, for_each=IN_TURN)

    def invoke(self, name: str, work: Callable[[], object], tried: int = 0) -> None:
        """As the world's."""
        super().invoke(name, work, len(RETRIES_S) if self.loses_failed else tried)

    # -- what took effect ----------------------------------------------------------------------------------------------

    def _happened(self, request: Request) -> None:
        self.mutations.append(request)
        asked: Mapping[str, Any] = request.asked
        if request.operation == "RebootInstances":
            asked = {"instance": asked["InstanceId.1"]}
        step = Effect(len(self.invocations.done), "", request.operation, asked)
        self.guard.before_effect(step)
        self.invocations.done.append(step)
        if request.service in ("ecs", "ec2"):
            self.transcript.ordered(step)
        elif request.operation == "Publish":
            self._notified(asked)
        elif request.operation == "PutEvents":
            self.published += [entry["DetailType"] for entry in asked["Entries"]]
        elif request.operation == "SendMessage":
            message = json.loads(asked["MessageBody"])
            self._poked(message["key"], message["hops"])

    def _notified(self, asked: Mapping[str, str]) -> None:
        attributes = {
            asked[f"MessageAttributes.entry.{n}.Name"]: asked[f"MessageAttributes.entry.{n}.Value.StringValue"]
            for n in range(1, 10)
            if f"MessageAttributes.entry.{n}.Name" in asked
        }
        said = NotifyOperator(attributes["incident_id"], attributes["severity"], asked["Subject"], asked["Message"])
        self.actions.notified.append((self.timeline.now, said))
        self.transcript.message_sent(said)

    # -- records, read past botocore: the invariants ask after every step ----------------------------------------------

    def jobs(self) -> tuple[Job, ...]:
        return tuple(self._records(self._job_table, _job))

    def job(self, job_id: str) -> Job:
        return next(job for job in self.jobs() if job.job_id == job_id)

    def instances(self) -> tuple[Instance, ...]:
        return tuple(self._records(self._instance_table, _instance))

    def _records(self, table: str, decoded: Any) -> Iterator[Any]:
        for key, item in self.cloud.dynamodb.tables[table].items.items():
            if "status" not in item:
                continue
            revision = item["revision"]["N"]
            known = self._decoded.get((table, key))
            if known is None or known[0] != revision:
                known = (revision, decoded(plain(item)))
                self._decoded[(table, key)] = known
            yield known[1]

    # -- people --------------------------------------------------------------------------------------------------------

    def submit(self, nnodes: int = 2, gpus: int = 8, **more: Any) -> str:
        """As the world's; a client whose request failed looks whether its job is there, and else submits it again."""
        document = {"workload": "sft", "nnodes": nnodes, "n_gpus_per_node": gpus, "task_definition": TRAINING_FAMILY}
        names = (f"{number:04x}" for number in itertools.count(1))
        for _ in range(SUBMISSIONS_MAX):
            with contextlib.suppress(Exception):
                submit(self.recovery, document | more, "", "", self._described, lambda: next(names))
            if self.jobs():
                return self.jobs()[0].job_id
        raise AssertionError("no submission was taken")

    def machine_of(self, job_id: str, rank: int) -> ModelInstance:
        """Where a rank runs."""
        return self.cluster.instances[self.rank(job_id, rank).instance_id]
