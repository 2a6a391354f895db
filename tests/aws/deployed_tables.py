"""The tables as `infra/tables.py` deploys them, for servers that speak DynamoDB: moto and MiniStack."""

from __future__ import annotations

from typing import Any

JOB_LIST = ["attempt", "version", "spec", "instances", "repairing", "reason", "status_at", "origin"]
LISTING = ["listed", "claims", "reserved_for", "past", "check", "schema", "complete_at"]
TYPES = {"shard": "N", "listing": "N"}


def _index(name: str, partition: str, sort: str, projection: dict[str, Any]) -> dict[str, Any]:
    keys = [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]
    return {"IndexName": name, "KeySchema": keys, "Projection": projection}


def _table(name: str, key: str, *others: dict[str, Any]) -> dict[str, Any]:
    indexes = [_index("due", "shard", "due_at", {"ProjectionType": "KEYS_ONLY"}), *others]
    used = {key} | {one["AttributeName"] for index in indexes for one in index["KeySchema"]}
    return {
        "TableName": name,
        "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": a, "AttributeType": TYPES.get(a, "S")} for a in sorted(used)],
        "GlobalSecondaryIndexes": indexes,
        "BillingMode": "PAY_PER_REQUEST",
    }


WHOLE = _index("by_status", "status", "container_inst_id", {"ProjectionType": "ALL"})
"""The index of instances that a deployment with the setting `upgrade_from` has."""


def create_history_table(client: Any, name: str) -> None:
    """Create the table of the event history under the given name."""
    keys = {"stream": "HASH", "at": "RANGE"}
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        BillingMode="PAY_PER_REQUEST",
    )


def create_tables(client: Any, jobs: str, instances: str, *, is_complete: bool = True, upgrade_from: str = "") -> None:
    """Create the tables of jobs and instances under the given names.

    is_complete: the index `listing` is marked as complete, as the reconciler does in a new deployment.
    upgrade_from: the setting of this name.
    """
    listed = {"ProjectionType": "INCLUDE", "NonKeyAttributes": JOB_LIST}
    line = _index("line", "line", "line_at", {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["line_entry"]})
    by_status = _index("by_status", "status", "queued_at", listed)
    client.create_table(**_table(jobs, "job_id_rank", by_status, line))
    listing = _index(
        "listing", "listing", "container_inst_id", {"ProjectionType": "INCLUDE", "NonKeyAttributes": LISTING}
    )
    whole = [WHOLE] if upgrade_from else []
    client.create_table(**_table(instances, "container_inst_id", *whole, listing))
    if is_complete:
        at = {"S": "2100-01-01T00:00:00.000000Z"}
        mark = {"container_inst_id": {"S": "#listing"}, "listing": {"N": "0"}, "complete_at": at}
        client.put_item(TableName=instances, Item=mark)
