"""The DynamoDB double answers as DynamoDB does: the same calls on the double, on moto and on MiniStack.

What moto or MiniStack are known to answer differently is listed with the case.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from simulator.dynamodb.double import DynamoDb
from tests.aws.deployed_tables import create_tables
from tests.aws.dynamodb_client import DoubleClient
from tests.aws.environment import REGION
from tests.sandbox.ministack_server import PLAIN, serve

_numbers = count(1)
KEY = {"job_id_rank": {"S": "j"}}
N1, N2, N5 = {"N": "1"}, {"N": "2"}, {"N": "5"}
FIRST = {**KEY, "n": N5, "s": {"S": "text"}, "m": {"M": {"a": N1, "b": {"L": [N1, N2]}}}, "ss": {"SS": ["a", "b"]}}
FAILED, INVALID = "ConditionalCheckFailedException", "ValidationException"
MOTO, MINISTACK = "moto", "ministack"


class Tables(NamedTuple):
    """A client and the name of its empty job table."""

    kind: str
    client: Any
    jobs: str

    def call(self, operation: str, **parameters: Any) -> Any:
        """The answer without metadata, or the code of the error."""
        try:
            answer = getattr(self.client, operation)(TableName=self.jobs, **parameters)
        except ClientError as error:
            return error.response["Error"]["Code"]
        answer.pop("ResponseMetadata", None)
        return answer

    def item(self) -> dict[str, Any] | None:
        """The item with the key KEY."""
        found = self.call("get_item", Key=KEY, ConsistentRead=True)
        item: dict[str, Any] | None = found.get("Item")
        return item


def _tables(kind: str, client: Any) -> Tables:
    number = next(_numbers)
    create_tables(client, f"contract-jobs-{number}", f"contract-instances-{number}")
    return Tables(kind, client, f"contract-jobs-{number}")


@pytest.fixture(scope="session")
def ministack_tables_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A DynamoDB client of a MiniStack."""
    with serve(tmp_path_factory.mktemp("contract"), PLAIN) as cloud:
        yield cloud.client("dynamodb")


@pytest.fixture(
    params=["double", pytest.param(MOTO, marks=pytest.mark.slow), pytest.param(MINISTACK, marks=pytest.mark.slow)]
)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    """Empty tables of each kind."""
    if request.param == "double":
        yield _tables(request.param, DoubleClient(DynamoDb()))
    elif request.param == MINISTACK:
        yield _tables(request.param, request.getfixturevalue("ministack_tables_client"))
    else:
        with mock_aws():
            yield _tables(request.param, _moto_client())


@cache
def _moto_client() -> Any:
    """A DynamoDB client of moto. It keeps no data: moto begins anew with each `mock_aws`."""
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
    return boto3.client("dynamodb", region_name=REGION, **keys)


# -- conditions --------------------------------------------------------------------------------------------------------

HOLDS = [
    "n = :five",
    "n <> :one",
    "n > :one AND n < :nine",
    "n >= :five AND n <= :five",
    "n BETWEEN :one AND :nine",
    "n IN (:one, :five)",
    "attribute_exists(m.a) AND attribute_not_exists(m.z)",
    "attribute_exists(m.b[1])",
    "attribute_not_exists(m.b[2])",
    "begins_with(s, :te)",
    "contains(s, :ex)",
    "contains(ss, :a)",
    "size(s) = :four",
    "size(ss) < :five",
    "attribute_type(n, :type_n)",
    "NOT n = :one",
    "NOT (n = :one OR n = :nine)",
    "n = :one OR s = :text AND n = :five",
    "(n = :one OR s = :text) AND n = :five",
    "absent <> :one",
    "m.a = :one",
    "#w = :text",
]
FAILS = [
    "n = :text",
    "s < :one",
    "absent = :one",
    "absent < :one",
    "n BETWEEN :nine AND :one",
    "n IN (:one, :nine)",
    "begins_with(n, :te)",
    "contains(s, :one)",
    "size(n) = :one",
    "attribute_type(n, :type_s)",
    "NOT n = :five",
    "(n = :one OR s = :text) AND n = :nine",
]
ALL_VALUES = {
    ":one": N1,
    ":five": N5,
    ":nine": {"N": "9.0"},
    ":four": {"N": "4"},
    ":text": {"S": "text"},
    ":te": {"S": "te"},
    ":ex": {"S": "ex"},
    ":a": {"S": "a"},
    ":type_n": {"S": "N"},
    ":type_s": {"S": "S"},
}
AT_ODDS = {
    (MOTO, "s < :one"),
    (MOTO, "size(n) = :one"),
    (MINISTACK, "n BETWEEN :nine AND :one"),
    (MINISTACK, "begins_with(n, :te)"),
}
"""Conditions that an emulator answers otherwise: values of different types have no order, and a number no beginning."""


