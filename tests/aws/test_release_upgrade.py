"""What the first schema wrote is carried out by this release: its items lie in items_schema_1.json as they were stored.

A job and an instance with every command of that schema still to be done. The file is never written again: a release
that cannot read it leaves behind the jobs of everybody who upgrades.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.item_codec import SCHEMA, ItemUnreadable, encode
from gpu_recovery.aws.store import DynamoStore

ITEMS = json.loads((Path(__file__).parent / "items_schema_1.json").read_text())
KEYS = {"job": ("job_id_rank", "job_id"), "instance": ("container_inst_id", "instance_id")}


def _put(store: DynamoStore, kind: str, item: Mapping[str, Any]) -> str:
    """Store the item as it is, below the code that reads and writes records; its key."""
    table = store.jobs if kind == "job" else store.table
    table.client.put_item(TableName=table.name, Item=typed(dict(item)))
    return str(item[KEYS[kind][0]])


def _load(store: DynamoStore, kind: str, key: str) -> Any:
    return store.load_job(key) if kind == "job" else store.load_instance(key)


def _within(old: Any, new: Any, where: str) -> None:
    """Every key of the old item is in the new one with the same value; the new one may have more."""
    if isinstance(old, dict):
        for key, value in old.items():
            assert key in new, f"{where}.{key}"
            _within(value, new[key], f"{where}.{key}")
    else:
        assert old == new, where


@pytest.mark.parametrize("kind", KEYS)
def test_a_command_that_the_old_release_saved_is_carried_out_as_it_was_meant(
    double_store: DynamoStore, kind: str
) -> None:
    """Every command of the old schema is found again, in order, with each of its fields."""
    record = _load(double_store, kind, _put(double_store, kind, ITEMS[kind]))
    stored = ITEMS[kind]["commands"]
    assert len(stored) >= 8
    assert [one.command_id for one in record.commands] == list(stored)
    for one in record.commands:
        _within(stored[one.command_id], encode(one), one.command_id)


@pytest.mark.parametrize("kind", KEYS)
def test_a_record_of_the_old_release_means_the_same(double_store: DynamoStore, kind: str) -> None:
    """Status, attempt, claims, the reboot under way: whatever the old release knew."""
    record = _load(double_store, kind, _put(double_store, kind, ITEMS[kind]))
    known = {key: value for key, value in ITEMS[kind].items() if key in encode(record) and key != "commands"}
    assert {"status", "version", "revision"} <= known.keys()
    _within(known, encode(record), kind)


@pytest.mark.parametrize("kind", KEYS)
def test_a_record_moves_to_the_new_schema_when_it_is_next_written(double_store: DynamoStore, kind: str) -> None:
    """The old revision is what the write is conditional on, so neither release overwrites the other."""
    record = _load(double_store, kind, _put(double_store, kind, ITEMS[kind]))
    saved = double_store.save_job(record) if kind == "job" else double_store.save_instance(record)
    table = double_store.jobs if kind == "job" else double_store.table
    item = table.get(ITEMS[kind][KEYS[kind][0]])
    assert item is not None
    assert (item["schema"], saved.revision) == (SCHEMA, ITEMS[kind]["revision"] + 1)


@pytest.mark.parametrize("kind", KEYS)
def test_a_record_of_a_newer_schema_is_left_alone(double_store: DynamoStore, kind: str) -> None:
    """A function of the release before refuses it by name, and so cannot write over it."""
    key = _put(double_store, kind, {**ITEMS[kind], "schema": SCHEMA + 1})
    with pytest.raises(ItemUnreadable, match="newer release"):
        _load(double_store, kind, key)
