"""API tokens of instances and of users: issue, list and revoke them.

A token belongs to one holder: an instance, or a user in one role. The store has only the SHA-256 of a token, so a token
cannot be read from the table. The text of a token does not name its holder. It ends with an issuer tag, so that an
invented token is refused without a read. The token id is not secret: operators
name a token by its id, and logs may contain it. docs/protocol.md describes the tokens of instances.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from gpu_recovery.auth.issuer_tag import TAG_CHARACTERS, add_tag
from gpu_recovery.auth.roles import Role
from gpu_recovery.core.errors import RecoveryError, SpecInvalid
from gpu_recovery.ports.retry import retry_stale

SECRET = rf"(?P<id>[0-9a-z]{{12}})_[A-Za-z0-9_-]{{43}}_[A-Za-z0-9_-]{{{TAG_CHARACTERS}}}"
"""The part of a token after its prefix: the token id, the secret and the issuer tag."""
INSTANCE_ID = re.compile(r"m?i-[0-9a-f]{8,17}")
USER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/+-]{0,126}")
LIFETIME_S, LIFETIME_S_MIN, LIFETIME_S_MAX = 90 * 86_400, 60, 366 * 86_400
"""The lifetime of a token in seconds: the default, the shortest and the longest."""
VALID_TOKENS_MAX = 2
"""How many valid tokens a holder may have: two, so that the next token is in place before the last one ends."""
LISTED_TOKENS_MAX = 10
"""How many tokens the list of a holder keeps: every valid token, and the newest of the others."""
NOTE_MAX = 200
"""Length of a token's note in characters at most."""
TOKEN_SAVE_ATTEMPTS_MAX = 5
"""Tries to save a list of tokens that others write at the same time."""


class TokenKind(Enum):
    """The kind of holder that a token is issued for.

    prefix:       the first characters of a token of this kind.
    holder_field: the name of the holder in requests, in answers and in stored items.
    pattern:      the form of a whole token, with its id as the group `id`.
    key_label:    the label under which the issuer key of this kind is derived.
    """

    NODE = ("grn_", "instance_id", "node token")
    USER = ("gru_", "user", "user token")

    def __init__(self, prefix: str, holder_field: str, key_label: str) -> None:
        self.prefix, self.holder_field, self.key_label = prefix, holder_field, key_label
        self.pattern = re.compile(prefix + SECRET)


class TokensFull(RecoveryError):
    """The holder already has the largest number of valid tokens."""


@dataclass(frozen=True, slots=True)
class Token:
    """The record of a token, without the token itself.

    holder: an instance id or a user name, as `kind` says.
    digest: the SHA-256 of the whole token, in hexadecimal.
    role:   the role of a user's token; None for the token of an instance.
    """

    kind: TokenKind
    token_id: str
    holder: str
    digest: str = field(repr=False)
    issued_at: datetime
    expires_at: datetime
    issued_by: str
    note: str = ""
    revoked_at: datetime | None = None
    role: Role | None = None

    def is_valid(self, now: datetime) -> bool:
        """Return whether the token is valid at `now`: not revoked and not expired."""
        return self.revoked_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class TokenList:
    """The tokens of one holder, the newest last. `revision` counts the writes of the list."""

    kind: TokenKind
    holder: str
    tokens: tuple[Token, ...] = ()
    revision: int = 0


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token and its record. The token is shown once and is not stored."""

    token: str = field(repr=False)
    record: Token


@dataclass(frozen=True, slots=True)
class AskedToken:
    """What a request says about a new token.

    role: the role of a user's token, None for `user`. The token of an instance has none.
    """

    role: Role | None = None
    lifetime: timedelta = timedelta(seconds=LIFETIME_S)
    note: str = ""


class TokenLookup(Protocol):
    """Finds a token by its id."""

    def load_token(self, token_id: str) -> Token | None:
        """Return the token with this id, freshly read; None if there is none."""


class TokenStore(TokenLookup, Protocol):
    """Stores the tokens of one kind."""

    @property
    def kind(self) -> TokenKind:
        """The kind of every token in this store."""

    def load_tokens(self, holder: str) -> TokenList:
        """Return the tokens of `holder`, freshly read; an empty list if there are none."""

    def save_token(self, listed: TokenList, changed: Token) -> None:
        """Save a list and the new or changed token in it: both or neither.

        Raises:
            StaleRecord: the list was written since its revision.
        """


class UserDirectory(Protocol):
    """Names and tokens of the users. A name is known once a token of the user was issued, or changed, by a release that
    has the directory.
    """

    def user_names(self) -> Collection[str]:
        """Return the names of the users that tokens were issued to, in any order."""

    def load_token_lists(self, users: Sequence[str]) -> Mapping[str, TokenList]:
        """Return the tokens of these users, freshly read. Users without tokens are left out."""


def digest_of(token: str) -> str:
    """Return the digest that is stored of `token`."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue(store: TokenStore, key: bytes, holder: str, now: datetime, by: str, asked: AskedToken) -> IssuedToken:
    """Issue a new token. An instance need not be known yet: its agent may start before ECS registers the instance.

    Args:
        key: the issuer key of the store's kind of tokens.
        by: who issues the token.
        asked: role, lifetime and note of the token.

    Raises:
        SpecInvalid: the holder is malformed.
        TokensFull: the holder has `VALID_TOKENS_MAX` valid tokens.
        TooManyConflicts: others wrote the list at every attempt.
    """
    checked_holder(store.kind, holder)
    role = (asked.role or Role.USER) if store.kind is TokenKind.USER else None
    token_id = secrets.token_hex(6)
    token = add_tag(key, f"{store.kind.prefix}{token_id}_{secrets.token_urlsafe(32)}")
    record = Token(store.kind, token_id, holder, digest_of(token), now, now + asked.lifetime, by, asked.note, role=role)

    def add(listed: TokenList) -> tuple[TokenList, Token]:
        valid = [token.token_id for token in listed.tokens if token.is_valid(now)]
        if len(valid) >= VALID_TOKENS_MAX:
            raise TokensFull(f"{holder} has {len(valid)} valid tokens, {' and '.join(valid)}: revoke a token first")
        return replace(listed, tokens=_trimmed((*listed.tokens, record), now)), record

    _change(store, holder, add)
    return IssuedToken(token, record)


