"""What an answer is: the rows of docs/protocol.md. Pure, and total: no answer makes it raise."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from math import isnan
from typing import Any

from gpu_recovery_agent.rank.files import NUMBER_MAX, name, whole

DENIALS = ("missing_token", "invalid_token", "invalid_signer")
"""The words by which the API itself refuses a token."""
ANOTHER_AGENT = "another_agent"
ORDERS_MAX = 64
WAIT_MAX_S = 3_600.0
GRACE_DEFAULT_S, GRACE_MAX_S = 30.0, 3_600.0
NEXT_S = (1.0, 300.0)


class ResponseKind(StrEnum):
    """What the agent does about it."""

    HEARD = "HEARD"
    BAD_REPORT = "BAD_REPORT"
    DENIED = "DENIED"
    STALE = "STALE"
    NOT_ALONE = "NOT_ALONE"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY = "TOO_MANY"
    AWAY = "AWAY"


@dataclass(frozen=True)
class ServerCommand:
    """`suspend` or `stop` of an attempt."""

    id: str
    kind: str
    job: str
    attempt: int
    grace_s: float


@dataclass(frozen=True)
class Response:
    """`why` is for the journal. `last` is the sequence that the server heard, of STALE.

    Of HEARD, `refused` are ranks that it does not know here, as lines for the journal, and `left_out` is how many
    reports of trainings it did not keep. Of BAD_REPORT, `field` is what
    is wrong, and `rank` the entry of `running` that it is in.
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


def no_response(why: str) -> Response:
    """No answer at all."""
    return Response(ResponseKind.AWAY, why)


def read(status: int, raw: bytes, retry_after: str | None) -> Response:
    """The answer of a status, a body and the header Retry-After.

    A success that is no JSON object is somebody else's: a proxy that answers in the server's place.
    """
    found = _object(raw)
    wait = _wait(retry_after)
    said = _text(found.get("error"))
    why = f"the API answers {status}" + (f" {said}" if said else "")
    if status == 200:
        return (
            _heard(found)
            if found.get("ok") is True
            else Response(ResponseKind.AWAY, f"{why}, in words of nobody we know")
        )
    if status == 400:
        field = _text(found.get("field"))
        entry = re.match(r"running\[(\d{1,3})\]", field)
        wrong = int(entry[1]) if entry else None
        return Response(ResponseKind.BAD_REPORT, f"{why} in {field}" if field else why, rank=wrong, field=field)
    if status in (401, 403):
        # Only the API's own word ends an agent: a firewall, a proxy or a gateway that forbids may let it in again.
        return Response(ResponseKind.DENIED if said in DENIALS else ResponseKind.AWAY, why, retry_after_s=wait)
    if status == 409 and said == ANOTHER_AGENT:
        return Response(ResponseKind.NOT_ALONE, why)
    if status == 409:
        return Response(ResponseKind.STALE, why, last=whole(found.get("last"), most=NUMBER_MAX - 1))
    if status == 413:
        return Response(ResponseKind.TOO_LARGE, why)
    if status == 429:
        return Response(ResponseKind.TOO_MANY, why, retry_after_s=wait)
    return Response(ResponseKind.AWAY, why, retry_after_s=wait)


def _heard(found: dict[str, Any]) -> Response:
    orders = found.get("orders")
    refused = found.get("refused")
    read_orders = (_order(one) for one in (orders if isinstance(orders, list) else [])[:ORDERS_MAX])
    read_refusals = (_refusal(one) for one in (refused if isinstance(refused, list) else [])[:ORDERS_MAX])
    return Response(
        ResponseKind.HEARD,
        ts=whole(found.get("ts")),
        next_s=_seconds(found.get("next_s"), *NEXT_S),
        inventory=found.get("inventory") is True,
        commands=tuple(one for one in read_orders if one),
        refused=tuple(one for one in read_refusals if one),
        left_out=whole(found.get("left_out")) or 0,
    )


def _order(one: Any) -> ServerCommand | None:
    if not isinstance(one, dict):
        return None
    order_id, kind, job = name(one.get("id")), one.get("kind"), name(one.get("job"))
    attempt, grace_s = whole(one.get("attempt"), least=0), _seconds(one.get("grace_s"), 0.0, GRACE_MAX_S)
    if order_id is None or job is None or attempt is None or kind not in ("suspend", "stop"):
        return None
    return ServerCommand(order_id, kind, job, attempt, GRACE_DEFAULT_S if grace_s is None else grace_s)


def _seconds(value: Any, least: float, most: float) -> float | None:
    """A number, brought within its bounds; None for anything else, also for one that is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and isnan(value)):
        return None
    return float(min(max(value, least), most))


def _refusal(one: Any) -> str | None:
    if not isinstance(one, dict):
        return None
    return f"job {_text(one.get('job'))}, attempt {_text(str(one.get('attempt')))}: {_text(one.get('why'))}"


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _wait(retry_after: str | None) -> float | None:
    """Seconds. A date is not read: it would be compared with a clock that anybody may set."""
    text = (retry_after or "").strip()
    return min(float(text), WAIT_MAX_S) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _text(value: Any) -> str:
    return " ".join(value[:400].split())[:200] if isinstance(value, str) else ""
