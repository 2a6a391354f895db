"""Two MiniStacks for the contract tests: the plain one, and ours with every patch installed."""

from __future__ import annotations

import io
import json
import sys
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from sandbox import credentials, processes
from sandbox.ministack import command as ministack
from tests.sandbox.patience import wait_until

ROOT = Path(__file__).parents[2]
SECRET = "the secret of this sandbox"
PLAIN = (sys.executable, "-c", "from ministack import app; app.main()")
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
        ],
    }
)
IMAGE = "000000000000.dkr.ecr.us-east-1.amazonaws.com/runner@sha256:" + "0" * 64
IMAGE_CODE = """
import os
def answer(event, context):
    return [event, os.environ["OWN"], os.environ["GIVEN"]]
"""
ROLE = "arn:aws:iam::000000000000:role/nothing-allowed"


class Cloud:
    """Clients and tiny resources of one server; `folder` is where its functions write what they saw."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.made = 0
        self.client("iam").create_role(RoleName="nothing-allowed", AssumeRolePolicyDocument=TRUST)

    def client(self, service: str, user_agent: str = "") -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            **credentials.client_keys(SECRET),
            config=Config(user_agent_extra=user_agent, retries={"total_max_attempts": 1}),
        )

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"

    def queue(self, **attributes: str) -> tuple[str, str]:
        """A new queue: (URL, ARN). FIFO when `FifoQueue="true"` is among the attributes."""
        sqs = self.client("sqs")
        name = self.name("queue") + (".fifo" if attributes.get("FifoQueue") else "")
        url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        return url, arn

    def messages(self, url: str) -> list[dict[str, Any]]:
        """What the queue holds now, taken out of it."""
        sqs, taken = self.client("sqs"), []
        while batch := sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        ).get("Messages", []):
            for message in batch:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            taken += batch
        return taken

    def function(self, body: str) -> tuple[str, str, Path]:
        """A new function `def handler(event, context)`: (name, ARN, the file its `record(...)` appends JSON to)."""
        name = self.name("function")
        seen = self.folder / f"{name}.jsonl"
        code = (
            "import json, os, sys\n"
            f"def record(value):\n    open({str(seen)!r}, 'a').write(json.dumps(value) + chr(10))\n"
            f"def handler(event, context):\n    {body}\n"
        )
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("main.py", code)
        awslambda = self.client("lambda")
        arn = awslambda.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=ROLE,
            Handler="main.handler",
            Timeout=10,
            Code={"ZipFile": packed.getvalue()},
        )["FunctionArn"]
        wait_until(lambda: awslambda.get_function_configuration(FunctionName=name)["State"] == "Active")
        return name, arn, seen

    def rule(self, target: dict[str, Any], schedule: str = "") -> str:
        """A rule on its own source, or on a schedule, with one target: the source to send events from."""
        events, name = self.client("events"), self.name("rule")
        source = f"test.{name}"
        trigger = {"ScheduleExpression": schedule} if schedule else {"EventPattern": json.dumps({"source": [source]})}
        events.put_rule(Name=name, **trigger)
        events.put_targets(Rule=name, Targets=[{"Id": "target", **target}])
        return source

    def send(self, source: str, detail: Any, user_agent: str = "") -> int:
        """Put one event on the default bus; returns how many entries were refused (0 or 1)."""
        answer = self.client("events", user_agent).put_events(
            Entries=[{"Source": source, "DetailType": "test", "Detail": json.dumps(detail)}]
        )
        refused: int = answer["FailedEntryCount"]
        return refused


def lines(path: Path) -> list[Any]:
    """The JSON lines a function recorded so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_ministack/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:  # no connection yet, or no answer in time
        return False


def image_stand_in(package: Path) -> dict[str, str]:
    """The variable by which ours runs IMAGE from a package, which is written to `package`."""
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("inner/code.py", IMAGE_CODE)
    stand_in = {
        "image": IMAGE,
        "package": str(package),
        "handler": "inner.code.answer",
        "variables": {"GIVEN": "by the sandbox"},
    }
    return {"SANDBOX_IMAGE_STAND_IN": json.dumps(stand_in)}


@contextmanager
def serve(folder: Path, command: tuple[str, ...], variables: Mapping[str, str] | None = None) -> Iterator[Cloud]:
    """A MiniStack of the given command line and further variables, up when entered and gone when left."""
    port = processes.free_port()
    url = f"http://127.0.0.1:{port}"
    folders = processes.own_folders(folder)
    for path in folders.values():
        Path(path).mkdir(parents=True)
    environment = (
        ministack.environment(port, speed=120.0, secret=SECRET) | folders | {"LAMBDA_ASYNC_RETRY_BASE_SECONDS": "0.05"}
    )
    environment |= variables or {}
    server = processes.start("ministack", command, processes.clean_environment(environment), ROOT, folder / "log")
    try:
        processes.wait_until(lambda: is_ready(url), server)
        yield Cloud(url, folder)
    finally:
        processes.stop([server])
