"""Tokens in a table: an item for each, found by its id, and a list for each holder.

A token is in both, written in one transaction: a call reads one item, and so does a listing. Nothing is deleted: a
token ends by its date, and what is left of it are some hundred bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic

from gpu_recovery.auth.tokens import KeptList, KeptToken, NodeToken, TokenList
from gpu_recovery.auth.user_tokens import UserToken, UserTokenList
from gpu_recovery.aws.dynamodb import Put, Table
from gpu_recovery.aws.instance_store import instance_in
from gpu_recovery.aws.item_codec import decode, item_of, reading
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.ports.errors import StaleRecord


class _DynamoTokens(Generic[KeptList, KeptToken]):
    """`tokens.KeepsTokens` for one kind of token; `word` is what the keys of its items begin with."""

    def __init__(self, items: Table, word: str, kept: type[KeptToken], listing: type[KeptList]) -> None:
        self.items, self._word, self._kept, self._listing = items, word, kept, listing

    def load_token(self, token_id: str) -> KeptToken | None:
        item = self.items.get(self.key_of(token_id))
        return None if item is None else self.token_of(token_id, item)

    def token_of(self, token_id: str, item: Mapping[str, Any]) -> KeptToken:
        """The token that an item holds. Raises ItemUnreadable."""
        with reading(f"token {token_id}", item):
            found: KeptToken = decode(self._kept, item)
            return found

    def key_of(self, token_id: str) -> str:
        """Under which key a token is kept."""
        return f"{self._word}#{token_id}"

    def load_tokens(self, holder: str) -> KeptList:
        item = self.items.get(self._list_key(holder))
        if item is None:
            make: Any = self._listing
            empty: KeptList = make(holder)
            return empty
        with reading(f"the tokens of {holder}", item):
            found: KeptList = decode(self._listing, item)
            return found

    def save_token(self, listed: KeptList, changed: KeptToken) -> None:
        record: Any = listed
        saved = replace(record, revision=listed.revision + 1)
        # Nothing but a token is written over, and the list's condition is that of both: a token is in one list only.
        anything = f"attribute_not_exists({self.items.key}) OR attribute_exists(digest)"
        puts = (
            self._put(item_of(saved), self._list_key(listed.holder), listed.revision),
            Put(item_of(changed) | {self.items.key: self.key_of(changed.token_id)}, anything),
        )
        if not self.items.put_all(puts):
            raise StaleRecord(f"the tokens of {listed.holder} were written since revision {listed.revision}")

    def _put(self, item: Mapping[str, Any], key: str, read: int) -> Put:
        condition = "revision = :read" if read else f"attribute_not_exists({self.items.key})"
        return Put({**item, self.items.key: key}, condition, {":read": read} if read else {})

    def _list_key(self, holder: str) -> str:
        return f"{self._word}s#{holder}"


class DynamoTokenStore(_DynamoTokens[TokenList, NodeToken]):
    """`tokens.TokenStore` in the table of instances; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, table_name: str) -> None:
        super().__init__(Table(client, table_name, "container_inst_id"), "token", NodeToken, TokenList)


class TokensWithInstances:
    """`door.FindsTokens` of nodes: where the record of its instance is wanted, a token is read together with it.

    wanted: whether the record of an instance is. seen: gets it, None where there is none.
    """

    def __init__(
        self, tokens: DynamoTokenStore, wanted: Callable[[str], bool], seen: Callable[[str, Instance | None], object]
    ) -> None:
        self._tokens, self._wanted, self._seen = tokens, wanted, seen
        self._whose: dict[str, str] = {}

    def load_token(self, token_id: str) -> NodeToken | None:
        """As the store of tokens."""
        instance_id = self._whose.get(token_id)
        if instance_id is None or not self._wanted(instance_id):
            found = self._tokens.load_token(token_id)
        else:
            key = self._tokens.key_of(token_id)
            items = self._tokens.items.get_all([key, instance_id])
            self._seen(instance_id, instance_in(items.get(instance_id)))
            found = self._tokens.token_of(token_id, items[key]) if key in items else None
        if found is not None:
            self._whose[token_id] = found.instance_id
        return found


class DynamoUserTokenStore(_DynamoTokens[UserTokenList, UserToken]):
    """`user_tokens.UserTokenStore` in the table of jobs."""

    def __init__(self, client: Any, table_name: str) -> None:
        super().__init__(Table(client, table_name, "job_id_rank"), "user-token", UserToken, UserTokenList)