def _used(*texts: str) -> dict[str, Any]:
    """The placeholders that the expressions contain."""
    words = {word.strip("(), ") for text in texts for word in text.replace("(", " ").split()}
    given: dict[str, Any] = {"ExpressionAttributeValues": {k: v for k, v in ALL_VALUES.items() if k in words}}
    return given | ({"ExpressionAttributeNames": {"#w": "s"}} if "#w" in words else {})


@pytest.mark.parametrize("condition", HOLDS)
def test_a_condition_that_holds(tables: Tables, condition: str) -> None:
    """The write is carried out."""
    tables.call("put_item", Item=FIRST)
    given = {k: v for k, v in _used(condition).items() if v}
    assert tables.call("put_item", Item=KEY, ConditionExpression=condition, **given) == {}
    assert tables.item() == KEY


@pytest.mark.parametrize("condition", FAILS)
def test_a_condition_that_does_not_hold(tables: Tables, condition: str) -> None:
    """The write is refused, and the item stays."""
    if (tables.kind, condition) in AT_ODDS:
        pytest.skip("known to answer otherwise")
    tables.call("put_item", Item=FIRST)
    assert tables.call("put_item", Item=KEY, ConditionExpression=condition, **_used(condition)) == FAILED
    assert tables.item() == FIRST


# -- updates -----------------------------------------------------------------------------------------------------------

UPDATES: list[tuple[str, dict[str, Any]]] = [
    ("SET x = :one", {**FIRST, "x": N1}),
    ("SET n = n + :one", {**FIRST, "n": {"N": "6"}}),
    ("SET n = n - :one", {**FIRST, "n": {"N": "4"}}),
    ("SET x = if_not_exists(x, :one) + :five", {**FIRST, "x": {"N": "6"}}),
    ("SET n = if_not_exists(n, :one)", FIRST),
    ("SET x = n, n = :one", {**FIRST, "x": N5, "n": N1}),
    ("SET m.a = :five", {**FIRST, "m": {"M": {"a": N5, "b": {"L": [N1, N2]}}}}),
    ("SET m.c = :five", {**FIRST, "m": {"M": {"a": N1, "b": {"L": [N1, N2]}, "c": N5}}}),
    ("SET m.b[0] = :five", {**FIRST, "m": {"M": {"a": N1, "b": {"L": [N5, N2]}}}}),
    ("SET m.b[7] = :five", {**FIRST, "m": {"M": {"a": N1, "b": {"L": [N1, N2, N5]}}}}),
    ("SET m.b = list_append(m.b, :list)", {**FIRST, "m": {"M": {"a": N1, "b": {"L": [N1, N2, N5]}}}}),
    ("REMOVE n, m.a", {**{k: v for k, v in FIRST.items() if k != "n"}, "m": {"M": {"b": {"L": [N1, N2]}}}}),
    ("REMOVE m.b[0]", {**FIRST, "m": {"M": {"a": N1, "b": {"L": [N2]}}}}),
    ("REMOVE absent", FIRST),
    ("ADD n :one", {**FIRST, "n": {"N": "6"}}),
    ("ADD x :five", {**FIRST, "x": N5}),
    ("ADD ss :set", {**FIRST, "ss": {"SS": ["a", "b", "c"]}}),
    ("DELETE ss :set", {**FIRST, "ss": {"SS": ["a"]}}),
    ("DELETE absent :set", FIRST),
    ("DELETE ss :all", {k: v for k, v in FIRST.items() if k != "ss"}),
    (
        "SET x = :one REMOVE n ADD y :five DELETE ss :set",
        {**{k: v for k, v in FIRST.items() if k != "n"}, "x": N1, "y": N5, "ss": {"SS": ["a"]}},
    ),
]
UPDATE_VALUES = {
    ":one": N1,
    ":five": N5,
    ":list": {"L": [N5]},
    ":set": {"SS": ["b", "c"]},
    ":all": {"SS": ["a", "b"]},
}


