"""A small cluster model under a hand-turned clock, and a real server for the tests that need one."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from sandbox import credentials, servers
from sandbox.cluster.model import instances, tasks
from sandbox.cluster.model.cluster import ClusterModel, OperationResult
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.task_definitions import MemoryDefinitions
from tests.sandbox.patience import PATIENCE_S, wait_until

REPOSITORY = Path(__file__).resolve().parents[3]
ACCOUNT, REGION, NAME = "000000000000", "us-east-1", "nwcd-gpu-testing"
SECRET = "the secret of this sandbox"
KEYS = credentials.client_keys(SECRET)


class Scene:
    """Two instances of four GPUs. Every operation happens a second after the one before; events are collected."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
        self.cluster = ClusterModel(NAME, ACCOUNT, REGION)
        self.events: list[dict[str, Any]] = []
        self.definitions = MemoryDefinitions(ACCOUNT, REGION)
        self.train = self.define("train", [self.container("main"), self.container("sidecar", essential=False)])
        for _ in range(2):
            self.do(instances.launch, 4)
        self.first, self.second = self.cluster.instances.values()

    @staticmethod
    def container(name: str, **members: Any) -> dict[str, Any]:
        image = {"name": name, "image": "repo/train:1", "essential": True, "cpu": 100, "memory": 1000}
        return image | {"command": ["true"]} | members

    def define(self, family: str, containers: list[dict[str, Any]]) -> dict[str, Any]:
        answer = self.definitions.register_task_definition(family=family, containerDefinitions=containers)
        return answer["taskDefinition"]

    def do(self, operation: Callable[..., OperationResult], *given: Any, **named: Any) -> dict[str, Any]:
        self.now += timedelta(seconds=1)
        outcome = operation(self.cluster, *given, now=self.now, **named)
        self.events += outcome.events
        return outcome.result

    def request(self, gpus: str = "4", on: ModelInstance | None = None, **members: Any) -> dict[str, Any]:
        override = {"name": "main", "resourceRequirements": [{"type": "GPU", "value": gpus}]}
        base: dict[str, Any] = {"cluster": NAME, "taskDefinition": "train"}
        base["overrides"] = {"containerOverrides": [override]}
        if on is not None:
            expression = f"ec2InstanceId == {on.instance_id}"
            base["placementConstraints"] = [{"type": "memberOf", "expression": expression}]
        return base | members

    def run(self, gpus: str = "4", on: ModelInstance | None = None, **members: Any) -> dict[str, Any]:
        return self.do(tasks.run_task, self.request(gpus, on, **members), self.train)

    def running(self, gpus: str = "4", on: ModelInstance | None = None, **members: Any) -> Task:
        """A task whose process has started."""
        arn = self.run(gpus, on, **members)["tasks"][0]["taskArn"]
        task = self.cluster.tasks[arn.rsplit("/", 1)[-1]]
        self.do(tasks.process_started, task)
        return task

    def told(self, detail_type: str, since: int = 0) -> list[dict[str, Any]]:
        """Details of the events of one kind."""
        return [event["detail"] for event in self.events[since:] if event["detail-type"] == detail_type]


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def new_scene() -> type[Scene]:
    return Scene


class Server:
    """`python -m sandbox.cluster` as a child, its clients, and its /_sandbox paths."""

    def __init__(self, folder: Path, timings: dict[str, float], *more: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "sandbox.cluster", "--state", str(folder), "--timings", json.dumps(timings)]
        environment = os.environ | {credentials.SECRET_VARIABLE: SECRET}
        self.process = subprocess.Popen(
            [*command, *more], cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = json.loads(self.process.stdout.readline())["endpoint_url"]
        self.ecs, self.ec2 = self.client("ecs"), self.client("ec2")
        self.instance_ids = [i["instance_id"] for i in self.get("state")["instances"]]

    def client(self, name: str) -> Any:
        once = Config(retries={"total_max_attempts": 1})
        return boto3.client(name, endpoint_url=self.url, config=once, region_name=REGION, **KEYS)

    def get(self, what: str) -> Any:
        return servers.get(f"{self.url}/_sandbox/{what}", KEYS)

    def post(self, what: str, **body: Any) -> Any:
        return servers.post(f"{self.url}/_sandbox/{what}", KEYS, body)

    def define(self, command: list[str], family: str = "train", **members: Any) -> str:
        container = {"name": "main", "image": "x", "essential": True, "command": command, "memory": 10}
        answer = self.ecs.register_task_definition(family=family, containerDefinitions=[container | members])
        arn: str = answer["taskDefinition"]["taskDefinitionArn"]
        return arn

    def run(self, definition: str, on: str, gpus: str | None = None, **members: Any) -> dict[str, Any]:
        """RunTask on one instance; the whole answer."""
        override: dict[str, Any] = {"name": "main"} | members.pop("override", {})
        if gpus:
            override["resourceRequirements"] = [{"type": "GPU", "value": gpus}]
        constraint = {"type": "memberOf", "expression": f"ec2InstanceId == {on}"}
        answer: dict[str, Any] = self.ecs.run_task(
            cluster=NAME,
            taskDefinition=definition,
            overrides={"containerOverrides": [override]},
            placementConstraints=[constraint],
            **members,
        )
        return answer

    def task(self, arn: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ecs.describe_tasks(cluster=NAME, tasks=[arn])["tasks"][0]
        return found

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """Return the first true value of `holds()`."""
        return wait_until(holds, f"still waiting for {what}")

    def until_status(self, arn: str, status: str) -> dict[str, Any]:
        self.until(lambda: self.task(arn)["lastStatus"] == status, f"{arn} {status}")
        return self.task(arn)

    def log(self, arn: str) -> str:
        return (self.folder / "tasks" / f"{arn.rsplit('/', 1)[-1]}.log").read_text()

    def until_logged(self, arn: str, text: str) -> None:
        self.until(lambda: text in self.log(arn), f"{text!r} in the log of {arn}")

    def instance(self, instance_id: str) -> dict[str, Any]:
        found: dict[str, Any] = next(i for i in self.get("state")["instances"] if i["instance_id"] == instance_id)
        return found

    def end(self) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)


FAST = {"start_s": 0.01, "down_s": 0.05, "boot_s": 0.2, "spot_notice_s": 0.2, "stop_timeout_max_s": 5}


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start a server of one's own; it is ended afterwards."""
    started: list[Server] = []

    def start(*more: str, **timings: float) -> Server:
        started.append(Server(tmp_path / f"cluster{len(started)}", FAST | timings, *more))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a module, with a spare instance for each that breaks one."""
    server = Server(tmp_path_factory.mktemp("cluster"), FAST, "--instances", "20", "--gpus", "2")
    yield server
    server.end()


@pytest.fixture
def instance_id(server: Server) -> str:
    """An instance that no other test of the module has used."""
    return server.instance_ids.pop()