def revoke(store: TokenStore, holder: str, token_id: str, now: datetime) -> Token | None:
    """Revoke a token of `holder`. A token that was revoked before stays as it is.

    Returns:
        The revoked token; None if the holder has no token with this id.

    Raises:
        SpecInvalid: the holder is malformed.
        TooManyConflicts: others wrote the list at every attempt.
    """
    checked_holder(store.kind, holder)

    def with_revoked(listed: TokenList) -> tuple[TokenList, Token] | None:
        listed_token = next((token for token in listed.tokens if token.token_id == token_id), None)
        if listed_token is None or listed_token.revoked_at is not None:
            return None
        revoked = replace(listed_token, revoked_at=now)
        return replace(
            listed, tokens=tuple(revoked if token is listed_token else token for token in listed.tokens)
        ), revoked

    changed = _change(store, holder, with_revoked)
    return next((token for token in changed.tokens if token.token_id == token_id), None)


def checked_holder(kind: TokenKind, holder: str) -> str:
    """Return `holder` if a token of this kind can be issued for it.

    Raises:
        SpecInvalid: no instance has such an id, or no user such a name.
    """
    if kind is TokenKind.NODE and not INSTANCE_ID.fullmatch(holder):
        raise SpecInvalid("instance_id", "must be the id of an instance, such as i-0123456789abcdef0")
    if kind is TokenKind.USER and not USER_NAME.fullmatch(holder):
        raise SpecInvalid(
            "user", "must be letters, digits and _ . @ / + -, at most 127, beginning with one of the first"
        )
    return holder


def _change(store: TokenStore, holder: str, change: Callable[[TokenList], tuple[TokenList, Token] | None]) -> TokenList:
    """Save what `change` makes of the list, computed again after each conflicting write; return the resulting list.

    `change` returns the changed list and the changed token, or None to leave the list as it is.
    """

    def attempt() -> TokenList:
        listed = store.load_tokens(holder)
        result = change(listed)
        if result is None:
            return listed
        store.save_token(*result)
        return result[0]

    return retry_stale(
        attempt, TOKEN_SAVE_ATTEMPTS_MAX, f"other requests write the tokens of {holder} at the same time"
    )


def _trimmed(tokens: tuple[Token, ...], now: datetime) -> tuple[Token, ...]:
    """Drop the oldest tokens that are not valid, down to `LISTED_TOKENS_MAX` tokens."""
    invalid = [token for token in tokens if not token.is_valid(now)]
    dropped = {token.token_id for token in invalid[: max(0, len(tokens) - LISTED_TOKENS_MAX)]}
    return tuple(token for token in tokens if token.token_id not in dropped)
