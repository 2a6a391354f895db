"""The dead-letter queues in SQS, and giving their letters back: `job_api.redrive.DeadLetters` on AWS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws import ecs_requests
from gpu_recovery.aws.clients import client
from gpu_recovery.aws.settings import Settings, SettingsMissing
from gpu_recovery.job_api.redrive import Grave, Letter, LetterRefused

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

    def __init__(self, settings: Settings) -> None:
        self._urls = {
            Grave.FAILED: settings.failed_queue_url,
            Grave.UNDELIVERED: settings.undelivered_queue_url,
            Grave.SCHEDULER: settings.scheduler_dead_letters_url,
        }
        self._scheduler_url = settings.scheduler_queue_url

    def depth(self, grave: Grave) -> int:
        names = ["ApproximateNumberOfMessages"]
        answer = _sqs().get_queue_attributes(QueueUrl=self._url(grave), AttributeNames=names)
        return int(answer["Attributes"][names[0]])

    def receive(self, grave: Grave, most: int, held_s: int) -> Sequence[Letter]:
        answer = _sqs().receive_message(
            QueueUrl=self._url(grave),
            MaxNumberOfMessages=most,
            VisibilityTimeout=held_s,
            WaitTimeSeconds=WAIT_S,
            MessageAttributeNames=["All"],
        )
        return [_letter(grave, message) for message in answer.get("Messages", [])]

    def invoke(self, function_arn: str, payload: str) -> None:
        try:
            _lambda().invoke(FunctionName=function_arn, InvocationType="Event", Payload=payload.encode())
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in REFUSALS:
                raise LetterRefused(f"Lambda does not take it ({code})") from error
            raise

    def call_scheduler(self, letter: Letter) -> None:
        _sqs().send_message(
            QueueUrl=self._scheduler_url,
            MessageBody=letter.body,
            MessageGroupId="scheduler",
            MessageDeduplicationId=ecs_requests.token("redrive", letter.message_id),
        )

    def delete(self, letter: Letter) -> None:
        _sqs().delete_message(QueueUrl=self._url(letter.grave), ReceiptHandle=letter.receipt)

    def _url(self, grave: Grave) -> str:
        if not self._urls[grave]:
            raise SettingsMissing(f"this function is not told where the queue {grave} is")
        return self._urls[grave]


def _letter(grave: Grave, message: dict[str, Any]) -> Letter:
    told = message.get("MessageAttributes", {})
    attributes = {name: str(one.get("StringValue", "")) for name, one in told.items()}
    return Letter(grave, message["MessageId"], message["Body"], attributes, message["ReceiptHandle"])