def _plain(item: Any) -> Any:
    """The item with sets in order."""
    return {name: {"SS": sorted(value["SS"])} if "SS" in value else value for name, value in item.items()}


def _values(text: str) -> dict[str, Any]:
    words = {word.strip("(), ") for word in text.split()}
    used = {name: value for name, value in UPDATE_VALUES.items() if name in words}
    return {"ExpressionAttributeValues": used} if used else {}


@pytest.mark.parametrize(("update", "after"), UPDATES, ids=[text for text, _ in UPDATES])
def test_an_update(tables: Tables, update: str, after: dict[str, Any]) -> None:
    """Every change reads the item as it was before; the answer and the table have the item after it."""
    tables.call("put_item", Item=FIRST)
    expected = after
    if "ADD ss" in update:
        expected = {**FIRST, "ss": {"SS": ["a", "b", "c"]}}
    answer = tables.call("update_item", Key=KEY, UpdateExpression=update, ReturnValues="ALL_NEW", **_values(update))
    assert _plain(answer["Attributes"]) == _plain(expected)
    assert _plain(tables.item()) == _plain(expected)


def test_an_update_creates_its_item(tables: Tables) -> None:
    """An item that does not exist has its key and what the update sets."""
    tables.call("update_item", Key=KEY, UpdateExpression="SET n = :one", ExpressionAttributeValues={":one": N1})
    assert tables.item() == {**KEY, "n": N1}


REFUSED_UPDATES = [
    ("SET n = :one, n = :five", {MINISTACK}),
    ("SET m = :one, m.a = :five", {MINISTACK}),
    ("SET job_id_rank = :one", set()),
    ("SET x.y = :one", set()),
    ("SET n = absent + :one", set()),
    ("SET s = s + :one", {MINISTACK}),
    ("ADD s :one", set()),
    ("DELETE n :set", {MINISTACK}),
    ("SET x = :undefined", set()),
    ("SET status = :one", {MINISTACK}),
    ("SET x = :one SET y = :one", {MINISTACK}),
    ("SET", {MINISTACK}),
    ("PUT x :one", {MINISTACK}),
]
"""Updates that DynamoDB refuses, and who is known to carry them out."""


@pytest.mark.parametrize(("update", "lax"), REFUSED_UPDATES, ids=[text for text, _ in REFUSED_UPDATES])
def test_a_malformed_update_is_refused(tables: Tables, update: str, lax: set[str]) -> None:
    """Nothing is written."""
    if tables.kind in lax:
        pytest.skip("known to answer otherwise")
    tables.call("put_item", Item=FIRST)
    assert tables.call("update_item", Key=KEY, UpdateExpression=update, **_values(update)) == INVALID
    assert tables.item() == FIRST


# -- transactions, batches and pages -----------------------------------------------------------------------------------


def _put(tables: Tables, key: str, condition: str = "attribute_not_exists(job_id_rank)") -> dict[str, Any]:
    return {"Put": {"TableName": tables.jobs, "Item": {"job_id_rank": {"S": key}}, "ConditionExpression": condition}}


