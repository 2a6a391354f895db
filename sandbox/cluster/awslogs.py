"""awslogs driver of ECS: it sends the output of containers to CloudWatch Logs, as their task definition says.

Supported options: group, stream prefix and `awslogs-create-group`. On ECS a task does not start if its log group does
not exist. Here such a task runs, and its output is only in the task's own file.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

POLL_S = 0.2
BATCH_LINES_MAX = 5_000
LINE_BYTES_MAX = 200_000
BATCH_BYTES_MAX = 800_000
"""Upper bounds of a call, below those of CloudWatch Logs: 10,000 events and 1 MiB in a call, 256 KiB in an event."""


def place_of(definition: dict[str, Any], container: str, task_id: str) -> tuple[str, str, bool] | None:
    """Return (group, stream, whether to create the group) of a task's main container; None without awslogs."""
    spec = next(entry for entry in definition["containerDefinitions"] if entry["name"] == container)
    logging = spec.get("logConfiguration") or {}
    options = logging.get("options") or {}
    group, prefix = options.get("awslogs-group"), options.get("awslogs-stream-prefix")
    if logging.get("logDriver") != "awslogs" or not group or not prefix:
        return None
    return group, f"{prefix}/{container}/{task_id}", options.get("awslogs-create-group") == "true"


class Stream:
    """Sends the output file of one task to one log stream."""

    def __init__(self, logs: Any, path: Path, group: str, stream: str) -> None:
        self._logs, self._group, self._stream = logs, group, stream
        self._file: BinaryIO = path.open("rb")
        self._rest = b""
        self._turn = threading.Lock()

    def send(self, *, is_last: bool = False) -> None:
        """Send the lines written since the last call. An unfinished line is sent only with `is_last`."""
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
    """Split the lines into batches that one call of CloudWatch Logs accepts."""
    filled: list[list[bytes]] = []
    size = 0
    for line in lines:
        if not filled or len(filled[-1]) >= BATCH_LINES_MAX or size + len(line) > BATCH_BYTES_MAX:
            filled.append([])
            size = 0
        filled[-1].append(line)
        size += len(line)
    return filled


class AwsLogs:
    """Follows the output files of running tasks in its own thread."""

    def __init__(self, logs: Any) -> None:
        self._logs = logs
        self._streams: dict[str, Stream] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="awslogs", daemon=True)
        self._thread.start()

    def follow(self, definition: dict[str, Any], container: str, task_id: str, path: Path) -> None:
        """Start to send the output of the task's main container, which is in the file `path`."""
        place = place_of(definition, container, task_id)
        if place is None:
            return
        group, stream, make_group = place

        def begin() -> None:
            if make_group:
                self._create("create_log_group", logGroupName=group)
            self._create("create_log_stream", logGroupName=group, logStreamName=stream)
            self._streams[task_id] = Stream(self._logs, path, group, stream)

        _log_errors(begin)

    def finish(self, task_id: str) -> None:
        """Send the rest of an ended task's output. When the call returns, the output can be read."""
        stream = self._streams.pop(task_id, None)
        if stream is not None:
            _log_errors(lambda: stream.send(is_last=True))

    def close(self) -> None:
        """Stop sending."""
        self._closing.set()
        self._thread.join(timeout=5)

    def _create(self, operation: str, **names: str) -> None:
        try:
            getattr(self._logs, operation)(**names)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
                raise

    def _run(self) -> None:
        while not self._closing.wait(POLL_S):
            for stream in list(self._streams.values()):
                _log_errors(stream.send)


def _log_errors(work: Callable[[], None]) -> None:
    """Run `work`, and only print an AWS error: the task continues, and its output file stays."""
    try:
        work()
    except (BotoCoreError, ClientError) as error:
        print(f"log not delivered: {error}", file=sys.stderr, flush=True)


def cloudwatch(endpoint_url: str, region: str, keys: Mapping[str, str]) -> Any:
    """Return a client of CloudWatch Logs with credentials of the sandbox."""
    return boto3.client(
        "logs",
        endpoint_url=endpoint_url,
        region_name=region,
        aws_access_key_id=keys["aws_access_key_id"],
        aws_secret_access_key=keys["aws_secret_access_key"],
        config=Config(retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=5, read_timeout=10),
    )
