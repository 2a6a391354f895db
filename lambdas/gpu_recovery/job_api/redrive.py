"""Dead-letter redrive: sends dead letters to their original target again.

There are three dead-letter queues, and each names the target of a message in its own way. Lambda's on-failure
destination names the function beside the event. EventBridge names the target in a message attribute. The scheduler's
queue has only one target, the scheduler.

Every handler processes the same event twice without harm. So a dead letter is deleted only after its target accepted
it again. A dead letter that cannot be read, or that its function rejects, stays in the queue and is listed with the
reason.

The queues hold what their senders wrote, and a principal with SQS rights may send to them. So a function is invoked
only with an event that a rule of this deployment could deliver, by its source, account and region. Operators see the
source and the account of each event. The API functions invoke the command executor without an event: its request names
one record, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

from gpu_recovery.auth.tokens import INSTANCE_ID
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.event_origin import RECORDED_SOURCES, SOURCES, EventOrigin
from gpu_recovery.core.job.adoption import JOB_ID

FUNCTION = re.compile(r"(?P<arn>arn:[a-z-]+:lambda:[a-z0-9-]+:\d{12}:function:(?P<name>[\w-]{1,140}))(:[\w$-]+)?")
QUEUE = re.compile(r"arn:[a-z-]+:sqs:[a-z0-9-]+:\d{12}:(?P<name>[\w.-]{1,80})")
BATCH_MAX = 10
"""Messages that one call of SQS returns at most."""
SHOWN_MAX = 100
"""Characters of the source and the account of an event in a result."""
HELD_S = 60
"""Seconds for which SQS hides a received dead letter. A dead letter that is not deleted is then visible again."""


class DeadLetterQueue(StrEnum):
    """A dead-letter queue."""

    FAILED = "failed"  # the function failed on the event, also at the retries
    UNDELIVERED = "undelivered"  # EventBridge could not reach the target
    SCHEDULER = "scheduler"  # the scheduler failed on the message at every try


class DeadLetterUnreadable(RecoveryError):
    """A dead letter without a readable event or target."""


class DeadLetterRefused(RecoveryError):
    """The target of a dead letter rejects it permanently."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One message of a dead-letter queue. `receipt` is the SQS receipt handle, with which it is deleted."""

    queue: DeadLetterQueue
    message_id: str
    body: str
    attributes: dict[str, str] = field(default_factory=dict)
    receipt: str = ""


@dataclass(frozen=True, slots=True)
class RedriveTarget:
    """The target of a dead letter.

    function_arn: ARN of the function, "" for the scheduler's queue.
    payload:      event to send, as JSON text.
    name:         name of the target for operators.
    event:        event to send; {} for the scheduler's queue.
    """

    function_arn: str
    payload: str
    name: str
    event: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """Result of the redrive of a dead letter, or of its preview.

    target:  name of the target, "" if the target cannot be read.
    why:     why the dead letter stays in its queue, "" if it leaves.
    source:  source of the event; "" if it names none, and for messages of the scheduler, which reads no event.
    account: account of the event, as `source`.
    """

    dead_letter: DeadLetter
    target: str
    why: str = ""
    source: str = ""
    account: str = ""


class DeadLetters(Protocol):
    """The dead-letter queues and the targets of dead letters."""

    @property
    def origin(self) -> EventOrigin:
        """Origin of the events that the rules of the deployment deliver."""

    @property
    def executor_function(self) -> str:
        """Name of the command executor."""

    @property
    def recorder_function(self) -> str:
        """Name of the event recorder."""

    def depth(self, queue: DeadLetterQueue) -> int:
        """Return the approximate number of dead letters in the queue."""

    def receive(self, queue: DeadLetterQueue, most: int, held_s: int) -> Sequence[DeadLetter]:
        """Return at most `most` dead letters, and hide them from other receivers for `held_s` seconds.

        The result may be empty although the queue is not.
        """

    def invoke(self, function_arn: str, payload: str) -> None:
        """Queue the event `payload` for an asynchronous invocation of the function.

        Raises:
            DeadLetterRefused: Lambda rejects the event permanently.
        """

    def call_scheduler(self, dead_letter: DeadLetter) -> None:
        """Send the message of the dead letter to the scheduler's queue."""

    def delete(self, dead_letter: DeadLetter) -> None:
        """Delete the dead letter from its queue."""


def preview_redrive(
    dead_letters: DeadLetters, queues: Sequence[DeadLetterQueue]
) -> dict[DeadLetterQueue, tuple[int, list[RedriveResult]]]:
    """Return the depth of each queue, and what a redrive would do with its first dead letters.

    The dead letters stay visible to other receivers.

    Args:
        dead_letters: the dead-letter queues.
        queues: the queues to preview.

    Returns:
        For each queue the approximate number of its dead letters, and the results for at most `BATCH_MAX` of them.
    """
    previews: dict[DeadLetterQueue, tuple[int, list[RedriveResult]]] = {}
    for queue in queues:
        depth = dead_letters.depth(queue)
        first = dead_letters.receive(queue, BATCH_MAX, 0) if depth else ()
        previews[queue] = (depth, [_preview(dead_letters, dead_letter) for dead_letter in first])
    return previews


