"""The items of a sandbox's tables, for tests that compare them."""

from __future__ import annotations

import json
import time
from typing import Any

from gpu_recovery.aws.queue_store import SCHEDULER

from sandbox import sandbox
from tests.sandbox.patience import wait_until


def tables(state: dict[str, Any]) -> dict[str, bytes]:
    """Every item of both tables as DynamoDB has it, but for what the scheduler notes of its own passes.

    Keys are `<table> <key of the item>`.
    """
    client = sandbox.client("dynamodb", state["endpoint_url"], state)
    found: dict[str, bytes] = {}
    for name in state["tables"].values():
        for page in client.get_paginator("scan").paginate(TableName=name, ConsistentRead=True):
            for item in page["Items"]:
                key = next(item[one]["S"] for one in ("job_id_rank", "container_inst_id") if one in item)
                found[f"{name} {key}"] = json.dumps(item, sort_keys=True, default=str).encode()
    return {key: text for key, text in found.items() if key.partition(" ")[2] != SCHEDULER}


def tables_at_rest(state: dict[str, Any]) -> dict[str, bytes]:
    """The tables once nothing has been written for a second: what follows of the calls before is done."""

    def at_rest() -> dict[str, bytes] | None:
        before = tables(state)
        time.sleep(1)
        return before if tables(state) == before else None

    found: dict[str, bytes] = wait_until(at_rest)
    return found
