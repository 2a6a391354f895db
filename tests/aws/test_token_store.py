"""The tokens of nodes in the table of instances."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.auth.tokens import NodeToken, TokenList
from gpu_recovery.aws.dynamodb import plain, typed
from gpu_recovery.aws.item_codec import SCHEMA, ItemUnreadable
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.ports.errors import StaleRecord

from tests.aws.records import NOW, A, B, instance, later

FIRST = NodeToken("0123456789ab", A, "ab" * 32, NOW, NOW + timedelta(days=90), "an operator", "rack 7")
SECOND = replace(FIRST, token_id="cdef01234567", digest="cd" * 32, note="")


@pytest.fixture
def tokens(moto_store: DynamoStore) -> DynamoTokenStore:
    """A store of tokens beside the store of everything else, on one table."""
    return DynamoTokenStore(moto_store.machines.client, moto_store.machines.name)


def raw(tokens: DynamoTokenStore, key: str) -> dict[str, Any]:
    """The item as it lies in the table."""
    found = tokens.items.get(key)
    assert found is not None
    return found


def test_a_token_is_found_by_its_id_and_by_its_instance(tokens: DynamoTokenStore) -> None:
    """Each by one read, and as it was kept."""
    tokens.save_token(TokenList(A, (FIRST,)), FIRST)
    assert tokens.load_token(FIRST.token_id) == FIRST
    assert tokens.load_tokens(A) == TokenList(A, (FIRST,), revision=1)


def test_what_is_not_there_is_nothing(tokens: DynamoTokenStore) -> None:
    """An unknown id is no error: it comes from strangers."""
    assert tokens.load_token("0123456789ab") is None
    assert tokens.load_tokens(A) == TokenList(A)


def test_a_change_is_in_both_places(tokens: DynamoTokenStore) -> None:
    """A revoked token opens nothing and is listed as revoked."""
    tokens.save_token(TokenList(A, (FIRST,)), FIRST)
    dead = replace(FIRST, revoked_at=later(5))
    tokens.save_token(TokenList(A, (dead,), 1), dead)
    assert tokens.load_token(FIRST.token_id) == dead
    assert tokens.load_tokens(A) == TokenList(A, (dead,), 2)


@pytest.mark.parametrize("revision", [0, 1, 3])
def test_a_list_that_others_wrote_is_not_written_over(tokens: DynamoTokenStore, revision: int) -> None:
    """Neither the list nor the token: both or none."""
    tokens.save_token(TokenList(A, (FIRST,)), FIRST)
    tokens.save_token(TokenList(A, (FIRST,), 1), FIRST)
    with pytest.raises(StaleRecord, match=A):
        tokens.save_token(TokenList(A, (FIRST, SECOND), revision), SECOND)
    assert tokens.load_token(SECOND.token_id) is None
    assert tokens.load_tokens(A).tokens == (FIRST,)


def test_nothing_but_a_token_is_written_over(tokens: DynamoTokenStore) -> None:
    """A key that holds something else is left alone."""
    tokens.items.put({"container_inst_id": f"token#{FIRST.token_id}", "x": 1}, "attribute_not_exists(x)")
    with pytest.raises(StaleRecord):
        tokens.save_token(TokenList(A, (FIRST,)), FIRST)
    assert raw(tokens, f"token#{FIRST.token_id}") == {"container_inst_id": f"token#{FIRST.token_id}", "x": 1}


def test_tokens_are_in_no_index(tokens: DynamoTokenStore, moto_store: DynamoStore) -> None:
    """Neither the scheduler nor the reconciler meets them."""
    moto_store.save_instance(instance(B))
    tokens.save_token(TokenList(A, (FIRST,)), FIRST)
    for key in (f"token#{FIRST.token_id}", f"tokens#{A}"):
        assert not {"status", "shard", "due_at"} & set(raw(tokens, key))
        assert moto_store.load_instance(key) is None
    assert [one.instance_id for one in moto_store.instances_in(list(InstanceStatus))] == [B]
    assert list(moto_store.due_instances(later(10**6))) == []


@pytest.mark.parametrize("key", [f"token#{FIRST.token_id}", f"tokens#{A}"])
@pytest.mark.parametrize("spoilt", [{"schema": SCHEMA + 1}, {"instance_id": None}, {"expires_at": "soon", "tokens": 7}])
def test_an_item_that_cannot_be_read_opens_nothing(tokens: DynamoTokenStore, key: str, spoilt: dict[str, Any]) -> None:
    """It is an error that names the token or the instance, never a token without an end."""
    tokens.save_token(TokenList(A, (FIRST,)), FIRST)
    left = {name: value for name, value in (raw(tokens, key) | spoilt).items() if value is not None}
    tokens.items.client.put_item(TableName=tokens.items.name, Item=typed(left))
    with pytest.raises(ItemUnreadable, match=FIRST.token_id if key.startswith("token#") else A):
        tokens.load_token(FIRST.token_id) if key.startswith("token#") else tokens.load_tokens(A)


def test_numbers_and_times_are_kept_as_everywhere(tokens: DynamoTokenStore) -> None:
    """Times as ISO-8601 in UTC, and the schema that everything is written in."""
    tokens.save_token(TokenList(A, (FIRST,)), FIRST)
    key = {"container_inst_id": f"token#{FIRST.token_id}"}
    item = tokens.items.client.get_item(TableName=tokens.items.name, Key=typed(key))["Item"]
    assert item["schema"] == {"N": str(SCHEMA)}
    assert plain(item)["issued_at"] == "2026-11-21T09:00:00.000000Z"
