"""Tokens of nodes and of users: issued for one instance or one user, kept as a hash, listed, revoked.

Whoever reads the table learns no token. A token says nothing of its holder, and its id is no secret: it is what
operators call it, and what may be logged. Those of nodes are described in docs/protocol.md; what a user's adds is in
`user_tokens`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from gpu_recovery.core.errors import RecoveryError, SpecInvalid
from gpu_recovery.ports.retry import retry_stale

NODE = "grn_"
"""What the token of a node begins with."""
SECRET = r"(?P<id>[0-9a-z]{12})_[A-Za-z0-9_-]{43}"
TOKEN = re.compile(NODE + SECRET)
INSTANCE_ID = re.compile(r"m?i-[0-9a-f]{8,17}")
LIFE_S, LIFE_S_MIN, LIFE_S_MAX = 90 * 86_400, 60, 366 * 86_400
LIVE_MAX = 2
"""Two, so that the next is in place before the last ends; more would only be forgotten ones."""
LISTED_MAX = 10
"""What a holder's list remembers: those that live, and the latest that do not."""
NOTE_MAX = 200
SAVES_MAX = 5


class TokensFull(RecoveryError):
    """The holder has as many tokens as it may have at a time."""


class Token:
    """What every kind of token has. `digest` is the SHA-256 of the whole of it, in hexadecimal."""

    __slots__ = ()
    token_id: str
    digest: str
    expires_at: datetime
    revoked_at: datetime | None

    def lives(self, now: datetime) -> bool:
        """Whether it opens anything: neither revoked nor expired. Only the time decides, not whether it is kept."""
        return self.revoked_at is None and now < self.expires_at


KeptToken = TypeVar("KeptToken", bound=Token)


class Listing(Generic[KeptToken]):
    """The tokens of one holder, the newest last; `revision` counts its writes."""

    __slots__ = ()
    tokens: tuple[KeptToken, ...]
    revision: int

    @property
    def holder(self) -> str:
        """Whom they speak for."""
        raise AttributeError("a listing names its holder")


@dataclass(frozen=True, slots=True)
class NodeToken(Token):
    """What is kept of a token. `digest` is the SHA-256 of the whole of it, in hexadecimal."""

    token_id: str
    instance_id: str
    digest: str = field(repr=False)
    issued_at: datetime
    expires_at: datetime
    issued_by: str
    note: str = ""
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TokenList(Listing[NodeToken]):
    """The tokens of one instance, the newest last."""

    instance_id: str
    tokens: tuple[NodeToken, ...] = ()
    revision: int = 0

    @property
    def holder(self) -> str:
        """The instance."""
        return self.instance_id


@dataclass(frozen=True, slots=True)
class Issued(Generic[KeptToken]):
    """A new token: the only time that it is seen."""

    token: str = field(repr=False)
    kept: KeptToken


KeptList = TypeVar("KeptList", bound=Listing[Any])


class KeepsTokens(Protocol[KeptList, KeptToken]):
    """Where one kind of token is kept."""

    def load_token(self, token_id: str) -> KeptToken | None:
        """The token of this id, freshly read."""

    def load_tokens(self, holder: str) -> KeptList:
        """The tokens of a holder, freshly read; an empty list where there are none."""

    def save_token(self, listed: KeptList, changed: KeptToken) -> None:
        """Keep a list, and the one token in it that is new or changed. Both or neither; StaleRecord if somebody wrote
        the list since its revision."""


TokenStore = KeepsTokens[TokenList, NodeToken]


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue(store: TokenStore, instance_id: str, now: datetime, by: str, asked: Mapping[str, Any]) -> Issued[NodeToken]:
    """A new token for an instance, which need not be known yet: its agent may be there before ECS is.

    asked: `{"expires_in_s": seconds, "note": text}`, both optional. Raises SpecInvalid and TokensFull.
    """
    checked(instance_id)
    life, note = wish(asked)

    def made(token_id: str, digest: str) -> NodeToken:
        return NodeToken(token_id, instance_id, digest, now, now + life, by, note)

    return issue_to(store, instance_id, NODE, now, made)


