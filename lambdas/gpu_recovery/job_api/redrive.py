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


class DeadLetterQueue(StrEnum):
    """The queues where messages end that nobody could handle."""

    FAILED = "failed"  # a function took the event and failed on it, retries included
    UNDELIVERED = "undelivered"  # EventBridge could not reach the target
    SCHEDULER = "scheduler"  # the scheduler failed on the call again and again


class DeadLetterUnreadable(RecoveryError):
    """A dead letter from which nobody can tell what it was and for whom."""


class DeadLetterRefused(RecoveryError):
    """Whom the letter was for does definitely not take it."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message of a dead-letter queue; `receipt` is what deletes it."""

    queue: DeadLetterQueue
    message_id: str
    body: str
    attributes: dict[str, str] = field(default_factory=dict)
    receipt: str = ""


@dataclass(frozen=True, slots=True)
class RedriveTarget:
    """Whom a letter is for: a function's ARN, or "" for the scheduler's queue; and what to give."""

    function_arn: str
    payload: str
    name: str


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What became of a letter, or would: whom it is for, "" if nobody can tell, and why it stays, "" if it does not."""

    letter: DeadLetter
    target: str
    why: str = ""


class DeadLetters(Protocol):
    """The queues, and those to whom letters go."""

    def depth(self, queue: DeadLetterQueue) -> int:
        """About how many letters lie there."""

    def receive(self, queue: DeadLetterQueue, most: int, held_s: int) -> Sequence[DeadLetter]:
        """Up to `most` letters, hidden from others for `held_s` seconds; none if it finds none now."""

    def invoke(self, function_arn: str, payload: str) -> None:
        """Have Lambda take the event to call the function with it. Raises DeadLetterRefused."""

    def call_scheduler(self, letter: DeadLetter) -> None:
        """Put the letter on the scheduler's queue."""

    def delete(self, letter: DeadLetter) -> None: ...


def preview_redrive(
    letters: DeadLetters, graves: Sequence[DeadLetterQueue]
) -> dict[DeadLetterQueue, tuple[int, list[RedriveResult]]]:
    """About how many letters each queue holds, and what a redrive would do with the first of them. Takes nothing."""
    found: dict[DeadLetterQueue, tuple[int, list[RedriveResult]]] = {}
    for grave in graves:
        depth = letters.depth(grave)
        shown = letters.receive(grave, BATCH_MAX, 0) if depth else ()
        found[grave] = (depth, [_preview(letter) for letter in shown])
    return found


def redrive(letters: DeadLetters, graves: Sequence[DeadLetterQueue], limit: int) -> Iterator[RedriveResult]:
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
                fate = _redrive_one(letters, letter)
                yield fate
                if not fate.why:
                    letters.delete(letter)


def _redrive_one(letters: DeadLetters, letter: DeadLetter) -> RedriveResult:
    try:
        errand = redrive_target_of(letter)
        if errand.function_arn:
            letters.invoke(errand.function_arn, errand.payload)
        else:
            letters.call_scheduler(letter)
    except DeadLetterUnreadable as unreadable:
        return RedriveResult(letter, "", str(unreadable))
    except DeadLetterRefused as refused:
        return RedriveResult(letter, errand.name, str(refused))
    return RedriveResult(letter, errand.name)


def _preview(letter: DeadLetter) -> RedriveResult:
    try:
        return RedriveResult(letter, redrive_target_of(letter).name)
    except DeadLetterUnreadable as unreadable:
        return RedriveResult(letter, "", str(unreadable))


def redrive_target_of(letter: DeadLetter) -> RedriveTarget:
    """Whom `letter` is for. DeadLetterUnreadable says what is missing."""
    match letter.queue:
        case DeadLetterQueue.FAILED:
            document = _document(letter)
            context = document.get("requestContext")
            arn = context.get("functionArn") if isinstance(context, dict) else None
            if not isinstance(document.get("requestPayload"), dict):
                raise DeadLetterUnreadable("it holds no event (requestPayload)")
            return _function(arn, "requestContext.functionArn", json.dumps(document["requestPayload"]))
        case DeadLetterQueue.UNDELIVERED:
            _document(letter)
            target = letter.attributes.get("TARGET_ARN", "")
            if QUEUE.fullmatch(target):
                return RedriveTarget("", letter.body, "scheduler")
            return _function(target, "attribute TARGET_ARN", letter.body)
        case DeadLetterQueue.SCHEDULER:
            return RedriveTarget("", letter.body, "scheduler")


def _document(letter: DeadLetter) -> dict[str, Any]:
    try:
        document = json.loads(letter.body)
    except (ValueError, RecursionError) as error:
        raise DeadLetterUnreadable("its body is not JSON") from error
    if not isinstance(document, dict):
        raise DeadLetterUnreadable("its body is not a JSON object")
    return document


def _function(arn: Any, where: str, payload: str) -> RedriveTarget:
    match = FUNCTION.fullmatch(arn) if isinstance(arn, str) else None
    if match is None:
        raise DeadLetterUnreadable(f"{where} names no function")
    return RedriveTarget(match["arn"], payload, match["name"])
