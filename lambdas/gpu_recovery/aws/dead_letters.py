"""The dead-letter queues in SQS, and giving their letters back: `job_api.redrive.DeadLetters` on AWS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.clients import client
from gpu_recovery.aws.settings import LambdaSettings, LambdaSettingsMissing
from gpu_recovery.job_api.redrive import DeadLetter, DeadLetterQueue, DeadLetterRefused

WAIT_S = 1
"""Without any wait SQS asks only some of its servers, and may say that a queue is empty which is not."""
REFUSALS = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ResourceNotFoundException",
        "InvalidRequestContentException",
        "RequestTooLargeException",
        "InvalidParameterValueException",
    }
)
"""Errors of Invoke that say no for good: no such function, none that we may call, nothing that it could take."""


@cache
def _sqs() -> Any:
    return client("sqs")


@cache
def _lambda() -> Any:
    return client("lambda")


class AwsDeadLetters:
    """The queues that a function's environment names; SettingsMissing for one that it does not."""

    def __init__(self, settings: LambdaSettings) -> None:
        self._urls = {
            DeadLetterQueue.FAILED: settings.failed_queue_url,
            DeadLetterQueue.UNDELIVERED: settings.undelivered_queue_url,
            DeadLetterQueue.SCHEDULER: settings.scheduler_dead_letters_url,
        }
        self._scheduler_url = settings.scheduler_queue_url

    def depth(self, queue: DeadLetterQueue) -> int:
        names = ["ApproximateNumberOfMessages"]
        answer = _sqs().get_queue_attributes(QueueUrl=self._url(queue), AttributeNames=names)
        return int(answer["Attributes"][names[0]])

    def receive(self, queue: DeadLetterQueue, most: int, held_s: int) -> Sequence[DeadLetter]:
        answer = _sqs().receive_message(
            QueueUrl=self._url(queue),
            MaxNumberOfMessages=most,
            VisibilityTimeout=held_s,
            WaitTimeSeconds=WAIT_S,
            MessageAttributeNames=["All"],
        )
        return [_dead_letter(queue, message) for message in answer.get("Messages", [])]

    def invoke(self, function_arn: str, payload: str) -> None:
        try:
            _lambda().invoke(FunctionName=function_arn, InvocationType="Event", Payload=payload.encode())
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in REFUSALS:
                raise DeadLetterRefused(f"Lambda does not take it ({code})") from error
            raise

    def call_scheduler(self, letter: DeadLetter) -> None:
        _sqs().send_message(
            QueueUrl=self._scheduler_url,
            MessageBody=letter.body,
            MessageGroupId="scheduler",
            MessageDeduplicationId=ecs_requests.token("redrive", letter.message_id),
        )

    def delete(self, letter: DeadLetter) -> None:
        _sqs().delete_message(QueueUrl=self._url(letter.queue), ReceiptHandle=letter.receipt)

    def _url(self, grave: DeadLetterQueue) -> str:
        if not self._urls[grave]:
            raise LambdaSettingsMissing(f"this function is not told where the queue {grave} is")
        return self._urls[grave]


def _dead_letter(grave: DeadLetterQueue, message: dict[str, Any]) -> DeadLetter:
    told = message.get("MessageAttributes", {})
    attributes = {name: str(one.get("StringValue", "")) for name, one in told.items()}
    return DeadLetter(grave, message["MessageId"], message["Body"], attributes, message["ReceiptHandle"])
