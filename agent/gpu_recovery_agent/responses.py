"""Parses the server's response, as docs/protocol.md specifies it. Pure; never raises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isnan
from typing import Any

from gpu_recovery_agent.rank.files import NUMBER_MAX, name, whole
from gpu_recovery_agent.rank.hold import HOLD, START

DENIALS = ("missing_token", "invalid_token", "invalid_signer")
"""Error codes with which the API itself refuses credentials."""
STALE_SEQUENCE, ANOTHER_AGENT = "stale_sequence", "another_agent"
COMMANDS_MAX = 64
RESET = "reset"
LINES_MAX, LINE_CHARACTERS_MAX = 4, 500
KINDS = ("suspend", "stop", HOLD, START, RESET)
"""Kinds of commands that this agent can carry out."""
WAIT_MAX_S = 3_600.0
GRACE_DEFAULT_S, GRACE_MAX_S = 30.0, 3_600.0
NEXT_S = (1.0, 300.0)


class ResponseKind(StrEnum):
    """How the agent handles a response."""

    ACCEPTED = "ACCEPTED"  # the API received the report
    BAD_REPORT = "BAD_REPORT"  # the report is malformed and is dropped
    DENIED = "DENIED"  # the API itself refused the credentials
    STALE = "STALE"  # the API received a newer sequence number
    REPLACED = "REPLACED"  # an agent that started later reports for this instance
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY = "TOO_MANY"  # the rate limit is reached; the report is sent again
    UNREACHABLE = "UNREACHABLE"  # no response of the API: none at all, an error of the server, or a proxy


@dataclass(frozen=True)
class ServerCommand:
    """A command of the server: `suspend`, `stop` or `hold` an attempt, or `start` the next in its container; `reset`.

    `reset` is about the GPUs of the instance. Its `job` is empty.

    `environment` holds the variables of the attempt that `start` starts.
    """

    id: str
    kind: str
    job: str
    attempt: int
    grace_s: float
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RepairLine:
    """A line that the machine must keep: who ordered the repair number `epoch`, and why (`repair_record`)."""

    epoch: int
    text: str


@dataclass(frozen=True)
class Response:
    """A parsed response. `why` is for the log.

    `ts` is the server's time in Unix seconds. `next_s` is the time until the next report in seconds. `inventory` says
    that the server asks for the GPU inventory. `retry_after_s` is the time in seconds before which the agent does not
    report again. `last` is the last sequence number that the server received; only STALE has it.

    ACCEPTED may have `refused`, log lines about ranks that the server does not know here, `left_out`, the number of
    observations that the server did not store, and `lines`, which the machine must keep. BAD_REPORT has `field`, the
    wrong field, and `rank`, the entry of `running` that holds the field.
    """

    kind: ResponseKind
    why: str = ""
    last: int | None = None
    retry_after_s: float | None = None
    ts: int | None = None
    next_s: float | None = None
    inventory: bool = False
    commands: tuple[ServerCommand, ...] = ()
    refused: tuple[str, ...] = ()
    rank: int | None = None
    field: str = ""
    left_out: int = 0
    lines: tuple[RepairLine, ...] = ()


def no_response(why: str) -> Response:
    """Return the response that stands for a missing response."""
    return Response(ResponseKind.UNREACHABLE, why)


def read(status: int, raw: bytes, retry_after: str | None) -> Response:
    """Parse a response from its status, its body and its Retry-After header.

    A success without a JSON object does not come from the API, but from a proxy that answered in its place.
    """
    body = _object(raw)
    wait = _wait(retry_after)
    code = _text(body.get("error"))
    why = f"the API answers {status}" + (f" {code}" if code else "")
    if status == 200:
        return (
            _accepted(body)
            if body.get("ok") is True
            else Response(ResponseKind.UNREACHABLE, f"{why}, in an unknown format")
        )
    if status == 400:
        field = _text(body.get("field"))
        entry = re.match(r"running\[(\d{1,3})\]", field)
        wrong = int(entry[1]) if entry else None
        return Response(ResponseKind.BAD_REPORT, f"{why} in {field}" if field else why, rank=wrong, field=field)
    if status in (401, 403):
        # Only a refusal by the API itself ends the agent: a firewall, a proxy or a gateway may admit it again later.
        return Response(ResponseKind.DENIED if code in DENIALS else ResponseKind.UNREACHABLE, why, retry_after_s=wait)
    if status == 409 and code == ANOTHER_AGENT:
        return Response(ResponseKind.REPLACED, why)
    # A conflict of a proxy is no word of the API about this agent.
    if status == 409 and code == STALE_SEQUENCE:
        return Response(ResponseKind.STALE, why, last=whole(body.get("last"), most=NUMBER_MAX - 1))
    if status == 413:
        return Response(ResponseKind.TOO_LARGE, why)
    if status == 429:
        return Response(ResponseKind.TOO_MANY, why, retry_after_s=wait)
    return Response(ResponseKind.UNREACHABLE, why, retry_after_s=wait)


def _accepted(body: dict[str, Any]) -> Response:
    commands = body.get("orders")
    refused, records = body.get("refused"), body.get("records")
    read_commands = (_command(entry) for entry in (commands if isinstance(commands, list) else [])[:COMMANDS_MAX])
    read_refusals = (_refusal(entry) for entry in (refused if isinstance(refused, list) else [])[:COMMANDS_MAX])
    return Response(
        ResponseKind.ACCEPTED,
        ts=whole(body.get("ts")),
        next_s=_seconds(body.get("next_s"), *NEXT_S),
        inventory=body.get("inventory") is True,
        commands=tuple(command for command in read_commands if command),
        refused=tuple(refusal for refusal in read_refusals if refusal),
        left_out=whole(body.get("left_out")) or 0,
        lines=tuple(line for line in map(_line, records if isinstance(records, list) else []) if line)[:LINES_MAX],
    )


def _command(entry: Any) -> ServerCommand | None:
    if not isinstance(entry, dict):
        return None
    command_id, kind, job = name(entry.get("id")), entry.get("kind"), name(entry.get("job"))
    attempt, grace_s = whole(entry.get("attempt"), least=0), _seconds(entry.get("grace_s"), 0.0, GRACE_MAX_S)
    job = "" if kind == RESET else job
    if command_id is None or job is None or attempt is None or kind not in KINDS:
        return None
    given = entry.get("environment")
    texts = given.items() if isinstance(given, dict) and kind == START else ()
    environment = {key: value for key, value in texts if isinstance(key, str) and isinstance(value, str)}
    return ServerCommand(command_id, kind, job, attempt, GRACE_DEFAULT_S if grace_s is None else grace_s, environment)


def _line(entry: Any) -> RepairLine | None:
    if not isinstance(entry, dict):
        return None
    epoch, text = whole(entry.get("epoch"), least=0), entry.get("text")
    if epoch is None or not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= LINE_CHARACTERS_MAX:
        return None
    return RepairLine(epoch, text)


def _seconds(value: Any, least: float, most: float) -> float | None:
    """Return a number limited to its bounds; None for any other value, also for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and isnan(value)):
        return None
    return float(min(max(value, least), most))


def _refusal(entry: Any) -> str | None:
    if not isinstance(entry, dict):
        return None
    return f"job {_text(entry.get('job'))}, attempt {_text(str(entry.get('attempt')))}: {_text(entry.get('why'))}"


def _object(raw: bytes) -> dict[str, Any]:
    try:
        content = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _wait(retry_after: str | None) -> float | None:
    """Return Retry-After in seconds. A date is ignored: it would depend on the wall clock, which can be set."""
    text = (retry_after or "").strip()
    return min(float(text), WAIT_MAX_S) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _text(value: Any) -> str:
    return " ".join(value[:400].split())[:200] if isinstance(value, str) else ""
