"""The tokens of nodes in the table of instances: an item for each, found by its id, and a list for each instance.

A token is in both, written in one transaction: a call reads one item, and so does a listing. Nothing is deleted: a
token ends by its date, and what is left of it are some hundred bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..ports import StaleRecord
from ..tokens import NodeToken, TokenList
from .items import decode, item_of, reading
from .tables import Put, Table

ANY = "attribute_not_exists(container_inst_id) OR attribute_exists(digest)"
"""Nothing but a token is written over."""


class DynamoTokenStore:
    """`tokens.TokenStore` on DynamoDB; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, table_name: str) -> None:
        self.items = Table(client, table_name, "container_inst_id")

    def load_token(self, token_id: str) -> NodeToken | None:
        item = self.items.get(_key(token_id))
        if item is None:
            return None
        with reading(f"token {token_id}", item):
            found: NodeToken = decode(NodeToken, item)
            return found

    def load_tokens(self, instance_id: str) -> TokenList:
        item = self.items.get(_list_key(instance_id))
        if item is None:
            return TokenList(instance_id)
        with reading(f"the tokens of {instance_id}", item):
            found: TokenList = decode(TokenList, item)
            return found

    def save_token(self, listed: TokenList, changed: NodeToken) -> None:
        saved = replace(listed, revision=listed.revision + 1)
        puts = (
            _put(item_of(saved), _list_key(listed.instance_id), listed.revision),
            # The list's condition is that of both: a token is in one list only.
            Put(item_of(changed) | {"container_inst_id": _key(changed.token_id)}, ANY),
        )
        if not self.items.put_all(puts):
            raise StaleRecord(f"the tokens of {listed.instance_id} were written since revision {listed.revision}")


def _put(item: Mapping[str, Any], key: str, read: int) -> Put:
    condition = "revision = :read" if read else "attribute_not_exists(container_inst_id)"
    return Put({**item, "container_inst_id": key}, condition, {":read": read} if read else {})


def _key(token_id: str) -> str:
    return f"token#{token_id}"


def _list_key(instance_id: str) -> str:
    return f"tokens#{instance_id}"
