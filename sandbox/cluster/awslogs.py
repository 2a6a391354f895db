"""ECS's awslogs driver: what containers print goes to CloudWatch Logs, line by line, as their task definition says.

Of its options those that name a place: group, stream prefix, `awslogs-create-group`. On ECS a task whose group is not
there does not start; here it runs, and its output is in the task's own file alone.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

POLL_S = 0.2
BATCH_LINES_MAX = 5_000
LINE_BYTES_MAX = 200_000
"""CloudWatch Logs takes 10,000 events and 1 MiB in one call, and 256 KiB in one event."""
BATCH_BYTES_MAX = 800_000


def place_of(definition: dict[str, Any], container: str, task_id: str) -> tuple[str, str, bool] | None:
    """(group, stream, whether the group is to be made) of a task's main container; None if it logs elsewhere."""
    spec = next(one for one in definition["containerDefinitions"] if one["name"] == container)
    logging = spec.get("logConfiguration") or {}
    options = logging.get("options") or {}
    group, prefix = options.get("awslogs-group"), options.get("awslogs-stream-prefix")
    if logging.get("logDriver") != "awslogs" or not group or not prefix:
        return None
    return group, f"{prefix}/{container}/{task_id}", options.get("awslogs-create-group") == "true"


class Stream:
    """One task's file on its way to one stream."""

    def __init__(self, logs: Any, path: Path, group: str, stream: str) -> None:
        self._logs, self._group, self._stream = logs, group, stream
        self._file: BinaryIO = path.open("rb")
        self._rest = b""
        self._turn = threading.Lock()

    def send(self, *, is_last: bool = False) -> None:
        """What was written since; of a line that is not ended yet nothing, unless nothing more will come."""
        with self._turn:
            if self._file.closed:
                return
            *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
            if is_last:
                lines.append(self._rest)
                self._file.close()
            for batch in batches([line[:LINE_BYTES_MAX] for line in lines if line.strip()]):
                now = int(time.time() * 1000)
                events = [{"timestamp": now, "message": line.decode(errors="replace")} for line in batch]
                self._logs.put_log_events(logGroupName=self._group, logStreamName=self._stream, logEvents=events)


def batches(lines: list[bytes]) -> list[list[bytes]]:
    """The lines in calls of a size that CloudWatch Logs takes."""
    made: list[list[bytes]] = []
    size = 0
    for line in lines:
        if not made or len(made[-1]) >= BATCH_LINES_MAX or size + len(line) > BATCH_BYTES_MAX:
            made.append([])
            size = 0
        made[-1].append(line)
        size += len(line)
    return made


class AwsLogs:
    """Follows the files of running tasks, by a thread of its own."""

    def __init__(self, logs: Any) -> None:
        self._logs = logs
        self._streams: dict[str, Stream] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="awslogs", daemon=True)
        self._thread.start()

    def follow(self, definition: dict[str, Any], container: str, task_id: str, path: Path) -> None:
        """Begin to send what the task's main container prints into the file at `path`."""
        place = place_of(definition, container, task_id)
        if place is None:
            return
        group, stream, make_group = place

        def begin() -> None:
            if make_group:
                self._made("create_log_group", logGroupName=group)
            self._made("create_log_stream", logGroupName=group, logStreamName=stream)
            self._streams[task_id] = Stream(self._logs, path, group, stream)

        _log_errors(begin)

    def finish(self, task_id: str) -> None:
        """Send the rest of an ended task's output; when this returns it can be read."""
        stream = self._streams.pop(task_id, None)
        if stream is not None:
            _log_errors(lambda: stream.send(is_last=True))

    def close(self) -> None:
        """Send nothing more."""
        self._closing.set()
        self._thread.join(timeout=5)

    def _made(self, operation: str, **what: str) -> None:
        try:
            getattr(self._logs, operation)(**what)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
                raise

    def _run(self) -> None:
        while not self._closing.wait(POLL_S):
            for stream in list(self._streams.values()):
                _log_errors(stream.send)


def _log_errors(work: Callable[[], None]) -> None:
    """Do it; what goes wrong is told and ends no task: the files themselves stay."""
    try:
        work()
    except (BotoCoreError, ClientError) as error:
        print(f"log not delivered: {error}", file=sys.stderr, flush=True)


def cloudwatch(endpoint_url: str, region: str) -> Any:
    """The client of CloudWatch Logs, with MiniStack's root key, which is no secret."""
    return boto3.client(
        "logs",
        endpoint_url=endpoint_url,
        region_name=region,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=5, read_timeout=10),
    )
