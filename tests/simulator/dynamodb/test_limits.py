"""The DynamoDB double refuses what exceeds a limit of DynamoDB. moto and MiniStack know few of the limits."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from simulator.dynamodb.double import DynamoDb
from simulator.dynamodb.errors import UnsupportedRequest
from simulator.dynamodb.limits import (
    BATCH_GET_KEYS_MAX,
    BATCH_WRITE_ITEMS_MAX,
    EXPRESSION_BYTES_MAX,
    ITEM_BYTES_MAX,
    OPERATORS_MAX,
    PAGE_BYTES_MAX,
    TRANSACTION_ACTIONS_MAX,
)
from tests.aws.deployed_tables import create_tables
from tests.aws.dynamodb_client import DoubleClient

KEY = {"job_id_rank": {"S": "j"}}


@pytest.fixture
def client() -> Any:
    """A client of empty tables."""
    made = DoubleClient(DynamoDb())
    create_tables(made, "jobs", "instances")
    return made


def _sized(size: int, key: str = "j") -> dict[str, Any]:
    """An item of so many bytes."""
    return {"job_id_rank": {"S": key}, "x": {"S": "x" * (size - len("job_id_rank") - len(key) - 1)}}


def _put(number: int, size: int = 0) -> dict[str, Any]:
    item = _sized(size, str(number)) if size else {"job_id_rank": {"S": str(number)}}
    return {"Put": {"TableName": "jobs", "Item": item}}


def _chain(terms: int) -> str:
    """A condition of so many comparisons, each with the sign between: twice as many operators, less one."""
    return " OR ".join(["n = :v"] * terms)


def _condition(client: Any, text: str) -> None:
    client.put_item(TableName="jobs", Item=KEY, ConditionExpression=text, ExpressionAttributeValues={":v": {"N": "1"}})


def test_an_item_has_400_kb_at_most(client: Any) -> None:
    """Names count, too; also where an update makes it larger."""
    client.put_item(TableName="jobs", Item=_sized(ITEM_BYTES_MAX))
    with pytest.raises(ClientError, match="Item size has exceeded"):
        client.put_item(TableName="jobs", Item=_sized(ITEM_BYTES_MAX + 1))
    with pytest.raises(ClientError, match="Item size to update has exceeded"):
        client.update_item(
            TableName="jobs", Key=KEY, UpdateExpression="SET y = :y", ExpressionAttributeValues={":y": {"S": "y"}}
        )


def test_an_expression_has_4_kb_at_most(client: Any) -> None:
    """Its text, with placeholders as they stand."""
    long = "attribute_exists(" + "n" * (EXPRESSION_BYTES_MAX - len("attribute_exists()")) + ")"
    assert len(long) == EXPRESSION_BYTES_MAX
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        client.put_item(TableName="jobs", Item=KEY, ConditionExpression=long)
    with pytest.raises(ClientError, match="Expression size has exceeded"):
        client.put_item(TableName="jobs", Item=KEY, ConditionExpression=long.replace("(n", "(nn"))


def test_an_expression_has_300_operators_at_most(client: Any) -> None:
    """Comparators, signs between them and functions."""
    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        _condition(client, _chain(OPERATORS_MAX // 2))
    with pytest.raises(ClientError, match="too many operators"):
        _condition(client, _chain(OPERATORS_MAX // 2 + 1))


def test_a_transaction_has_100_actions_and_4_mb_at_most(client: Any) -> None:
    """More are refused before anything is written."""
    client.transact_write_items(TransactItems=[_put(n) for n in range(TRANSACTION_ACTIONS_MAX)])
    for actions in (
        [_put(n) for n in range(TRANSACTION_ACTIONS_MAX + 1)],
        [_put(n, ITEM_BYTES_MAX) for n in range(11)],
    ):
        with pytest.raises(ClientError, match="ValidationException"):
            client.transact_write_items(TransactItems=actions)


def test_batches_have_a_limit(client: Any) -> None:
    """100 keys to read, 25 items to write."""
    keys = [{"job_id_rank": {"S": str(n)}} for n in range(BATCH_GET_KEYS_MAX + 1)]
    client.batch_get_item(RequestItems={"jobs": {"Keys": keys[:-1]}})
    with pytest.raises(ClientError, match="Too many items"):
        client.batch_get_item(RequestItems={"jobs": {"Keys": keys}})
    puts = [{"PutRequest": {"Item": key}} for key in keys[: BATCH_WRITE_ITEMS_MAX + 1]]
    with pytest.raises(ClientError, match="Too many items"):
        client.batch_write_item(RequestItems={"jobs": puts})


def test_a_page_has_1_mb_at_most(client: Any) -> None:
    """What was left over has a key to continue from."""
    for n in range(4):
        client.put_item(TableName="jobs", Item=_sized(PAGE_BYTES_MAX // 3, str(n)))
    first = client.scan(TableName="jobs")
    assert len(first["Items"]) == 3 and first["LastEvaluatedKey"] == {"job_id_rank": {"S": "2"}}
    rest = client.scan(TableName="jobs", ExclusiveStartKey=first["LastEvaluatedKey"])
    assert len(rest["Items"]) == 1 and "LastEvaluatedKey" not in rest


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"job_id_rank": {"S": ""}}, "empty string value"),
        ({"job_id_rank": {"S": "x" * 2_049}}, "exceeded the maximum size limit"),
        ({"job_id_rank": {"N": "1"}}, "does not match the schema"),
        ({"n": {"N": "1"}}, "does not match the schema"),
        ({**KEY, "status": {"N": "1"}}, "Type mismatch for Index Key"),
        ({**KEY, "status": {"S": ""}}, "empty string value"),
        ({**KEY, "queued_at": {"S": "x" * 1_025}}, "exceeded the maximum size limit"),
        ({**KEY, "n": {"N": "1" * 39}}, "38 significant digits"),
        ({**KEY, "n": {"N": "1E126"}}, "magnitude"),
        ({**KEY, "n": {"N": "one"}}, "numeric value"),
        ({**KEY, "ss": {"SS": []}}, "may not be empty"),
        ({**KEY, "ss": {"SS": ["a", "a"]}}, "duplicates"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_item_that_no_table_can_hold(client: Any, item: dict[str, Any], message: str) -> None:
    """It is refused, with the reason."""
    with pytest.raises(ClientError, match=message):
        client.put_item(TableName="jobs", Item=item)


def test_lists_and_maps_have_32_levels_at_most(client: Any) -> None:
    """One more is refused."""
    value: dict[str, Any] = {"S": "x"}
    for _ in range(32):
        value = {"L": [value]}
    client.put_item(TableName="jobs", Item={**KEY, "deep": value})
    with pytest.raises(ClientError, match="Nesting Levels"):
        client.put_item(TableName="jobs", Item={**KEY, "deep": {"L": [value]}})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ConditionExpression": "n = :v"}, "not defined"),
        ({"ConditionExpression": "#n = :v", "ExpressionAttributeValues": {":v": {"N": "1"}}}, "not defined"),
        ({"ConditionExpression": "attribute_exists(n)", "ExpressionAttributeValues": {":v": {"N": "1"}}}, "unused"),
        ({"ConditionExpression": "attribute_exists(n)", "ExpressionAttributeNames": {"#v": "x"}}, "unused"),
        ({"ConditionExpression": "attribute_exists(status)"}, "reserved keyword"),
        ({"ConditionExpression": "n ="}, "Syntax error"),
        ({"ConditionExpression": "n = :v AND", "ExpressionAttributeValues": {":v": {"N": "1"}}}, "Syntax error"),
        ({"ConditionExpression": ""}, "can not be empty"),
        ({"ConditionExpression": "n ? :v"}, "Syntax error"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_malformed_expression(client: Any, given: dict[str, Any], message: str) -> None:
    """It is refused, with the reason."""
    with pytest.raises(ClientError, match=message):
        client.put_item(TableName="jobs", Item=KEY, **given)


def test_what_the_double_does_not_have_is_no_answer(client: Any) -> None:
    """A parameter that it would have to ignore stops the test."""
    with pytest.raises(UnsupportedRequest, match="ProjectionExpression"):
        client.get_item(TableName="jobs", Key=KEY, ProjectionExpression="n")


def test_a_table_that_does_not_exist(client: Any) -> None:
    """Is not found."""
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        client.get_item(TableName="none", Key=KEY)
