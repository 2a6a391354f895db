"""The functions as Lambda runs them: the deployed environment, a double of DynamoDB, every call counted."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import Any

import boto3
import pytest
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job

from tests.aws.counted_aws import CountedAws, refuses_nothing
from tests.aws.deployed_tables import create_history_table, create_tables
from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.aws.records import JOB, NOW, A
from tests.lambdas.roles import refuses

HANDLERS = (
    "ecs_task_handler",
    "dcgm_task_monitor",
    "ecs_instance_monitor",
    "reconciler",
    "scheduler",
    "command_executor",
    "event_recorder",
    "job_api",
    "node_api",
)
EXECUTOR = FUNCTION["COMMAND_EXECUTOR_FUNCTION"]
WARM = (
    *HANDLERS,
    "gpu_recovery.aws.wiring",
    "gpu_recovery.aws.api_wiring",
    "gpu_recovery.aws.event_history_wiring",
    "gpu_recovery.aws.node_api_wiring",
    "gpu_recovery.aws.snapshot_wiring",
    "gpu_recovery.aws.ecs",
    "gpu_recovery.aws.secret_values",
    "gpu_recovery.aws.dead_letters",
    "gpu_recovery.aws.container_logs",
    "gpu_recovery.aws.ray_client",
    "gpu_recovery.aws.job_api_wiring",
)
"""The modules that keep something from one invocation to the next."""


@dataclass
class Context:
    """What Lambda gives a handler beside the event."""

    function_name: str
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:us-east-1:123456789012:function:f"
    aws_request_id: str = "52fdfc07-2182-154f-163f-5f0f9a621d72"
    left_s: float = 110.0

    def get_remaining_time_in_millis(self) -> int:
        """The time until the function's timeout."""
        return int(self.left_s * 1000)


@dataclass
class Functions:
    """Cold functions, and what is behind them."""

    aws: CountedAws
    store: DynamoStore
    log: io.StringIO
    now: datetime = field(default=NOW)
    left_s: float = 110.0

    def call(self, name: str, event: dict[str, Any]) -> Any:
        """What the handler answers; the calls are counted anew. AWS refuses what the function's role does not allow."""
        self.aws.forget()
        self.aws.refuses = partial(refuses, name)
        try:
            return import_module(name).handler(event, Context(name, left_s=self.left_s))
        finally:
            self.aws.refuses = refuses_nothing

    def wake_ups(self) -> list[dict[str, Any]]:
        """The requests to the command executor since the calls were counted anew."""
        asked = self.aws.asked("Invoke")
        return [json.loads(each["Payload"]) for each in asked if each["FunctionName"] == EXECUTOR]

    def wake(self) -> None:
        """Run the command executor for each request to it of the last function; the calls are counted anew."""
        calls = []
        for request in self.wake_ups():
            self.call("command_executor", request)
            calls += self.aws.calls
        self.aws.calls[:] = calls

    def job(self, job_id: str = JOB) -> Job:
        """The record, which must be there."""
        found = self.store.load_job(job_id)
        assert found is not None
        return found

    def instance(self, instance_id: str = A) -> Instance:
        """The record, which must be there."""
        found = self.store.load_instance(instance_id)
        assert found is not None
        return found

    def kept(self) -> dict[str, dict[str, Any]]:
        """Every item of both tables by its key, without a call."""
        tables = self.aws.tables.tables.values()
        return {name: dict(item) for table in tables for name, item in table.items.items()}

    def restore(self, kept: dict[str, dict[str, Any]]) -> None:
        """Make both tables as they were when `kept` was taken, without a call."""
        for table in self.aws.tables.tables.values():
            for name in [name for name, item in table.items.items() if kept.get(name) != item]:
                table.delete(name)
            for name, item in kept.items():
                if table.key in item and name not in table.items:
                    table.put(item)

    def chill(self) -> None:
        """Make every function cold again, so that it reads its environment anew."""
        wiring = import_module("gpu_recovery.aws.wiring")
        wiring.settings.cache_clear()
        wiring.recovery.cache_clear()
        for name in {"node_api"} & set(sys.modules):
            sys.modules[name].api.cache_clear()
        for name in {"gpu_recovery.aws.job_api_wiring"} & set(sys.modules):
            sys.modules[name].dependencies.cache_clear()

    def logged(self, message: str) -> list[dict[str, Any]]:
        """The structured lines with this message."""
        lines = [json.loads(line) for line in self.log.getvalue().splitlines()]
        return [line for line in lines if line["message"] == message]


@contextmanager
def every_function(patch: pytest.MonkeyPatch) -> Iterator[Functions]:
    """Every function, cold, on empty tables."""
    for name, value in (FUNCTION | CREDENTIALS).items():
        patch.setenv(name, value)
    aws = CountedAws()
    patch.setattr(boto3, "client", aws.client)
    for name in WARM:
        patch.delitem(sys.modules, name, raising=False)
    wiring = import_module("gpu_recovery.aws.wiring")
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(wiring.logger.registered_formatter)
    wiring.logger.addHandler(handler)
    client = aws.client("dynamodb")
    jobs, instances = FUNCTION["TRAINING_JOB_TABLE_NAME"], FUNCTION["CONTAINER_INSTANCE_TABLE_NAME"]
    create_tables(client, jobs, instances)
    create_history_table(client, FUNCTION["EVENT_HISTORY_TABLE_NAME"])
    made = Functions(aws, DynamoStore(client, jobs, instances), log)
    patch.setattr(wiring, "utc_now", lambda: made.now)
    yield made
    logging.getLogger(wiring.logger.name).removeHandler(handler)
    for name in WARM:
        sys.modules.pop(name, None)


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    """Every function, as long as the test."""
    with every_function(monkeypatch) as made:
        yield made
