"""Event history in DynamoDB: a table with a stream as partition key (`stream`) and a position as sort key (`at`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.dynamodb import BATCH_MAX, plain, typed
from gpu_recovery.aws.item_codec import TTL
from gpu_recovery.core.event_history.streams import HistoryItem, StoredItem

PARTITION, SORT = "stream", "at"
LAST = "\U0010ffff"
"""A text that is greater than every position."""
ITEM_FULL = "Item size"
"""Part of the message with which DynamoDB refuses an item of more than 400 KB."""


class DynamoEventHistory:
    """`ports.event_history.EventHistory` on DynamoDB; `client` is a low-level boto3 client.

    Reads are not consistent: a reader sees an event a moment later.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def merge(self, item: HistoryItem) -> Mapping[str, str] | None:
        """Add the attributes to the stored item, and return all of them; None if the item is full."""
        values = {**item.attributes, **({TTL: _seconds(item.expires_at)} if item.expires_at else {})}
        names = list(values)
        request = {
            "TableName": self._table,
            "Key": typed({PARTITION: item.stream, SORT: item.position}),
            "UpdateExpression": "SET " + ", ".join(f"#{n} = :{n}" for n in range(len(names))),
            "ExpressionAttributeNames": {f"#{n}": name for n, name in enumerate(names)},
            "ExpressionAttributeValues": typed({f":{n}": values[name] for n, name in enumerate(names)}),
            "ReturnValues": "ALL_NEW",
        }
        try:
            answer = self._client.update_item(**request)
        except ClientError as error:
            told = error.response["Error"]
            if told["Code"] == "ValidationException" and ITEM_FULL in told.get("Message", ""):
                return None
            raise
        return _attributes(plain(answer["Attributes"]))

    def remove(self, stream: str, position: str) -> None:
        """Delete an item. It may be missing."""
        self._client.delete_item(TableName=self._table, Key=typed({PARTITION: stream, SORT: position}))

    def read(
        self, stream: str, limit: int, *, after: str = "", before: str = "", newest_first: bool = False
    ) -> tuple[StoredItem, ...]:
        """Return at most `limit` items of a stream in the order of their positions."""
        if before and before <= after:
            return ()
        # BETWEEN includes both bounds, and the condition of a key allows no other form with two bounds.
        request: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "#s = :s AND #a BETWEEN :after AND :before",
            "ExpressionAttributeNames": {"#s": PARTITION, "#a": SORT},
            "ExpressionAttributeValues": typed({":s": stream, ":after": after or " ", ":before": before or LAST}),
            "ScanIndexForward": not newest_first,
        }
        found: list[StoredItem] = []
        while len(found) < limit:
            answer = self._client.query(**request, Limit=limit - len(found) + 2)
            items = map(plain, answer["Items"])
            found += [_stored(item) for item in items if str(item[SORT]) not in (after, before)]
            if "LastEvaluatedKey" not in answer:
                break
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return tuple(found[:limit])

    def load(self, stream: str, positions: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the attributes of these items by position; missing items are left out."""
        found: dict[str, Mapping[str, str]] = {}
        unique = list(dict.fromkeys(positions))
        for start in range(0, len(unique), BATCH_MAX):
            keys = [typed({PARTITION: stream, SORT: position}) for position in unique[start : start + BATCH_MAX]]
            wanted: Any = {self._table: {"Keys": keys}}
            while wanted:
                answer = self._client.batch_get_item(RequestItems=wanted)
                items = (plain(item) for item in answer["Responses"].get(self._table, ()))
                found |= {str(item[SORT]): _attributes(item) for item in items}
                wanted = answer.get("UnprocessedKeys")
        return found


def _stored(item: Mapping[str, Any]) -> StoredItem:
    return StoredItem(str(item[SORT]), _attributes(item))


def _attributes(item: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in item.items() if name not in (PARTITION, SORT, TTL)}


def _seconds(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp())
