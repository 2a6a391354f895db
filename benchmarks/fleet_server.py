"""Server of a large fleet: DynamoDB tables, ECS and EC2 on loopback, in a process of their own.

The measured program is another process. So its processor time and memory are those of the product, of botocore and of
HTTP, as in a Lambda function. The server counts calls, and DynamoDB's bytes and read units from the sizes of items.
"""

from __future__ import annotations

import gc
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl

from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.heartbeat_store import heartbeat_key
from gpu_recovery.aws.heartbeat_update import counts_key, rank_text
from gpu_recovery.aws.instance_store import instance_item
from gpu_recovery.aws.item_codec import SCHEMA, encode, to_iso
from gpu_recovery.aws.job_store import job_item
from gpu_recovery.aws.queue_store import QUOTA
from gpu_recovery.core.heartbeat import GpuHealth, RankHeartbeat, running_log_id, window_of
from gpu_recovery.core.instance.record import Claim, Instance
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import RejectionKind
from gpu_recovery.core.state_machine import HistoryEntry

from simulator.dynamodb.botocore_handler import respond
from simulator.dynamodb.capacity_meter import CapacityMeter
from simulator.dynamodb.double import DynamoDb
from tests.aws.deployed_tables import create_history_table, create_tables
from tests.aws.environment import FUNCTION

JOBS, INSTANCES = "ecs-job-sub", "ecs_container_instance"
HISTORY = 60
"""History entries of each record: the default of `history_max`."""
GPUS, USERS, GANG = 8, 50, 4
"""GPUs of an instance, number of users, and instances of a running job."""
SHAPES = (1, 1, 2, 4, 8, 16)
"""Instances that the waiting jobs ask for, in turn."""
ARN = "arn:aws:ecs:us-east-1:123456789012"
_PAGE = 100
"""Container instances in one answer of ECS."""


def instance_name(number: int) -> str:
    """Return an EC2 instance id. The digits are spread as in real ids."""
    return f"i-{(number * 0x9E3779B97F4A7C15) % (1 << 64):017x}"


def registration(number: int) -> str:
    """Return the container instance id of the instance `number`."""
    return f"{(number * 0xD1342543DE82EF95 + 1) % (1 << 128):032x}"


def history(now: datetime) -> list[HistoryEntry]:
    """Return as many decisions as a record holds, with sentences of usual length."""
    reason = "its agent reports again after 94 s; the tasks on it were not affected, and nothing has to be done"
    return [
        HistoryEntry(now - timedelta(hours=n), "AVAILABLE", "AVAILABLE", "InstanceObserved", n % 5, f"{n}: {reason}")
        for n in range(HISTORY)
    ]


def gang_of(number: int) -> int:
    """Return the number of the job that runs on the instance `number`."""
    return number // GANG


def job_name(number: int) -> str:
    """Return the id of a job."""
    return f"sft-20260101-{number // 3600 % 24:02d}{number // 60 % 60:02d}{number % 60:02d}-{number:06x}"


def instance_of(number: int, now: datetime) -> Instance:
    """Return an instance that runs a rank, without its history."""
    claims = {job_name(gang_of(number)): Claim(1, GPUS, 0, number % GANG, 3)}
    return Instance(
        instance_name(number),
        now - timedelta(days=3),
        reason="registered with 8 GPUs; nothing is known against it",
        version=90,
        revision=300,
        container_instance_id=registration(number),
        ecs_version=240,
        gpus=GPUS,
        gpus_free=0,
        gpus_most=GPUS,
        availability_zone="us-east-1a",
        rack=f"rack-{number // 16}",
        epoch=3,
        claims=claims,
        checks=4,
        checked_for=(f"{job_name(gang_of(number))}--a01",),
        boot_id=f"0b7c1d2e-1111-4222-8333-{number:012d}",
        booted_at=now - timedelta(days=9),
        boot_heard_at=now - timedelta(days=9),
    )


