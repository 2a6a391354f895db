"""Dead-letter queues in SQS, and the calls of their redrive: `job_api.redrive.DeadLetters` on AWS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.clients import ONE_SHORT_TRY, as_unavailable, client
from gpu_recovery.aws.settings import LambdaSettings, LambdaSettingsInvalid
from gpu_recovery.job_api.redrive import DeadLetter, DeadLetterQueue, DeadLetterRefused

WAIT_S = 1
"""Seconds that a receive call waits for messages (long polling).

Without a wait SQS asks only some of its servers and may report a queue as empty that is not.
"""
REFUSALS = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ResourceNotFoundException",
        "InvalidRequestContentException",
        "RequestEntityTooLargeException",
        "RequestTooLargeException",  # the code of the service model
        "InvalidParameterValueException",
    }
)
"""Error codes of Invoke that are definite: no such function, no permission, or a payload that Lambda cannot accept."""


@cache
def _sqs() -> Any:
    return client("sqs")


@cache
def _sqs_of_counts() -> Any:
    """The overview of the console shows the counts beside much else, so they are read in a single short try."""
    return client("sqs", ONE_SHORT_TRY)


@cache
def _lambda() -> Any:
    return client("lambda")


class AwsDeadLetters:
    """The dead-letter queues that the function's environment names.

    Calls for a queue without a URL in the environment raise LambdaSettingsInvalid.
    """

    def __init__(self, settings: LambdaSettings) -> None:
        self._urls = {
            DeadLetterQueue.FAILED: settings.failed_queue_url,
            DeadLetterQueue.UNDELIVERED: settings.undelivered_queue_url,
            DeadLetterQueue.SCHEDULER: settings.scheduler_dead_letters_url,
        }
        self._scheduler_url = settings.scheduler_queue_url
        self.origin = settings.event_origin
        self.executor_function = settings.executor_function
        self.recorder_function = settings.recorder_function

    def depth(self, queue: DeadLetterQueue) -> int:
        """Return the approximate number of messages in the queue.

        Raises:
            Unavailable: SQS did not answer.
            StorageFailed: SQS refused the call.
        """
        names, url = ["ApproximateNumberOfMessages"], self._url(queue)
        with as_unavailable("the dead-letter queue"):
            answer = _sqs_of_counts().get_queue_attributes(QueueUrl=url, AttributeNames=names)
        return int(answer["Attributes"][names[0]])

    def receive(self, queue: DeadLetterQueue, most: int, held_s: int) -> Sequence[DeadLetter]:
        """Receive up to `most` dead letters. SQS hides them from other receivers for `held_s` seconds."""
        answer = _sqs().receive_message(
            QueueUrl=self._url(queue),
            MaxNumberOfMessages=most,
            VisibilityTimeout=held_s,
            WaitTimeSeconds=WAIT_S,
            MessageAttributeNames=["All"],
        )
        return [_dead_letter(queue, message) for message in answer.get("Messages", [])]

    def invoke(self, function_arn: str, payload: str) -> None:
        """Invoke the function asynchronously with the event `payload` (JSON text).

        Raises:
            DeadLetterRefused: Lambda definitely refuses the call (REFUSALS).
        """
        try:
            _lambda().invoke(FunctionName=function_arn, InvocationType="Event", Payload=payload.encode())
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in REFUSALS:
                raise DeadLetterRefused(f"Lambda does not take it ({code})") from error
            raise

    def call_scheduler(self, dead_letter: DeadLetter) -> None:
        """Send the body of the dead letter to the scheduler's FIFO queue again.

        The deduplication id is derived from the message id, so a repeated call adds no second message.
        """
        _sqs().send_message(
            QueueUrl=self._scheduler_url,
            MessageBody=dead_letter.body,
            MessageGroupId="scheduler",
            MessageDeduplicationId=ecs_requests.token("redrive", dead_letter.message_id),
        )

    def delete(self, dead_letter: DeadLetter) -> None:
        """Delete the dead letter from its queue."""
        _sqs().delete_message(QueueUrl=self._url(dead_letter.queue), ReceiptHandle=dead_letter.receipt)

    def _url(self, queue: DeadLetterQueue) -> str:
        if not self._urls[queue]:
            raise LambdaSettingsInvalid(f"this function is not told where the queue {queue} is")
        return self._urls[queue]


def _dead_letter(queue: DeadLetterQueue, message: dict[str, Any]) -> DeadLetter:
    typed_attributes = message.get("MessageAttributes", {})
    attributes = {name: str(attribute.get("StringValue", "")) for name, attribute in typed_attributes.items()}
    return DeadLetter(queue, message["MessageId"], message["Body"], attributes, message["ReceiptHandle"])
