"""Tokens of nodes and users in DynamoDB: an item for each token, and a list for each holder.

One transaction writes a token to its item and to the list of its holder. So a token check reads one item, and a listing
reads one item. Tokens are never deleted: a token expires by its date, and an expired token takes some hundred bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import Token, TokenKind, TokenList
from gpu_recovery.aws.dynamodb import Put, Table, is_item_full
from gpu_recovery.aws.instance_store import instance_in
from gpu_recovery.aws.item_codec import SCHEMA, decode, encode, item_of, reading
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.ports.errors import StaleRecord

USER_NAMES, NAMES = "#user-names", "names"
"""Key of the item with the names of the users, and its attribute, a set of texts."""


class _DynamoTokens:
    """`auth.tokens.TokenStore` on DynamoDB.

    An item holds the holder under the name `instance_id` or `user`. The item of a user's token also holds a role.

    items:  the table.
    kind:   the kind of the tokens.
    prefix: the beginning of the keys of the items.
    """

    def __init__(self, items: Table, kind: TokenKind, prefix: str) -> None:
        self.items, self.kind, self._prefix = items, kind, prefix

    def load_token(self, token_id: str) -> Token | None:
        """Return the token with this id; None if there is none. Raises ItemUnreadable."""
        item = self.items.get(self.key_of(token_id))
        return None if item is None else self.token_of(token_id, item)

    def token_of(self, token_id: str, item: Mapping[str, Any]) -> Token:
        """Return the token that an item holds. Raises ItemUnreadable."""
        is_user = self.kind is TokenKind.USER
        with reading(f"token {token_id}", item, self.kind.holder_field, *(("role",) if is_user else ())):
            role = Role(item["role"]) if is_user else None
            values = {**item, "kind": self.kind, "holder": item[self.kind.holder_field], "role": role}
            token: Token = decode(Token, values)
            return token

    def key_of(self, token_id: str) -> str:
        """Return the key of a token's item."""
        return f"{self._prefix}#{token_id}"

    def load_tokens(self, holder: str) -> TokenList:
        """Return the tokens of `holder`; an empty list if there are none. Raises ItemUnreadable."""
        item = self.items.get(self._list_key(holder))
        return TokenList(self.kind, holder) if item is None else self._list_of(holder, item)

    def _list_of(self, holder: str, item: Mapping[str, Any]) -> TokenList:
        """Return the list of tokens that an item holds. Raises ItemUnreadable."""
        with reading(f"the tokens of {holder}", item, self.kind.holder_field):
            tokens = tuple(self.token_of(entry["token_id"], entry) for entry in item.get("tokens", ()))
            return TokenList(self.kind, item[self.kind.holder_field], tokens, int(item.get("revision", 0)))

    def save_token(self, listed: TokenList, changed: Token) -> None:
        """Save a list of tokens, and the item of its new or changed token: both or neither.

        Args:
            listed: the list, with the changed token in it.
            changed: the new or changed token.

        Raises:
            StaleRecord: another writer saved the list since its revision.
        """
        saved = {
            self.kind.holder_field: listed.holder,
            "tokens": [self._encoded(token) for token in listed.tokens],
            "revision": listed.revision + 1,
        }
        # A token is in a single list, so the revision of the list protects both items. The condition of the token's
        # item only prevents that an item of another kind is overwritten.
        is_token = f"attribute_not_exists({self.items.key}) OR attribute_exists(digest)"
        puts = (
            self._put(item_of(saved), self._list_key(listed.holder), listed.revision),
            Put(self.item_of_token(changed), is_token),
        )
        if not self.items.put_all(puts):
            raise StaleRecord(f"the tokens of {listed.holder} were written since revision {listed.revision}")

    def item_of_token(self, token: Token) -> dict[str, Any]:
        """Return the whole item of a token, with its key."""
        return item_of(self._encoded(token)) | {self.items.key: self.key_of(token.token_id)}

    def _encoded(self, token: Token) -> dict[str, Any]:
        """Return the fields of a token as its item and its list hold them."""
        fields = encode(token)
        holder, role = fields.pop("holder"), fields.pop("role")
        del fields["kind"]
        of_user = {"role": role} if self.kind is TokenKind.USER else {}
        return {"token_id": fields.pop("token_id"), self.kind.holder_field: holder, **of_user, **fields}

    def _put(self, item: Mapping[str, Any], key: str, revision: int) -> Put:
        condition = "revision = :read" if revision else f"attribute_not_exists({self.items.key})"
        return Put({**item, self.items.key: key}, condition, {":read": revision} if revision else {})

    def _list_key(self, holder: str) -> str:
        return f"{self._prefix}s#{holder}"


