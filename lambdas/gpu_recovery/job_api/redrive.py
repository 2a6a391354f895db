"""Dead letters: messages that nobody could handle, given again to whom they were meant for.

There are three queues of them, and each knows another way who that was: Lambda's on-failure destination names the
function beside the event, EventBridge names the target in an attribute, and a call for the scheduler is only ever for
the scheduler. Every handler takes the same event twice without harm, so a letter is deleted only after it was accepted
again; one that nobody can read, or whose function refuses it, stays where it is and is listed with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from gpu_recovery.core.errors import RecoveryError

FUNCTION = re.compile(r"(?P<arn>arn:[a-z-]+:lambda:[a-z0-9-]+:\d{12}:function:(?P<name>[\w-]{1,140}))(:[\w$-]+)?")
QUEUE = re.compile(r"arn:[a-z-]+:sqs:[a-z0-9-]+:\d{12}:(?P<name>[\w.-]{1,80})")
BATCH_MAX = 10
"""As many as SQS gives at once."""
HELD_S = 60
"""How long a letter that was received belongs to whoever redrives it; one that stays is seen again after that."""


class Grave(StrEnum):
    """The queues where messages end that nobody could handle."""

    FAILED = "failed"  # a function took the event and failed on it, retries included
    UNDELIVERED = "undelivered"  # EventBridge could not reach the target
    SCHEDULER = "scheduler"  # the scheduler failed on the call again and again


class LetterUnreadable(RecoveryError):
    """A dead letter from which nobody can tell what it was and for whom."""


class LetterRefused(RecoveryError):
    """Whom the letter was for does definitely not take it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One message of a dead-letter queue; `receipt` is what deletes it."""

    grave: Grave
    message_id: str
    body: str
    attributes: dict[str, str] = field(default_factory=dict)
    receipt: str = ""


@dataclass(frozen=True, slots=True)
class Errand:
    """Whom a letter is for: a function's ARN, or "" for the scheduler's queue; and what to give."""

    to: str
    payload: str
    name: str


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a letter, or would: whom it is for, "" if nobody can tell, and why it stays, "" if it does not."""

    letter: Letter
    to: str
    why: str = ""


class DeadLetters(Protocol):
    """The queues, and those to whom letters go."""

    def depth(self, grave: Grave) -> int:
        """About how many letters lie there."""

    def receive(self, grave: Grave, most: int, held_s: int) -> Sequence[Letter]:
        """Up to `most` letters, hidden from others for `held_s` seconds; none if it finds none now."""

    def invoke(self, function_arn: str, payload: str) -> None:
        """Have Lambda take the event to call the function with it. Raises LetterRefused."""

    def call_scheduler(self, letter: Letter) -> None:
        """Put the letter on the scheduler's queue."""

    def delete(self, letter: Letter) -> None: ...


def look(letters: DeadLetters, graves: Sequence[Grave]) -> dict[Grave, tuple[int, list[Fate]]]:
    """About how many letters each queue holds, and what a redrive would do with the first of them. Takes nothing."""
    found: dict[Grave, tuple[int, list[Fate]]] = {}
    for grave in graves:
        depth = letters.depth(grave)
        shown = letters.receive(grave, BATCH_MAX, 0) if depth else ()
        found[grave] = (depth, [_fate(letter) for letter in shown])
    return found


def redrive(letters: DeadLetters, graves: Sequence[Grave], limit: int) -> Iterator[Fate]:
    """Give up to `limit` letters of the queues to whom they are for; what became of each, as soon as it is known.

    To be followed to its end: a letter is deleted after its fate was taken, so that no failure of SQS can hide it.
    """
    done = 0
    for grave in graves:
        while done < limit:
            received = letters.receive(grave, min(BATCH_MAX, limit - done), HELD_S)
            if not received:
                break
            for letter in received:
                done += 1
                fate = _given(letters, letter)
                yield fate
                if not fate.why:
                    letters.delete(letter)


def _given(letters: DeadLetters, letter: Letter) -> Fate:
    try:
        errand = errand_of(letter)
        if errand.to:
            letters.invoke(errand.to, errand.payload)
        else:
            letters.call_scheduler(letter)
    except LetterUnreadable as unreadable:
        return Fate(letter, "", str(unreadable))
    except LetterRefused as refused:
        return Fate(letter, errand.name, str(refused))
    return Fate(letter, errand.name)


def _fate(letter: Letter) -> Fate:
    try:
        return Fate(letter, errand_of(letter).name)
    except LetterUnreadable as unreadable:
        return Fate(letter, "", str(unreadable))


def errand_of(letter: Letter) -> Errand:
    """Whom `letter` is for. LetterUnreadable says what is missing."""
    match letter.grave:
        case Grave.FAILED:
            document = _document(letter)
            context = document.get("requestContext")
            arn = context.get("functionArn") if isinstance(context, dict) else None
            if not isinstance(document.get("requestPayload"), dict):
                raise LetterUnreadable("it holds no event (requestPayload)")
            return _function(arn, "requestContext.functionArn", json.dumps(document["requestPayload"]))
        case Grave.UNDELIVERED:
            _document(letter)
            target = letter.attributes.get("TARGET_ARN", "")
            if QUEUE.fullmatch(target):
                return Errand("", letter.body, "scheduler")
            return _function(target, "attribute TARGET_ARN", letter.body)
        case Grave.SCHEDULER:
            return Errand("", letter.body, "scheduler")


def _document(letter: Letter) -> dict[str, Any]:
    try:
        document = json.loads(letter.body)
    except (ValueError, RecursionError) as error:
        raise LetterUnreadable("its body is not JSON") from error
    if not isinstance(document, dict):
        raise LetterUnreadable("its body is not a JSON object")
    return document


def _function(arn: Any, where: str, payload: str) -> Errand:
    match = FUNCTION.fullmatch(arn) if isinstance(arn, str) else None
    if match is None:
        raise LetterUnreadable(f"{where} names no function")
    return Errand(match["arn"], payload, match["name"])
