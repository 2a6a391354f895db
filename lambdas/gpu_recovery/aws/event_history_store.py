"""Event history in DynamoDB: a table with a stream as partition key (`stream`) and a position as sort key (`at`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.dynamodb import BATCH_MAX, condition_failed, is_item_full, plain, typed
from gpu_recovery.aws.item_codec import TTL
from gpu_recovery.core.event_history.streams import CLAIMED_UNTIL, CLAIMS_KEPT, HistoryItem, StoredItem
from gpu_recovery.core.published_events import utc_text

PARTITION, SORT = "stream", "at"
LAST = "\U0010ffff"
"""A text that is greater than every position."""


class DynamoEventHistory:
    """`ports.event_history.EventHistory` on DynamoDB; `client` is a low-level boto3 client.

    Reads are not consistent, but for `load_now`: a reader sees an event a moment later.
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
            if not is_item_full(error):
                raise
            return None
        return _attributes(plain(answer["Attributes"]))

    def remove(self, stream: str, position: str, expected: Mapping[str, str] | None = None) -> None:
        """Delete an item, if it has the expected attributes."""
        request: dict[str, Any] = {"TableName": self._table, "Key": typed({PARTITION: stream, SORT: position})}
        if expected:
            names = list(expected)
            request |= {
                "ConditionExpression": " AND ".join(f"#{n} = :{n}" for n in range(len(names))),
                "ExpressionAttributeNames": {f"#{n}": name for n, name in enumerate(names)},
                "ExpressionAttributeValues": typed({f":{n}": expected[name] for n, name in enumerate(names)}),
            }
        _is_written(self._client.delete_item, request)

    def load_now(self, stream: str, position: str) -> Mapping[str, str]:
        """Return the attributes of an item, consistently read."""
        return self._load(stream, [position], consistent=True).get(position, {})

    def claim(self, stream: str, position: str, now: datetime, until: datetime) -> bool:
        """Claim an item, and return whether it was free."""
        request = {
            "TableName": self._table,
            "Key": typed({PARTITION: stream, SORT: position}),
            "UpdateExpression": "SET #u = :u, #t = :t",
            "ConditionExpression": "attribute_not_exists(#u) OR #u <= :now",
            "ExpressionAttributeNames": {"#u": CLAIMED_UNTIL, "#t": TTL},
            "ExpressionAttributeValues": typed(
                {":u": utc_text(until), ":t": _seconds(until + CLAIMS_KEPT), ":now": utc_text(now)}
            ),
        }
        return _is_written(self._client.update_item, request)

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
        return self._load(stream, positions, consistent=False)

    def _load(self, stream: str, positions: Sequence[str], *, consistent: bool) -> dict[str, Mapping[str, str]]:
        found: dict[str, Mapping[str, str]] = {}
        unique = list(dict.fromkeys(positions))
        for start in range(0, len(unique), BATCH_MAX):
            keys = [typed({PARTITION: stream, SORT: position}) for position in unique[start : start + BATCH_MAX]]
            wanted: Any = {self._table: {"Keys": keys, "ConsistentRead": consistent}}
            while wanted:
                answer = self._client.batch_get_item(RequestItems=wanted)
                items = (plain(item) for item in answer["Responses"].get(self._table, ()))
                found |= {str(item[SORT]): _attributes(item) for item in items}
                wanted = answer.get("UnprocessedKeys")
        return found


def _is_written(call: Callable[..., Any], request: Mapping[str, Any]) -> bool:
    """Make a conditional write. Return whether its condition held."""
    try:
        call(**request)
    except ClientError as error:
        if not condition_failed(error):
            raise
        return False
    return True


def _stored(item: Mapping[str, Any]) -> StoredItem:
    return StoredItem(str(item[SORT]), _attributes(item))


def _attributes(item: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in item.items() if name not in (PARTITION, SORT, TTL)}


def _seconds(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp())
