"""The items that the stores write, as they lie in DynamoDB: one of each kind, and the indexes that are asked.

The values come from the records of the tests, so every character that is seen here is a key, an attribute or a format.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import boto3
from boto3.dynamodb.types import Binary
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import Token, TokenKind, TokenList
from gpu_recovery.aws.dynamodb import plain
from gpu_recovery.aws.rank_parts import PART_RANKS
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.aws.submission_store import DynamoSubmissions
from gpu_recovery.aws.token_store import DynamoTokenStore, DynamoUserTokenStore
from gpu_recovery.core.attempt import Plan, RankTask
from gpu_recovery.core.diagnosis.observations import ProbeReport
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.gpu_lock import GpuLockRecord
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, Heartbeat, RankHeartbeat
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.entry import LastPass
from gpu_recovery.core.queue.run_time_estimates import RunTime
from gpu_recovery.core.state_machine import QuotaChange
from gpu_recovery.job_api.submission import Submission
from moto import mock_aws

from tests.aws.deployed_tables import create_tables
from tests.aws.environment import CREDENTIALS, REGION
from tests.aws.records import JOB, NOW, OTHER_JOB, A, B, checked, claim, failure, instance, job, later, pending, plan

JOBS, INSTANCES = "jobs", "instances"
SPOKEN = "0123456789abcdef"
ON_RAY = "ray-20261121-090002-0123"


def items() -> dict[str, Any]:
    """The items of both tables by key, and the (index, key condition) of every query."""
    asked = set[str]()
    with patch.dict(os.environ, CREDENTIALS), mock_aws():
        client = boto3.client("dynamodb", region_name=REGION)
        create_tables(client, JOBS, INSTANCES)
        client.meta.events.register(
            "provide-client-params.dynamodb.Query", lambda params, **_: asked.add(_told(params))
        )
        store = DynamoStore(client, JOBS, INSTANCES)
        _write_jobs(store)
        _write_attempt(store)
        _write_instances(store)
        _write_tokens(client)
        _ask(store)
        return {
            "job table": dict(_lying(client, JOBS, "job_id_rank")),
            "instance table": dict(_lying(client, INSTANCES, "container_inst_id")),
            "queries": sorted(asked),
        }


def _write_jobs(store: DynamoStore) -> None:
    waiting = job(look_at=later(60), commands=(pending(JOB, 0),))
    store.create_job(waiting, '{"workload": "sft"}')
    ran = QuotaChange("user/ana", 2, store.begin_term(), RunTime("ana/sft/2x8", 3, 600), NOW)
    placed = job(OTHER_JOB, status=JobStatus.RUNNING, instances=(A, B), attempt=1, running_at=NOW, revision=1)
    store.create_job(replace(placed, revision=0), "")
    store.save_job(placed, ran)
    on_ray = job(ON_RAY)
    store.create_job(replace(on_ray, spec=replace(on_ray.spec, backend=Backend.RAY, entrypoint="python train.py")), "")
    store.save_pass(LastPass(1, NOW, later(60), 1, NOW))
    store.save_limits({"instances": {"ana": 4}}, 0)
    store.mark_notified("incident", later(60))
    store.save_agent_task("task-of-the-agent", A, later(60))
    store.save_lock(GpuLockRecord(JOB, "gpu-0", "train", "4242", A, 1, NOW, later(60)), NOW)


def _write_attempt(store: DynamoStore) -> None:
    store.begin_attempt(plan())
    store.record_tasks(replace(plan(), task_ids=("task-0", "")), (0,))
    store.record_task(JOB, 1, 1, RankTask("task-1", A))
    store.add_running(JOB, 1, 1)
    store.add_stopped(JOB, 1, 0, failure(0))
    store.add_checked(JOB, 1, 0, checked())
    _write_large_attempt(store)
    probe = ProbeReport(report_id="r-1", at_s=1_795_251_600.0, instance_id=A, rank=0, probe="DCGM r1", passed=True)
    store.add_observations(JOB, 1, A, (probe,), lost=2)


def _write_large_attempt(store: DynamoStore) -> None:
    """Write a gang in two parts, of which the second is complete. The first has unnamed instances."""
    unknown = ("",) * PART_RANKS
    store.begin_attempt(Plan(OTHER_JOB, 1, (*unknown, A), task_ids=(*unknown, "task-64")))
    store.add_running(OTHER_JOB, 1, PART_RANKS)
    store.add_stopped(OTHER_JOB, 1, PART_RANKS, failure(PART_RANKS))
    store.add_checked(OTHER_JOB, 1, PART_RANKS, checked())


def _write_instances(store: DynamoStore) -> None:
    store.save_instance(instance(A, look_at=later(60), commands=(pending(A, 0),)), Fleet(gpu_instances=2))
    store.remember_registration(instance(A))
    store.claim_instance(A, JOB, claim(), 0)
    rank = RankHeartbeat(JOB, 1, 0, NOW, 4)
    heard = Heartbeat(A, NOW, "boot", NOW, 1, 15, {"77": rank, "78": rank}, run=SPOKEN)
    store.save_heartbeat(heard, present=True)
    store.save_heartbeat(replace(heard, sequence=2, seen_at=later(15)), present=True, by="0123456789ab")
    store.mark_heartbeat_missing(A, later(15))
    store.mark_rank_heartbeat_missing(A, 77, NOW)
    store.mark_duplicate_agent(A, later(20))
    store.add_agent_command(A, AgentCommand("stop/1", AgentCommandKind.STOP, JOB, 1, 30))
    store.save_inventory(A, "sha256:1f", '{"gpus": []}', NOW)


def _write_tokens(client: Any) -> None:
    node = Token(TokenKind.NODE, "0123456789ab", A, "ab" * 32, NOW, later(60), "an operator")
    DynamoTokenStore(client, INSTANCES).save_token(TokenList(TokenKind.NODE, A, (node,)), node)
    user = Token(TokenKind.USER, "cdef01234567", "ana", "cd" * 32, NOW, later(60), "an operator", role=Role.USER)
    DynamoUserTokenStore(client, JOBS).save_token(TokenList(TokenKind.USER, "ana", (user,)), user)
    submission = Submission("key-1", "ef" * 32, f"{JOB}-2", later(60))
    DynamoSubmissions(client, JOBS, INSTANCES).save(job(f"{JOB}-2"), '{"workload": "sft"}', submission, NOW)


def _ask(store: DynamoStore) -> None:
    store.jobs_in((JobStatus.QUEUED,), 10)
    store.jobs_on_ray()
    store.load_queue()
    store.load_ray_queue()
    store.instances_in(())
    list(store.due_jobs(NOW))
    list(store.due_instances(NOW))


def _told(params: dict[str, Any]) -> str:
    condition = params["KeyConditionExpression"]
    for placeholder, name in params["ExpressionAttributeNames"].items():
        condition = condition.replace(placeholder, name)
    return f"{params['TableName']} {params['IndexName']}: {condition}"


def _lying(client: Any, table: str, key: str) -> Iterator[tuple[str, Any]]:
    for raw in client.scan(TableName=table)["Items"]:
        item = {name: _readable(value) for name, value in plain(raw).items()}
        yield item[key], item


def _readable(value: Any) -> Any:
    """A value of DynamoDB in JSON; a set says that it is one, and what is packed is unpacked."""
    match value:
        case Binary() | bytes():
            return {"compressed": json.loads(zlib.decompress(bytes(value)))}
        case set():
            return {"set": sorted(_readable(one) for one in value)}
        case Decimal():
            return int(value)
        case dict():
            return {name: _readable(one) for name, one in value.items()}
        case list() if value == [""] * PART_RANKS:
            return {"empty texts": PART_RANKS}
        case list():
            return [_readable(one) for one in value]
    return value
