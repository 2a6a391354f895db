"""The cluster's awslogs driver: whole lines, in order, all of them by the time that a task has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from sandbox.cluster import awslogs
from sandbox.cluster.awslogs import AwsLogs, Stream, batches, place_of

OPTIONS = {"awslogs-group": "/ecs/g", "awslogs-stream-prefix": "train"}
MAKING = OPTIONS | {"awslogs-create-group": "true"}


def definition(**logging: Any) -> dict[str, Any]:
    """A task definition whose main container logs like this."""
    return {"containerDefinitions": [{"name": "side"}, {"name": "main", "logConfiguration": logging}]}


class Logs:
    """CloudWatch Logs with one group."""

    def __init__(self, groups: tuple[str, ...] = ("/ecs/g",)) -> None:
        self.groups = set(groups)
        self.lines: dict[str, list[str]] = {}

    def create_log_group(self, *, logGroupName: str) -> None:
        if logGroupName in self.groups:
            raise ClientError({"Error": {"Code": "ResourceAlreadyExistsException"}}, "CreateLogGroup")
        self.groups.add(logGroupName)

    def create_log_stream(self, *, logGroupName: str, logStreamName: str) -> None:
        if logGroupName not in self.groups:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "CreateLogStream")
        self.lines[logStreamName] = []

    def put_log_events(self, *, logGroupName: str, logStreamName: str, logEvents: list[dict[str, Any]]) -> None:
        self.lines[logStreamName] += [event["message"] for event in logEvents]


@pytest.mark.parametrize(
    ("logging", "place"),
    [
        ({"logDriver": "awslogs", "options": OPTIONS}, ("/ecs/g", "train/main/t", False)),
        ({"logDriver": "awslogs", "options": MAKING}, ("/ecs/g", "train/main/t", True)),
        ({"logDriver": "json-file", "options": OPTIONS}, None),
        ({"logDriver": "awslogs", "options": {"awslogs-group": "/ecs/g"}}, None),
        ({}, None),
    ],
)
def test_the_stream_is_named_after_prefix_container_and_task(logging: Any, place: Any) -> None:
    """As ECS names it; whoever logs elsewhere, or under no prefix, is not followed."""
    assert place_of(definition(**logging), "main", "t") == place


def test_a_line_is_sent_once_it_has_ended_and_what_is_left_at_the_end(tmp_path: Path) -> None:
    """CloudWatch Logs knows events, not halves of lines, and takes none that is empty."""
    path, logs = tmp_path / "t.log", Logs()
    path.write_bytes(b"one\n\ntw")
    logs.create_log_stream(logGroupName="/ecs/g", logStreamName="s")
    stream = Stream(logs, path, "/ecs/g", "s")
    stream.send()
    assert logs.lines["s"] == ["one"]
    with path.open("ab") as more:
        more.write(b"o\nthree")
    stream.send()
    assert logs.lines["s"] == ["one", "two"]
    stream.send(is_last=True)
    stream.send()
    assert logs.lines["s"] == ["one", "two", "three"]


def test_all_that_a_task_wrote_can_be_read_when_it_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever hears of its end reads the whole log, also if nobody had looked into the file before."""
    monkeypatch.setattr(awslogs, "POLL_S", 3_600)
    path, logs = tmp_path / "t.log", Logs(groups=())
    path.touch()
    driver = AwsLogs(logs)
    try:
        driver.follow(definition(logDriver="awslogs", options=MAKING), "main", "t", path)
        path.write_text("one\ntwo\n")
        driver.finish("t")
        assert logs.lines == {"train/main/t": ["one", "two"]}
        driver.finish("t")
    finally:
        driver.close()


def test_a_group_that_is_not_there_ends_no_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said on the cluster's own log, and the output stays in the task's file."""
    path, logs = tmp_path / "t.log", Logs(groups=())
    path.write_text("one\n")
    driver = AwsLogs(logs)
    try:
        driver.follow(definition(logDriver="awslogs", options=OPTIONS), "main", "t", path)
        driver.finish("t")
    finally:
        driver.close()
    assert logs.lines == {} and "ResourceNotFoundException" in capsys.readouterr().err


def test_batches_keep_below_what_one_call_takes() -> None:
    """In number and in size."""
    assert [len(batch) for batch in batches([b"x"] * (awslogs.BATCH_LINES_MAX + 1))] == [awslogs.BATCH_LINES_MAX, 1]
    large = [b"x" * awslogs.LINE_BYTES_MAX] * 9
    assert [line for batch in batches(large) for line in batch] == large
    assert all(sum(map(len, batch)) <= awslogs.BATCH_BYTES_MAX for batch in batches(large))