def redrive(dead_letters: DeadLetters, queues: Sequence[DeadLetterQueue], limit: int) -> Iterator[RedriveResult]:
    """Send at most `limit` dead letters of the queues to their targets, and yield the result of each.

    The caller must exhaust the iterator. A dead letter is deleted only after the caller has taken its result, so that
    a failure of SQS cannot hide the result.

    Args:
        dead_letters: the dead-letter queues.
        queues: the queues to redrive, in order.
        limit: upper bound of the dead letters of all queues together.
    """
    redriven = 0
    for queue in queues:
        while redriven < limit:
            received = dead_letters.receive(queue, min(BATCH_MAX, limit - redriven), HELD_S)
            if not received:
                break
            for dead_letter in received:
                redriven += 1
                result = _redrive_message(dead_letters, dead_letter)
                yield result
                if not result.why:
                    dead_letters.delete(dead_letter)


def _redrive_message(dead_letters: DeadLetters, dead_letter: DeadLetter) -> RedriveResult:
    result = _preview(dead_letters, dead_letter)
    if result.why:
        return result
    target = redrive_target_of(dead_letter)
    try:
        if target.function_arn:
            dead_letters.invoke(target.function_arn, target.payload)
        else:
            dead_letters.call_scheduler(dead_letter)
    except DeadLetterRefused as refused:
        return replace(result, why=str(refused))
    return result


def _preview(dead_letters: DeadLetters, dead_letter: DeadLetter) -> RedriveResult:
    """Return the result that a redrive of the dead letter would have, unless its target rejects it."""
    try:
        target = redrive_target_of(dead_letter)
    except DeadLetterUnreadable as unreadable:
        return RedriveResult(dead_letter, "", str(unreadable))
    source, account, region = (target.event.get(name) for name in ("source", "account", "region"))
    is_request = target.name == dead_letters.executor_function and _names_one_record(target.event)
    is_checked = bool(target.function_arn) and not is_request
    sources = RECORDED_SOURCES if target.name == dead_letters.recorder_function else SOURCES
    refusal = dead_letters.origin.refusal_of(source, account, region, sources) if is_checked else ""
    why = f"no rule of this deployment delivers its event: {refusal}" if refusal else ""
    return RedriveResult(dead_letter, target.name, why, _shown(source), _shown(account))


def _names_one_record(request: Mapping[str, Any]) -> bool:
    """Return whether the request names a job or an instance, and nothing else."""
    match request:
        case {"job_id": str(job_id), **others}:
            return not others and JOB_ID.fullmatch(job_id) is not None
        case {"instance_id": str(instance_id), **others}:
            return not others and INSTANCE_ID.fullmatch(instance_id) is not None
    return False


def _shown(value: Any) -> str:
    """Return a field of an event for operators, cut to SHOWN_MAX; "" if it is no text."""
    return value[:SHOWN_MAX] if isinstance(value, str) else ""


def redrive_target_of(dead_letter: DeadLetter) -> RedriveTarget:
    """Return the target of a dead letter.

    Raises:
        DeadLetterUnreadable: the event or the target is missing or malformed.
    """
    match dead_letter.queue:
        case DeadLetterQueue.FAILED:
            document = _document(dead_letter)
            context = document.get("requestContext")
            arn = context.get("functionArn") if isinstance(context, dict) else None
            if not isinstance(document.get("requestPayload"), dict):
                raise DeadLetterUnreadable("it contains no event (requestPayload)")
            return _function(arn, "requestContext.functionArn", document["requestPayload"])
        case DeadLetterQueue.UNDELIVERED:
            document = _document(dead_letter)
            target = dead_letter.attributes.get("TARGET_ARN", "")
            if QUEUE.fullmatch(target):
                return RedriveTarget("", dead_letter.body, "scheduler")
            return _function(target, "attribute TARGET_ARN", document)
        case DeadLetterQueue.SCHEDULER:
            return RedriveTarget("", dead_letter.body, "scheduler")


def _document(dead_letter: DeadLetter) -> dict[str, Any]:
    try:
        document = json.loads(dead_letter.body)
    except (ValueError, RecursionError) as error:
        raise DeadLetterUnreadable("its body is not JSON") from error
    if not isinstance(document, dict):
        raise DeadLetterUnreadable("its body is not a JSON object")
    return document


def _function(arn: Any, where: str, event: dict[str, Any]) -> RedriveTarget:
    match = FUNCTION.fullmatch(arn) if isinstance(arn, str) else None
    if match is None:
        raise DeadLetterUnreadable(f"{where} names no function")
    return RedriveTarget(match["arn"], json.dumps(event), match["name"], event)
