"""The tokens of nodes: issued for one instance, kept as a hash, listed, revoked (docs/protocol.md).

Whoever reads the table learns no token. A token says nothing of its instance, and its id is no secret: it is what
operators call it, and what may be logged.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from .core.errors import RecoveryError, SpecInvalid
from .ports import StaleRecord
from .recovery import TooContended

TOKEN = re.compile(r"grn_(?P<id>[0-9a-z]{12})_[A-Za-z0-9_-]{43}")
INSTANCE_ID = re.compile(r"m?i-[0-9a-f]{8,17}")
LIFE_S, LIFE_S_MIN, LIFE_S_MAX = 90 * 86_400, 60, 366 * 86_400
LIVE_MAX = 2
"""Two, so that the next is in place before the last ends; more would only be forgotten ones."""
LISTED_MAX = 10
"""What an instance's list remembers: those that live, and the latest that do not."""
NOTE_MAX = 200
SAVES_MAX = 5


class TokensFull(RecoveryError):
    """The instance has as many tokens as it may have at a time."""


@dataclass(frozen=True, slots=True)
class NodeToken:
    """What is kept of a token. `digest` is the SHA-256 of the whole of it, in hexadecimal."""

    token_id: str
    instance_id: str
    digest: str = field(repr=False)
    issued_at: datetime
    expires_at: datetime
    issued_by: str
    note: str = ""
    revoked_at: datetime | None = None

    def lives(self, now: datetime) -> bool:
        """Whether it opens anything: neither revoked nor expired. Only the time decides, not whether it is kept."""
        return self.revoked_at is None and now < self.expires_at


@dataclass(frozen=True, slots=True)
class TokenList:
    """The tokens of one instance, the newest last."""

    instance_id: str
    tokens: tuple[NodeToken, ...] = ()
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token: the only time that it is seen."""

    token: str = field(repr=False)
    kept: NodeToken


class TokenStore(Protocol):
    """Where tokens are kept."""

    def load_token(self, token_id: str) -> NodeToken | None:
        """The token of this id, freshly read."""

    def load_tokens(self, instance_id: str) -> TokenList:
        """The tokens of an instance, freshly read; an empty list where there are none."""

    def save_token(self, listed: TokenList, changed: NodeToken) -> None:
        """Keep a list, and the one token in it that is new or changed. Both or neither; StaleRecord if somebody wrote
        the list since its revision."""


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def issue(store: TokenStore, instance_id: str, now: datetime, by: str, asked: Mapping[str, Any]) -> Issued:
    """A new token for an instance, which need not be known yet: its agent may be there before ECS is.

    asked: `{"expires_in_s": seconds, "note": text}`, both optional. Raises SpecInvalid and TokensFull.
    """
    checked(instance_id)
    life, note = _asked(asked)
    token_id = secrets.token_hex(6)
    token = f"grn_{token_id}_{secrets.token_urlsafe(32)}"
    kept = NodeToken(token_id, instance_id, digest_of(token), now, now + timedelta(seconds=life), by, note)

    def add(listed: TokenList) -> tuple[TokenList, NodeToken]:
        living = [one.token_id for one in listed.tokens if one.lives(now)]
        if len(living) >= LIVE_MAX:
            raise TokensFull(f"{instance_id} has {len(living)} tokens that live, {' and '.join(living)}: revoke one")
        return _shortened(replace(listed, tokens=(*listed.tokens, kept)), now), kept

    _change(store, instance_id, add)
    return Issued(token, kept)


def revoke(store: TokenStore, instance_id: str, token_id: str, now: datetime) -> NodeToken | None:
    """The instance's token, revoked; as it is, if it was revoked before; None if the instance has none of this id."""

    def strike(listed: TokenList) -> tuple[TokenList, NodeToken] | None:
        found = next((one for one in listed.tokens if one.token_id == token_id), None)
        if found is None or found.revoked_at is not None:
            return None
        dead = replace(found, revoked_at=now)
        return replace(listed, tokens=tuple(dead if one is found else one for one in listed.tokens)), dead

    changed = _change(store, checked(instance_id), strike)
    return next((one for one in changed.tokens if one.token_id == token_id), None)


def checked(instance_id: str) -> str:
    """The id, if an instance can have it; else SpecInvalid."""
    if not INSTANCE_ID.fullmatch(instance_id):
        raise SpecInvalid("instance_id", "must be the id of an instance, such as i-0123456789abcdef0")
    return instance_id


def _change(
    store: TokenStore, instance_id: str, change: Callable[[TokenList], tuple[TokenList, NodeToken] | None]
) -> TokenList:
    """The list after `change`, which is decided anew as long as others write it; None changes nothing."""
    for _ in range(SAVES_MAX):
        listed = store.load_tokens(instance_id)
        made = change(listed)
        if made is None:
            return listed
        try:
            store.save_token(*made)
        except StaleRecord:
            continue
        return made[0]
    raise TooContended(f"others write the tokens of {instance_id} all the time")


def _shortened(listed: TokenList, now: datetime) -> TokenList:
    dead = [one for one in listed.tokens if not one.lives(now)]
    forgotten = {one.token_id for one in dead[: max(0, len(listed.tokens) - LISTED_MAX)]}
    return replace(listed, tokens=tuple(one for one in listed.tokens if one.token_id not in forgotten))


def _asked(asked: Mapping[str, Any]) -> tuple[int, str]:
    """(life in seconds, note) as asked for."""
    if set(asked) - {"expires_in_s", "note"}:
        raise SpecInvalid("body", "must have no fields but expires_in_s and note")
    life, note = asked.get("expires_in_s", LIFE_S), asked.get("note", "")
    if type(life) is not int or not LIFE_S_MIN <= life <= LIFE_S_MAX:
        raise SpecInvalid("expires_in_s", f"must be a whole number of seconds from {LIFE_S_MIN} to {LIFE_S_MAX}")
    if not isinstance(note, str) or len(note) > NOTE_MAX or not note.isprintable():
        raise SpecInvalid("note", f"must be a line of at most {NOTE_MAX} characters")
    return life, note