class DynamoTokenStore(_DynamoTokens):
    """Store of the node tokens, in the instance table; `client` is a low-level boto3 DynamoDB client."""

    def __init__(self, client: Any, table_name: str) -> None:
        super().__init__(Table(client, table_name, "container_inst_id"), TokenKind.NODE, "token")


class NodeTokensWithInstance:
    """`auth.tokens.TokenLookup` of instances: reads a token together with the record of its instance, if wanted.

    tokens: the store of the node tokens.
    wanted: returns whether the record of an instance is wanted.
    seen:   receives the instance id and the record; None if there is no record.
    """

    def __init__(
        self, tokens: DynamoTokenStore, wanted: Callable[[str], bool], seen: Callable[[str, Instance | None], object]
    ) -> None:
        self._tokens, self._wanted, self._seen = tokens, wanted, seen
        self._instance_of: dict[str, str] = {}

    def load_token(self, token_id: str) -> Token | None:
        """Return the token with this id; None if there is none. Raises ItemUnreadable.

        The record of the instance is read in the same call if an earlier call has found the token's instance.
        """
        instance_id = self._instance_of.get(token_id)
        if instance_id is None or not self._wanted(instance_id):
            token = self._tokens.load_token(token_id)
        else:
            key = self._tokens.key_of(token_id)
            items = self._tokens.items.get_all([key, instance_id])
            self._seen(instance_id, instance_in(items.get(instance_id)))
            token = self._tokens.token_of(token_id, items[key]) if key in items else None
        if token is not None:
            self._instance_of[token_id] = token.holder
        return token


class DynamoUserTokenStore(_DynamoTokens):
    """Store of the user tokens, in the job table; `client` is a low-level boto3 DynamoDB client.

    It is also the `auth.tokens.UserDirectory`: one item holds the names of the users. With names of ten characters, an
    item of 400 KB holds 30,000.
    """

    def __init__(self, client: Any, table_name: str) -> None:
        super().__init__(Table(client, table_name, "job_id_rank"), TokenKind.USER, "user-token")

    def save_token(self, listed: TokenList, changed: Token) -> None:
        """Save a list of tokens, and the item of its new or changed token. The name of the user is recorded first.

        A name without tokens is not shown, so it does no harm if the second write fails.

        Raises:
            StaleRecord: another writer saved the list since its revision.
        """
        self._add_name(listed.holder)
        super().save_token(listed, changed)

    def _add_name(self, user: str) -> None:
        """Record the name of a user. A name that the item has no room for is left out: the token is what counts."""
        change, names = "SET #v = :v ADD #n :n", {"#n": NAMES, "#v": "schema"}
        try:
            self.items.update(USER_NAMES, change, "NOT contains(#n, :user)", names, _name_values(user))
        except ClientError as error:
            if not is_item_full(error):
                raise

    def user_names(self) -> Collection[str]:
        """Return the names of the users that tokens were issued to."""
        names: Collection[str] = (self.items.get(USER_NAMES) or {}).get(NAMES, frozenset())
        return names

    def load_token_lists(self, users: Sequence[str]) -> Mapping[str, TokenList]:
        """Return the tokens of these users. Users without tokens are left out. Raises ItemUnreadable."""
        keys = {self._list_key(user): user for user in users}
        items = self.items.get_all(list(keys))
        return {keys[key]: self._list_of(keys[key], item) for key, item in items.items()}


def _name_values(user: str) -> dict[str, Any]:
    return {":n": {user}, ":user": user, ":v": SCHEMA}
