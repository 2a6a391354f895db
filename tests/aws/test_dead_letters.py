"""The dead-letter queues in SQS: what is received, hidden, given back and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber
from gpu_recovery.aws import dead_letters
from gpu_recovery.aws.dead_letters import AwsDeadLetters
from gpu_recovery.aws.settings import LambdaSettings, LambdaSettingsInvalid
from gpu_recovery.job_api.redrive import DeadLetterQueue, DeadLetterRefused, redrive
from moto import mock_aws

from tests.aws.ecs_events import ours
from tests.aws.environment import CREDENTIALS, FUNCTION
from tests.aws.records import JOB

ARN = "arn:aws:lambda:us-east-1:123456789012:function:gpu-recovery-ecs_task_handler"
EXECUTOR = ARN.replace("ecs_task_handler", "command_executor")
EVENT = ours({"detail": {"taskArn": "t"}})


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The four queues, and functions that find them."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        dead_letters._sqs.cache_clear()
        dead_letters._lambda.cache_clear()
        sqs = boto3.client("sqs")
        fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        made = {
            "FAILED_QUEUE_URL": sqs.create_queue(QueueName="failed")["QueueUrl"],
            "UNDELIVERED_QUEUE_URL": sqs.create_queue(QueueName="undelivered")["QueueUrl"],
            "SCHEDULER_DEAD_LETTERS_URL": sqs.create_queue(QueueName="dead.fifo", Attributes=fifo)["QueueUrl"],
            "SCHEDULER_QUEUE_URL": sqs.create_queue(QueueName="scheduler.fifo", Attributes=fifo)["QueueUrl"],
        }
        yield made
    dead_letters._sqs.cache_clear()
    dead_letters._lambda.cache_clear()


@pytest.fixture
def letters(queues: dict[str, str]) -> AwsDeadLetters:
    """As the API makes them."""
    return AwsDeadLetters(LambdaSettings.from_environment(FUNCTION | queues))


def send(url: str, body: Any, **more: Any) -> None:
    boto3.client("sqs").send_message(QueueUrl=url, MessageBody=json.dumps(body), **more)


def visible(url: str) -> list[dict[str, Any]]:
    """The messages that anybody could receive now; a look that hides none."""
    asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "VisibilityTimeout": 0, "AttributeNames": ["All"]}
    found: list[dict[str, Any]] = boto3.client("sqs").receive_message(**asked).get("Messages", [])
    return found


@pytest.mark.slow
def test_a_letter_comes_with_the_attributes_that_eventbridge_gave_it(
    letters: AwsDeadLetters, queues: dict[str, str]
) -> None:
    """They alone say whom it was for."""
    attribute = {"TARGET_ARN": {"DataType": "String", "StringValue": ARN}}
    send(queues["UNDELIVERED_QUEUE_URL"], EVENT, MessageAttributes=attribute)
    (letter,) = letters.receive(DeadLetterQueue.UNDELIVERED, 10, 30)
    assert (letter.attributes, json.loads(letter.body)) == ({"TARGET_ARN": ARN}, EVENT)
    assert letters.receive(DeadLetterQueue.UNDELIVERED, 10, 30) == []
    letters.delete(letter)
    assert letters.depth(DeadLetterQueue.UNDELIVERED) == 0


def test_a_look_hides_nothing(letters: AwsDeadLetters, queues: dict[str, str]) -> None:
    """The redrive that follows must find what the look has found."""
    send(queues["FAILED_QUEUE_URL"], EVENT)
    assert letters.depth(DeadLetterQueue.FAILED) == 1
    first, second = letters.receive(DeadLetterQueue.FAILED, 10, 0), letters.receive(DeadLetterQueue.FAILED, 10, 0)
    assert [one.message_id for one in first] == [one.message_id for one in second] != []


@pytest.mark.slow
def test_a_call_for_the_scheduler_goes_into_its_one_group(letters: AwsDeadLetters, queues: dict[str, str]) -> None:
    """Also when the same words were said within the last five minutes: nothing swallows it."""
    grave = queues["SCHEDULER_DEAD_LETTERS_URL"]
    send(grave, {"key": "a"}, MessageGroupId="scheduler", MessageDeduplicationId="1")
    send(grave, {"key": "a"}, MessageGroupId="scheduler", MessageDeduplicationId="2")
    assert len(list(redrive(letters, (DeadLetterQueue.SCHEDULER,), 10))) == 2
    called = visible(queues["SCHEDULER_QUEUE_URL"])
    assert len(called) == 2
    assert {one["Attributes"]["MessageGroupId"] for one in called} == {"scheduler"}
    assert letters.depth(DeadLetterQueue.SCHEDULER) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("arn", "payload"), [(ARN, EVENT), (EXECUTOR, {"job_id": JOB})])
def test_a_failed_event_is_invoked_asynchronously_and_then_deleted(
    letters: AwsDeadLetters, queues: dict[str, str], arn: str, payload: dict[str, Any]
) -> None:
    """So that it has its retries again, and its failure destination; the command executor gets its request again."""
    send(queues["FAILED_QUEUE_URL"], {"requestContext": {"functionArn": f"{arn}:$LATEST"}, "requestPayload": payload})
    asked = {"FunctionName": arn, "InvocationType": "Event", "Payload": json.dumps(payload).encode()}
    with Stubber(dead_letters._lambda()) as awslambda:
        awslambda.add_response("invoke", {"StatusCode": 202}, asked)
        (fate,) = redrive(letters, (DeadLetterQueue.FAILED,), 10)
        awslambda.assert_no_pending_responses()
    assert fate.why == ""
    assert letters.depth(DeadLetterQueue.FAILED) == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("ResourceNotFoundException", DeadLetterRefused),
        ("AccessDeniedException", DeadLetterRefused),
        ("RequestEntityTooLargeException", DeadLetterRefused),
        ("ServiceException", ClientError),
    ],
)
def test_a_no_for_good_is_told_apart_from_trouble(letters: AwsDeadLetters, code: str, error: type[Exception]) -> None:
    """A function that is gone is the letter's problem; a service in trouble is the operator's, who tries again."""
    with Stubber(dead_letters._lambda()) as awslambda:
        awslambda.add_client_error(
            "invoke",
            code,
            http_status_code=400,
            expected_params={"FunctionName": ARN, "InvocationType": "Event", "Payload": ANY},
        )
        with pytest.raises(error):
            letters.invoke(ARN, "{}")


def test_a_queue_that_the_function_is_not_told_of_is_an_error(queues: dict[str, str]) -> None:
    """Only the API's environment names them."""
    without = {name: value for name, value in (FUNCTION | queues).items() if name != "FAILED_QUEUE_URL"}
    with pytest.raises(LambdaSettingsInvalid, match="failed"):
        AwsDeadLetters(LambdaSettings.from_environment(without)).depth(DeadLetterQueue.FAILED)
