"""What our clients make of refusals and silence, with botocore's own retries: counted, never slept."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from gpu_recovery.aws.clients import NO_RETRIES, STANDARD_RETRIES, client
from gpu_recovery.aws.dynamodb import CONFLICTS_MAX, Put, Table
from gpu_recovery.ports.errors import TryAgainSoon

from tests.platform.cloud import Answer, Request, Sleeps
from tests.platform.faults import refusal
from tests.platform.scripted_client import Scripted

FUNCTIONS = Path(__file__).parents[2] / "infra" / "functions.py"
TRIES = 5
CALLS: dict[str, Callable[[Any], Any]] = {
    "ecs": lambda ecs: ecs.list_tasks(cluster="c"),
    "ec2": lambda ec2: ec2.describe_instances(),
    "sns": lambda sns: sns.publish(TopicArn="arn:aws:sns:us-east-1:123456789012:t", Message="m"),
    "sqs": lambda sqs: sqs.send_message(QueueUrl="https://sqs.us-east-1.amazonaws.com/123456789012/q", MessageBody="m"),
    "events": lambda bus: bus.put_events(Entries=[{"Source": "s", "DetailType": "t", "Detail": "{}"}]),
    "s3": lambda s3: s3.get_object(Bucket="b", Key="k"),
    "dynamodb": lambda db: db.get_item(TableName="t", Key={"k": {"S": "1"}}),
}
CODES = [
    ("ecs", "ThrottlingException"),
    ("ec2", "RequestLimitExceeded"),
    ("sns", "Throttled"),
    ("sns", "Throttling"),
    ("sns", "KMSThrottling"),
    ("sqs", "RequestThrottled"),
    ("sqs", "KmsThrottled"),
    ("events", "ThrottlingException"),
    ("s3", "SlowDown"),
    ("dynamodb", "ProvisionedThroughputExceededException"),
    ("dynamodb", "ThrottlingException"),
    ("dynamodb", "RequestLimitExceeded"),
]


SILENCE = ReadTimeoutError(endpoint_url="https://aws")


@pytest.mark.parametrize(("service", "code"), CODES)
def test_a_throttle_of_every_service_is_a_definite_no(sleeps: Sleeps, service: str, code: str) -> None:
    """Whether or not botocore knows its name, and however often it tried."""
    made = client(service)
    Scripted(made, (code, 503 if service in ("s3", "ec2") else 400))
    with pytest.raises(TryAgainSoon, match=code):
        CALLS[service](made)


def test_a_throttle_after_a_silence_is_none(sleeps: Sleeps) -> None:
    """The first try may have been heard: whoever takes it for a no would do it twice."""
    made = client("ecs")
    answers = Scripted(made, SILENCE, ("ThrottlingException", 400))
    with pytest.raises(ClientError, match="ThrottlingException"):
        CALLS["ecs"](made)
    assert answers.asked == TRIES == len(sleeps.seconds) + 1


def test_a_throttle_after_trouble_on_their_side_is_none(sleeps: Sleeps) -> None:
    """A 500 says nothing about what was done."""
    made = client("ecs")
    Scripted(made, ("ServerException", 500), ("ThrottlingException", 400))
    with pytest.raises(ClientError, match="ThrottlingException"):
        CALLS["ecs"](made)


@pytest.mark.parametrize("code", ["AccessDeniedException", "ServerException", "TransactionInProgressException"])
def test_no_other_error_is_a_throttle(sleeps: Sleeps, code: str) -> None:
    """It is raised as it is."""
    made = client("ecs")
    Scripted(made, (code, 500 if code == "ServerException" else 400))
    with pytest.raises(ClientError, match=code):
        CALLS["ecs"](made)


def test_a_client_that_may_ask_once_asks_once(sleeps: Sleeps) -> None:
    """RebootInstances has no client token."""
    made = client("ec2", NO_RETRIES)
    answers = Scripted(made, ("RequestLimitExceeded", 503))
    with pytest.raises(TryAgainSoon):
        made.reboot_instances(InstanceIds=["i-1"])
    assert answers.asked == 1


def test_a_call_that_nobody_answers_ends_before_its_function_does() -> None:
    """Else the function dies without a word to its log, and what it had done is settled by nobody."""
    rows = [one for one in ast.walk(ast.parse(FUNCTIONS.read_text())) if _is_row(one)]
    timeouts = {row.args[0].value: row.args[2].value for row in rows}  # type: ignore[attr-defined]
    for asked in ("job_api", "node_api"):
        timeouts.pop(asked)  # whoever asks by HTTP asks again
    assert len(timeouts) >= 5
    tries = STANDARD_RETRIES.retries["total_max_attempts"]
    waits = sum(min(2**n, 20) for n in range(tries - 1))
    assert tries == TRIES
    assert tries * (STANDARD_RETRIES.connect_timeout + STANDARD_RETRIES.read_timeout) + waits < min(timeouts.values())
    assert NO_RETRIES.connect_timeout + NO_RETRIES.read_timeout < min(timeouts.values())


def _is_row(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "FunctionRow"


# -- DynamoDB ----------------------------------------------------------------------------------------------------------

ITEM = {"key": "a", "revision": 2}


def table(*script: tuple[str, int] | Exception | Answer) -> tuple[Table, Scripted]:
    """A table that answers with `script`."""
    made = client("dynamodb")
    return Table(made, "t", "key"), Scripted(made, *script)


def refused(**held: Any) -> Answer:
    """A failed condition, and the item that was there."""
    request = Request(0, 0, "dynamodb", "PutItem", {})
    return refusal(request, "ConditionalCheckFailedException", "", 400, **({"Item": held} if held else {}))


OURS = {"key": {"S": "a"}, "revision": {"N": "2"}}


def test_a_write_that_was_heard_and_not_answered_is_known_again(sleeps: Sleeps) -> None:
    """The second try finds the item that the first one wrote."""
    written, answers = table(SILENCE, refused(**OURS))
    assert written.put(ITEM, "revision = :read", {":read": 1}) is True
    assert answers.asked == 2


def test_another_writers_item_is_not_taken_for_ours(sleeps: Sleeps) -> None:
    """Neither after a silence, nor if the very first try is refused by an item that looks like ours."""
    other, _ = table(SILENCE, refused(**{**OURS, "by": {"S": "somebody"}}))
    assert other.put(ITEM, "revision = :read", {":read": 1}) is False
    twin, _ = table(refused(**OURS))
    assert twin.put(ITEM, "revision = :read", {":read": 1}) is False


def test_an_item_that_a_transaction_holds_is_written_when_it_is_free(sleeps: Sleeps) -> None:
    """A conflict says nothing about the condition, and botocore does not try again."""
    conflict = ("TransactionConflictException", 400)
    written, answers = table(conflict, conflict, Answer(200, b"{}"))
    assert written.put(ITEM, "revision = :read", {":read": 1}) is True
    assert answers.asked == 3
    held, answers = table(conflict)
    with pytest.raises(TryAgainSoon):
        held.put(ITEM, "revision = :read", {":read": 1})
    assert answers.asked == CONFLICTS_MAX


@pytest.mark.parametrize("code", ["ThrottlingError", "ProvisionedThroughputExceeded"])
def test_a_transaction_canceled_for_its_rate_is_no_failed_condition(sleeps: Sleeps, code: str) -> None:
    """Nothing was written, and nobody else was there."""
    reasons = [{"Code": "None"}, {"Code": code}]
    request = Request(0, 0, "dynamodb", "TransactWriteItems", {})
    written, _ = table(refusal(request, "TransactionCanceledException", "", 400, CancellationReasons=reasons))
    put = Put(ITEM, "revision = :read", {":read": 1})
    with pytest.raises(TryAgainSoon, match=code):
        written.put_all([put, Put({**ITEM, "key": "b"}, "revision = :read", {":read": 1})])


def test_clients_are_made_by_boto3(sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings given: tests and X-Ray alike stand in for `boto3.client`."""
    asked: list[tuple[str, Any]] = []
    made = boto3.client("ecs")

    def stand_in(service: str, config: Any) -> Any:
        asked.append((service, config))
        return made

    monkeypatch.setattr(boto3, "client", stand_in)
    assert client("ecs") is made and client("ec2", NO_RETRIES) is made
    assert asked == [("ecs", STANDARD_RETRIES), ("ec2", NO_RETRIES)]
