"""The two tables as `infra/tables.py` deploys them, for servers that speak DynamoDB: moto and MiniStack."""

from __future__ import annotations

from typing import Any

JOB_LIST = ["attempt", "version", "spec", "instances", "repairing", "reason", "status_at", "origin"]
TYPES = {"shard": "N"}


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


def create_tables(client: Any, jobs: str, instances: str) -> None:
    """Create both tables under the given names."""
    listed = {"ProjectionType": "INCLUDE", "NonKeyAttributes": JOB_LIST}
    line = _index("line", "line", "line_at", {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["line_entry"]})
    by_status = _index("by_status", "status", "queued_at", listed)
    client.create_table(**_table(jobs, "job_id_rank", by_status, line))
    whole = {"ProjectionType": "ALL"}
    client.create_table(
        **_table(instances, "container_inst_id", _index("by_status", "status", "container_inst_id", whole))
    )