def revoke(store: TokenStore, instance_id: str, token_id: str, now: datetime) -> NodeToken | None:
    """The instance's token, revoked; as it is, if it was revoked before; None if the instance has none of this id."""
    return strike(store, checked(instance_id), token_id, now)


def issue_to(
    store: KeepsTokens[KeptList, KeptToken],
    holder: str,
    prefix: str,
    now: datetime,
    made: Callable[[str, str], KeptToken],
) -> Issued[KeptToken]:
    """A new token for `holder`, kept as `made` of its id and digest. Raises TokensFull."""
    token_id = secrets.token_hex(6)
    token = f"{prefix}{token_id}_{secrets.token_urlsafe(32)}"
    kept = made(token_id, digest_of(token))

    def add(listed: KeptList) -> tuple[KeptList, KeptToken]:
        living = [one.token_id for one in listed.tokens if one.lives(now)]
        if len(living) >= LIVE_MAX:
            raise TokensFull(f"{holder} has {len(living)} tokens that live, {' and '.join(living)}: revoke one")
        return _with(listed, _shortened((*listed.tokens, kept), now)), kept

    _change(store, holder, add)
    return Issued(token, kept)


def strike(store: KeepsTokens[KeptList, KeptToken], holder: str, token_id: str, now: datetime) -> KeptToken | None:
    """The holder's token, revoked; as it is, if it was revoked before; None if the holder has none of this id."""

    def struck(listed: KeptList) -> tuple[KeptList, KeptToken] | None:
        found = next((one for one in listed.tokens if one.token_id == token_id), None)
        if found is None or found.revoked_at is not None:
            return None
        dead: KeptToken = replace(found, revoked_at=now)
        return _with(listed, tuple(dead if one is found else one for one in listed.tokens)), dead

    changed = _change(store, holder, struck)
    return next((one for one in changed.tokens if one.token_id == token_id), None)


def checked(instance_id: str) -> str:
    """The id, if an instance can have it; else SpecInvalid."""
    if not INSTANCE_ID.fullmatch(instance_id):
        raise SpecInvalid("instance_id", "must be the id of an instance, such as i-0123456789abcdef0")
    return instance_id


def _change(
    store: KeepsTokens[KeptList, KeptToken],
    holder: str,
    change: Callable[[KeptList], tuple[KeptList, KeptToken] | None],
) -> KeptList:
    """The list after `change`, which is decided anew as long as others write it; None changes nothing."""

    def attempt() -> KeptList:
        listed = store.load_tokens(holder)
        made = change(listed)
        if made is None:
            return listed
        store.save_token(*made)
        return made[0]

    return retry_stale(attempt, SAVES_MAX, f"others write the tokens of {holder} all the time")


def _with(listed: KeptList, tokens: tuple[Any, ...]) -> KeptList:
    record: Any = listed
    changed: KeptList = replace(record, tokens=tokens)
    return changed


def _shortened(tokens: tuple[Any, ...], now: datetime) -> tuple[Any, ...]:
    dead = [one for one in tokens if not one.lives(now)]
    forgotten = {one.token_id for one in dead[: max(0, len(tokens) - LISTED_MAX)]}
    return tuple(one for one in tokens if one.token_id not in forgotten)


def wish(asked: Mapping[str, Any]) -> tuple[timedelta, str]:
    """(life, note) as asked for: `{"expires_in_s": seconds, "note": text}`, both optional. Raises SpecInvalid."""
    if set(asked) - {"expires_in_s", "note"}:
        raise SpecInvalid("body", "must have no fields but expires_in_s and note")
    life, note = asked.get("expires_in_s", LIFE_S), asked.get("note", "")
    if type(life) is not int or not LIFE_S_MIN <= life <= LIFE_S_MAX:
        raise SpecInvalid("expires_in_s", f"must be a whole number of seconds from {LIFE_S_MIN} to {LIFE_S_MAX}")
    if not isinstance(note, str) or len(note) > NOTE_MAX or not note.isprintable():
        raise SpecInvalid("note", f"must be a line of at most {NOTE_MAX} characters")
    return timedelta(seconds=life), note