def job_of(number: int, placed: int, now: datetime) -> Job:
    """Return a job without its history. The first `placed` jobs run, the others wait and know why."""
    spec = JobSpec("sft", GANG, GPUS, "gpu-training:3", "main", ("python", "train.py"), {}, f"user-{number % USERS}")
    if number < placed:
        members = tuple(instance_name(number * GANG + rank) for rank in range(GANG))
        at = now - timedelta(seconds=60)
        return Job(
            job_name(number),
            replace(spec, priority=Priority.HIGH),
            queued_at=at,
            status_at=at,
            status=JobStatus.RUNNING,
            attempt=1,
            instances=members,
            running_at=at,
            quota_nodes=GANG,
        )
    waits = replace(
        spec, nnodes=SHAPES[number % len(SHAPES)], priority=(Priority.NORMAL, Priority.LOW)[number // USERS % 2]
    )
    at = now - timedelta(seconds=1_000_000 - number)
    short_of = RejectionKind.GPUS if number == placed else RejectionKind.TURN
    status = JobStatus.PENDING_RESOURCES
    return Job(job_name(number), waits, queued_at=at, status_at=at, status=status, short_of=short_of)


def heartbeat_item(number: int, now: datetime) -> dict[str, Any]:
    """Return the heartbeat of an instance that runs a rank."""
    rank = RankHeartbeat(job_name(gang_of(number)), 1, number % GANG, now, 4_000)
    window = window_of(now)
    return {
        "container_inst_id": heartbeat_key(instance_name(number)),
        "schema": SCHEMA,
        "seen_at": to_iso(now),
        "boot_id": f"0b7c1d2e-1111-4222-8333-{number:012d}",
        "booted_at": to_iso(now - timedelta(days=9)),
        "sequence": 9_000,
        "interval_s": 15,
        "health": GpuHealth.OK.value,
        "run": "0123456789abcdef",
        "runs": ["0123456789abcdef"],
        "ranks": {str(running_log_id(rank.job_id, 1, rank.rank)): rank_text(rank)},
        "orders": {},
        "window": window,
        counts_key(window): {"0123456789ab": 7},
        counts_key(window + 1): {},
    }


def fill(service: DynamoDb, instances: int, jobs: int) -> None:
    """Create the tables and write the fleet: every record has a full history, every instance a heartbeat.

    Args:
        service: the empty double.
        instances: number of instances.
        jobs: number of waiting jobs. All instances run further jobs, so no waiting job can start.
    """
    create_tables(_Creating(service), JOBS, INSTANCES)
    create_history_table(_Creating(service), FUNCTION["EVENT_HISTORY_TABLE_NAME"])
    now = datetime.now(UTC)
    past = typed({"history": encode(history(now))})["history"]  # one list, which all items share
    placed = instances // GANG

    def put(table: str, item: Mapping[str, Any], with_history: bool = True) -> None:
        made = typed(item)
        service.tables[table].put(made | {"history": past} if with_history else made)

    for number in range(instances):
        put(INSTANCES, instance_item(instance_of(number, now)))
        put(INSTANCES, heartbeat_item(number, now + timedelta(seconds=600)), with_history=False)
    for number in range(placed + jobs):
        put(JOBS, job_item(job_of(number, placed, now)))
    for number in range(USERS):
        put(JOBS, {"job_id_rank": f"{QUOTA}user-{number}/NORMAL/", "used": placed * GANG // USERS}, with_history=False)


class _Creating:
    """The methods of a client that `create_tables` calls, on the double."""

    def __init__(self, service: DynamoDb) -> None:
        self._service = service

    def create_table(self, **request: Any) -> None:
        """Create a table."""
        self._service.call("CreateTable", request)

    def put_item(self, **request: Any) -> None:
        """Write an item."""
        self._service.call("PutItem", request)


class FleetServer(ThreadingHTTPServer):
    """Answers DynamoDB, ECS, EC2 and Secrets Manager for one fleet, and counts.

    Args:
        instances: number of instances.
        jobs: number of waiting jobs.
    """

    daemon_threads = True

    def __init__(self, instances: int, jobs: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.instances = instances
        self.dynamodb, self.counted, self.lock = DynamoDb(), Counter[str](), Lock()
        self.objects: dict[str, bytes] = {}
        self.meter = self.dynamodb.meter = CapacityMeter()
        fill(self.dynamodb, instances, jobs)
        self.meter.clear()

    def counts(self) -> dict[str, float]:
        """Return the calls by operation, and what DynamoDB bills for the reads, since the last question."""
        with self.lock:
            units = {"read_units": sum(self.meter.reads.values()), "bytes_read": self.meter.bytes_read}
            counted: dict[str, float] = {**self.counted, **units}
            self.counted.clear()
            self.meter.clear()
            return counted

    def answer(self, target: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of the answer to one request."""
        service, _, operation = target.partition(".")
        with self.lock:
            self.counted["calls"] += 1
            self.counted[operation or "DescribeInstanceStatus"] += 1
            if service.startswith("DynamoDB"):
                status, content, headers = respond(self.dynamodb, target, body)
                self._count(json.loads(content))
                return status, content, headers
        if not target:
            return 200, self._status_checks(body), {"Content-Type": "text/xml"}
        asked = json.loads(body)
        reply: dict[str, Any] = getattr(self, f"_{operation}", lambda asked: {})(asked)
        return 200, json.dumps(reply).encode(), {"Content-Type": "application/x-amz-json-1.1"}

    def _count(self, found: Mapping[str, Any]) -> None:
        self.counted["dynamodb_calls"] += 1
        items = [*found.get("Items", []), *(item for each in found.get("Responses", {}).values() for item in each)]
        self.counted["histories"] += sum("history" in item for item in items)

    def _GetSecretValue(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"SecretString": "token"}

    def _ListContainerInstances(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if asked["status"] != "ACTIVE":
            return {"containerInstanceArns": []}
        first = int(asked.get("nextToken", 0))
        last = min(first + _PAGE, self.instances)
        arns = [f"{ARN}:container-instance/c/{registration(number)}~{number}" for number in range(first, last)]
        more = {"nextToken": str(last)} if last < self.instances else {}
        return {"containerInstanceArns": arns, **more}

    def _DescribeContainerInstances(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        numbers = [int(arn.rpartition("~")[2]) for arn in asked["containerInstances"]]
        return {"containerInstances": [container_instance(number) for number in numbers]}

    def _GetQueueAttributes(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"Attributes": dict.fromkeys(asked["AttributeNames"], "0")}

    def _ListTasks(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"taskArns": []}

    def _status_checks(self, body: bytes) -> bytes:
        names = [value for key, value in parse_qsl(body.decode()) if key.startswith("InstanceId.")]
        check = "<status>ok</status><details/>"
        items = "".join(
            f"<item><instanceId>{name}</instanceId><instanceState><code>16</code><name>running</name></instanceState>"
            f"<systemStatus>{check}</systemStatus><instanceStatus>{check}</instanceStatus></item>"
            for name in names
        )
        return (
            f"<DescribeInstanceStatusResponse><instanceStatusSet>{items}</instanceStatusSet>"
            "</DescribeInstanceStatusResponse>"
        ).encode()


def container_instance(number: int) -> dict[str, Any]:
    """Return what ECS shows of the instance, as many bytes as it usually shows."""
    gpus = [f"GPU-{number:06d}-{n:026d}" for n in range(GPUS)]
    names = [f"ecs.capability.{n:02d}.of-an-agent" for n in range(40)]
    return {
        "containerInstanceArn": f"{ARN}:container-instance/c/{registration(number)}",
        "ec2InstanceId": instance_name(number),
        "version": 240,
        "status": "ACTIVE",
        "agentConnected": True,
        "registeredResources": [
            {"name": "CPU", "type": "INTEGER", "integerValue": 196_608},
            {"name": "GPU", "type": "STRINGSET", "stringSetValue": gpus},
        ],
        "remainingResources": [{"name": "GPU", "type": "STRINGSET", "stringSetValue": []}],
        "attributes": [
            {"name": "ecs.availability-zone", "value": "us-east-1a"},
            {"name": "gpu-recovery.rack", "value": f"rack-{number // 16}"},
            *({"name": name} for name in names),
        ],
        "healthStatus": {"overallStatus": "OK", "details": []},
    }


class _Handler(BaseHTTPRequestHandler):
    """Reads one request, and has the server answer it."""

    protocol_version = "HTTP/1.1"
    server: FleetServer

    def do_POST(self) -> None:
        """Answer an AWS request."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, content, headers = self.server.answer(self.headers.get("X-Amz-Target", ""), body)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_PUT(self) -> None:
        """Keep an object for S3."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "aws-chunked":
            body = _unchunked(body)
        with self.server.lock:
            self.server.counted["PutObject"] += 1
            self.server.objects[self.path.partition("?")[0]] = body
        self._send(200, b"")

    def do_GET(self) -> None:
        """Return an object of S3."""
        with self.server.lock:
            self.server.counted["GetObject"] += 1
            body = self.server.objects.get(self.path.partition("?")[0])
        self._send(404, b"<Error><Code>NoSuchKey</Code></Error>") if body is None else self._send(200, body)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _unchunked(body: bytes) -> bytes:
    """Return the object in a body of AWS chunks, each after a line with its size in hexadecimal digits."""
    whole = b""
    while body:
        line, _, body = body.partition(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        if size == 0:
            break
        whole, body = whole + body[:size], body[size + 2 :]
    return whole


def serve(instances: int, jobs: int, connection: Connection) -> None:
    """Serve a fleet until the other end closes. Send the port, then the counts since the last question each time.

    Args:
        instances: number of instances.
        jobs: number of waiting jobs.
        connection: receives any object as a question for the counts.
    """
    server = FleetServer(instances, jobs)
    gc.disable()  # a collection of millions of objects would take longer than the timeout of a call
    Thread(target=server.serve_forever, daemon=True).start()
    connection.send(server.server_address[1])
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        connection.send(server.counts())
