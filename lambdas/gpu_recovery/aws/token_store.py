"""Tokens in a table: an item for each, found by its id, and a list for each holder.

A token is in both, written in one transaction: a call reads one item, and so does a listing. Nothing is deleted: a
token ends by its date, and what is left of it are some hundred bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import Token, TokenKind, TokenList
from gpu_recovery.aws.dynamodb import Put, Table
from gpu_recovery.aws.instance_store import instance_in
from gpu_recovery.aws.item_codec import decode, encode, item_of, reading
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.ports.errors import StaleRecord


class _DynamoTokens:
    """`tokens.TokenStore` on DynamoDB. `word` is what the keys of its items begin with.

    An item names the holder `instance_id` or `user`. The item of a user's token has a role besides.
    """

    def __init__(self, items: Table, kind: TokenKind, word: str) -> None:
        self.items, self.kind, self._word = items, kind, word

    def load_token(self, token_id: str) -> Token | None:
        """Return the token with this id; None if there is none. Raises ItemUnreadable."""
        item = self.items.get(self.key_of(token_id))
        return None if item is None else self.token_of(token_id, item)

    def token_of(self, token_id: str, item: Mapping[str, Any]) -> Token:
        """Return the token that an item holds. Raises ItemUnreadable."""
        is_user = self.kind is TokenKind.USER
        with reading(f"token {token_id}", item, self.kind.holder_field, *(("role",) if is_user else ())):
            role = Role(item["role"]) if is_user else None
            named = {**item, "kind": self.kind, "holder": item[self.kind.holder_field], "role": role}
            found: Token = decode(Token, named)
            return found

    def key_of(self, token_id: str) -> str:
        """Return the key of a token's item."""
        return f"{self._word}#{token_id}"

    def load_tokens(self, holder: str) -> TokenList:
        """Return the tokens of `holder`; an empty list if there are none. Raises ItemUnreadable."""
        item = self.items.get(self._list_key(holder))
        if item is None:
            return TokenList(self.kind, holder)
        with reading(f"the tokens of {holder}", item, self.kind.holder_field):
            tokens = tuple(self.token_of(one["token_id"], one) for one in item.get("tokens", ()))
            return TokenList(self.kind, item[self.kind.holder_field], tokens, int(item.get("revision", 0)))

    def save_token(self, listed: TokenList, changed: Token) -> None:
        """Save a list and the one token in it that is new or changed: both or neither. Raises StaleRecord."""
        saved = {
            self.kind.holder_field: listed.holder,
            "tokens": [self._written(one) for one in listed.tokens],
            "revision": listed.revision + 1,
        }
        # Nothing but a token is written over, and the list's condition is that of both: a token is in one list only.
        anything = f"attribute_not_exists({self.items.key}) OR attribute_exists(digest)"
        puts = (
            self._put(item_of(saved), self._list_key(listed.holder), listed.revision),
            Put(self.item_of_token(changed), anything),
        )
        if not self.items.put_all(puts):
            raise StaleRecord(f"the tokens of {listed.holder} were written since revision {listed.revision}")

    def item_of_token(self, token: Token) -> dict[str, Any]:
        """Return the whole item of a token, with its key."""
        return item_of(self._written(token)) | {self.items.key: self.key_of(token.token_id)}

    def _written(self, token: Token) -> dict[str, Any]:
        """Return what an item and a list hold of a token."""
        fields = encode(token)
        holder, role = fields.pop("holder"), fields.pop("role")
        del fields["kind"]
        of_user = {"role": role} if self.kind is TokenKind.USER else {}
        return {"token_id": fields.pop("token_id"), self.kind.holder_field: holder, **of_user, **fields}

    def _put(self, item: Mapping[str, Any], key: str, read: int) -> Put:
        condition = "revision = :read" if read else f"attribute_not_exists({self.items.key})"
        return Put({**item, self.items.key: key}, condition, {":read": read} if read else {})

    def _list_key(self, holder: str) -> str:
        return f"{self._word}s#{holder}"


class DynamoTokenStore(_DynamoTokens):
    """The tokens of instances, in the table of instances; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, table_name: str) -> None:
        super().__init__(Table(client, table_name, "container_inst_id"), TokenKind.NODE, "token")


class NodeTokensWithInstance:
    """`tokens.TokenLookup` of instances: reads a token together with its instance's record where that is wanted.

    wanted: whether the record of an instance is wanted. seen: receives the record, None if there is none.
    """

    def __init__(
        self, tokens: DynamoTokenStore, wanted: Callable[[str], bool], seen: Callable[[str, Instance | None], object]
    ) -> None:
        self._tokens, self._wanted, self._seen = tokens, wanted, seen
        self._instance_of: dict[str, str] = {}

    def load_token(self, token_id: str) -> Token | None:
        """As the store of tokens."""
        instance_id = self._instance_of.get(token_id)
        if instance_id is None or not self._wanted(instance_id):
            found = self._tokens.load_token(token_id)
        else:
            key = self._tokens.key_of(token_id)
            items = self._tokens.items.get_all([key, instance_id])
            self._seen(instance_id, instance_in(items.get(instance_id)))
            found = self._tokens.token_of(token_id, items[key]) if key in items else None
        if found is not None:
            self._instance_of[token_id] = found.holder
        return found


class DynamoUserTokenStore(_DynamoTokens):
    """The tokens of users, in the table of jobs; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, table_name: str) -> None:
        super().__init__(Table(client, table_name, "job_id_rank"), TokenKind.USER, "user-token")