def test_a_transaction_writes_everything_or_nothing(tables: Tables) -> None:
    """The reasons come in the order of the actions."""
    tables.client.transact_write_items(TransactItems=[_put(tables, "a"), _put(tables, "b")])
    with pytest.raises(ClientError) as refused:
        tables.client.transact_write_items(TransactItems=[_put(tables, "c"), _put(tables, "a")])
    response: Any = refused.value.response
    assert response["Error"]["Code"] == "TransactionCanceledException"
    assert [reason["Code"] for reason in response["CancellationReasons"]] == ["None", "ConditionalCheckFailed"]
    keys = [item["job_id_rank"]["S"] for item in tables.call("scan")["Items"]]
    assert sorted(keys) == ["a", "b"]


def test_a_transaction_that_is_heard_again_is_carried_out_once(tables: Tables) -> None:
    """The same token is the same transaction, whatever was written since."""
    if tables.kind != "double":
        pytest.skip("moto and MiniStack carry it out again")
    add = {
        "Update": {
            "TableName": tables.jobs,
            "Key": KEY,
            "UpdateExpression": "ADD n :one",
            "ExpressionAttributeValues": {":one": N1},
        }
    }
    for _ in range(2):
        tables.client.transact_write_items(TransactItems=[add], ClientRequestToken="token")
    assert tables.item() == {**KEY, "n": N1}


def test_a_transaction_has_one_action_for_an_item(tables: Tables) -> None:
    """Two are refused."""
    with pytest.raises(ClientError, match="multiple operations on one item"):
        tables.client.transact_write_items(TransactItems=[_put(tables, "a"), _put(tables, "a")])


def test_a_refusal_has_the_present_item_if_it_is_wanted(tables: Tables) -> None:
    """With ReturnValuesOnConditionCheckFailure."""
    tables.call("put_item", Item=FIRST)
    with pytest.raises(ClientError) as refused:
        tables.client.put_item(
            TableName=tables.jobs,
            Item=KEY,
            ConditionExpression="attribute_not_exists(n)",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    response: Any = refused.value.response
    assert _plain(response["Item"]) == _plain(FIRST)


def test_an_index_is_read_in_the_order_of_its_sort_key(tables: Tables) -> None:
    """Items without its keys are not in it; its pages continue where the one before ended."""
    for key, at in (("c", "3"), ("a", "1"), ("b", "2"), ("other", None)):
        item = {"job_id_rank": {"S": key}, "line": {"S": "waiting"}, "line_entry": {"S": key}, "more": {"S": "x"}}
        tables.call("put_item", Item=item if at is None else {**item, "line_at": {"S": at}})
    found: list[str] = []
    start: dict[str, Any] = {}
    for _ in range(4):
        page = tables.call(
            "query",
            IndexName="line",
            KeyConditionExpression="#l = :w AND line_at >= :one",
            ExpressionAttributeNames={"#l": "line"},
            ExpressionAttributeValues={":w": {"S": "waiting"}, ":one": {"S": "1"}},
            Limit=2,
            **start,
        )
        found += [item["job_id_rank"]["S"] for item in page["Items"]]
        assert all(set(item) == {"job_id_rank", "line", "line_at", "line_entry"} for item in page["Items"])
        if "LastEvaluatedKey" not in page:
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    assert found == ["a", "b", "c"]


def test_a_batch_returns_the_items_that_exist(tables: Tables) -> None:
    """A key twice is refused."""
    tables.call("put_item", Item=FIRST)
    keys = [KEY, {"job_id_rank": {"S": "none"}}]
    answer = tables.client.batch_get_item(RequestItems={tables.jobs: {"Keys": keys, "ConsistentRead": True}})
    assert [_plain(item) for item in answer["Responses"][tables.jobs]] == [_plain(FIRST)]
    with pytest.raises(ClientError, match="duplicates"):
        tables.client.batch_get_item(RequestItems={tables.jobs: {"Keys": [KEY, KEY]}})
