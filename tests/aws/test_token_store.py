"""The tokens of instances in the table of instances, and those of users in the table of jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import Token, TokenKind, TokenList
from gpu_recovery.aws.dynamodb import plain, typed
from gpu_recovery.aws.item_codec import SCHEMA, ItemUnreadable
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.aws.token_store import DynamoTokenStore, DynamoUserTokenStore
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.ports.errors import StaleRecord

from tests.aws.records import NOW, A, B, instance, later

NODE = TokenKind.NODE
FIRST = Token(NODE, "0123456789ab", A, "ab" * 32, NOW, NOW + timedelta(days=90), "an operator", "rack 7")
SECOND = replace(FIRST, token_id="cdef01234567", digest="cd" * 32, note="")


@pytest.fixture
def tokens(double_store: DynamoStore) -> DynamoTokenStore:
    """A store of tokens beside the store of everything else, on one table."""
    return DynamoTokenStore(double_store.table.client, double_store.table.name)


def raw(tokens: DynamoTokenStore, key: str) -> dict[str, Any]:
    """The item as it lies in the table."""
    found = tokens.items.get(key)
    assert found is not None
    return found


def test_a_token_is_found_by_its_id_and_by_its_instance(tokens: DynamoTokenStore) -> None:
    """Each by one read, and as it was kept."""
    tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    assert tokens.load_token(FIRST.token_id) == FIRST
    assert tokens.load_tokens(A) == TokenList(NODE, A, (FIRST,), revision=1)


def test_what_is_not_there_is_nothing(tokens: DynamoTokenStore) -> None:
    """An unknown id is no error: it comes from strangers."""
    assert tokens.load_token("0123456789ab") is None
    assert tokens.load_tokens(A) == TokenList(NODE, A)


def test_a_change_is_in_both_places(tokens: DynamoTokenStore) -> None:
    """A revoked token opens nothing and is listed as revoked."""
    tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    dead = replace(FIRST, revoked_at=later(5))
    tokens.save_token(TokenList(NODE, A, (dead,), 1), dead)
    assert tokens.load_token(FIRST.token_id) == dead
    assert tokens.load_tokens(A) == TokenList(NODE, A, (dead,), 2)


@pytest.mark.parametrize("revision", [0, 1, 3])
def test_a_list_that_others_wrote_is_not_written_over(tokens: DynamoTokenStore, revision: int) -> None:
    """Neither the list nor the token: both or none."""
    tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    tokens.save_token(TokenList(NODE, A, (FIRST,), 1), FIRST)
    with pytest.raises(StaleRecord, match=A):
        tokens.save_token(TokenList(NODE, A, (FIRST, SECOND), revision), SECOND)
    assert tokens.load_token(SECOND.token_id) is None
    assert tokens.load_tokens(A).tokens == (FIRST,)


def test_nothing_but_a_token_is_written_over(tokens: DynamoTokenStore) -> None:
    """A key that holds something else is left alone."""
    tokens.items.put({"container_inst_id": f"token#{FIRST.token_id}", "x": 1}, "attribute_not_exists(x)")
    with pytest.raises(StaleRecord):
        tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    assert raw(tokens, f"token#{FIRST.token_id}") == {"container_inst_id": f"token#{FIRST.token_id}", "x": 1}


def test_tokens_are_in_no_index(tokens: DynamoTokenStore, double_store: DynamoStore) -> None:
    """Neither the scheduler nor the reconciler meets them."""
    double_store.save_instance(instance(B))
    tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    for key in (f"token#{FIRST.token_id}", f"tokens#{A}"):
        assert not {"status", "shard", "due_at"} & set(raw(tokens, key))
        assert double_store.load_instance(key) is None
    assert [one.instance_id for one in double_store.instances_in(list(InstanceStatus))] == [B]
    assert list(double_store.due_instances(later(10**6))) == []


@pytest.mark.parametrize("key", [f"token#{FIRST.token_id}", f"tokens#{A}"])
@pytest.mark.parametrize("spoilt", [{"schema": SCHEMA + 1}, {"instance_id": None}, {"expires_at": "soon", "tokens": 7}])
def test_an_item_that_cannot_be_read_opens_nothing(tokens: DynamoTokenStore, key: str, spoilt: dict[str, Any]) -> None:
    """It is an error that names the token or the instance, never a token without an end."""
    tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    left = {name: value for name, value in (raw(tokens, key) | spoilt).items() if value is not None}
    tokens.items.client.put_item(TableName=tokens.items.name, Item=typed(left))
    with pytest.raises(ItemUnreadable, match=FIRST.token_id if key.startswith("token#") else A):
        tokens.load_token(FIRST.token_id) if key.startswith("token#") else tokens.load_tokens(A)


def test_numbers_and_times_are_kept_as_everywhere(tokens: DynamoTokenStore) -> None:
    """Times as ISO-8601 in UTC, and the schema that everything is written in."""
    tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    key = {"container_inst_id": f"token#{FIRST.token_id}"}
    item = tokens.items.client.get_item(TableName=tokens.items.name, Key=typed(key))["Item"]
    assert item["schema"] == {"N": str(SCHEMA)}
    assert plain(item)["issued_at"] == "2026-11-21T09:00:00.000000Z"


# -- what an item holds ------------------------------------------------------------------------------------------------

OF_ANA = Token(
    TokenKind.USER, "cdef01234567", "ana", "cd" * 32, NOW, later(60), "an operator", "laptop", role=Role.VIEWER
)
STORED = {
    "issued_at": "2026-11-21T09:00:00.000000Z",
    "issued_by": "an operator",
    "revoked_at": None,
}
STORED_NODE = STORED | {
    "token_id": "0123456789ab",
    "instance_id": A,
    "digest": "ab" * 32,
    "expires_at": "2027-02-19T09:00:00.000000Z",
    "note": "rack 7",
}
STORED_USER = STORED | {
    "token_id": "cdef01234567",
    "user": "ana",
    "role": "viewer",
    "digest": "cd" * 32,
    "expires_at": "2026-11-21T09:01:00.000000Z",
    "note": "laptop",
}


@pytest.fixture
def users(double_store: DynamoStore) -> DynamoUserTokenStore:
    """The tokens of users, in the table of jobs."""
    return DynamoUserTokenStore(double_store.jobs.client, double_store.jobs.name)


def test_the_items_of_an_instance_hold_these_attributes(tokens: DynamoTokenStore) -> None:
    """Earlier releases have written them: an attribute with another name would lose every token in the table."""
    tokens.save_token(TokenList(NODE, A, (FIRST,)), FIRST)
    key = f"token#{FIRST.token_id}"
    assert raw(tokens, key) == STORED_NODE | {"schema": SCHEMA, "container_inst_id": key}
    listed = {"instance_id": A, "tokens": [STORED_NODE], "revision": 1}
    assert raw(tokens, f"tokens#{A}") == listed | {"schema": SCHEMA, "container_inst_id": f"tokens#{A}"}


def test_the_items_of_a_user_hold_these_attributes(users: DynamoUserTokenStore) -> None:
    """As those of an instance, with the user and the role."""
    users.save_token(TokenList(TokenKind.USER, "ana", (OF_ANA,)), OF_ANA)
    key = f"user-token#{OF_ANA.token_id}"
    item = users.items.get(key)
    assert item == STORED_USER | {"schema": SCHEMA, "job_id_rank": key}
    listed = {"user": "ana", "tokens": [STORED_USER], "revision": 1}
    assert users.items.get("user-tokens#ana") == listed | {"schema": SCHEMA, "job_id_rank": "user-tokens#ana"}
    assert users.load_token(OF_ANA.token_id) == OF_ANA
    assert users.load_tokens("ana") == TokenList(TokenKind.USER, "ana", (OF_ANA,), 1)


@pytest.mark.parametrize("role", [{}, {"role": None}, {"role": "root"}, {"role": ""}], ids=str)
def test_a_users_token_without_a_role_cannot_be_read(users: DynamoUserTokenStore, role: dict[str, Any]) -> None:
    """It is an error that names the token, never a token in no role or in another."""
    users.save_token(TokenList(TokenKind.USER, "ana", (OF_ANA,)), OF_ANA)
    key = f"user-token#{OF_ANA.token_id}"
    item = users.items.get(key)
    assert item is not None
    left = {name: value for name, value in item.items() if name != "role"} | role
    users.items.client.put_item(TableName=users.items.name, Item=typed(left))
    with pytest.raises(ItemUnreadable, match=OF_ANA.token_id):
        users.load_token(OF_ANA.token_id)
