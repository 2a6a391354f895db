"""For whom a call speaks: an instance, or a user. What was read of tokens is kept for a while, refusals too.

In front of this door stands everybody. So what cannot be a token is refused unread, an id is looked up once a minute
however often it is tried, and only so many ids that nobody has may be looked up in a minute.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from re import Pattern
from typing import Generic, Protocol, TypeVar

from gpu_recovery.auth.tokens import TOKEN, KeptToken, NodeToken, digest_of
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.ports.errors import TooManyReports

KEPT = timedelta(seconds=60)
"""How long what was read of a token is believed: so long may a revoked one live on."""
KEPT_MAX = 20_000
UNKNOWN_MAX = 60
"""Ids that nobody has, looked up within `KEPT`: beyond them the next must wait, and nobody is refused for good."""


class TokenMissing(RecoveryError):
    """No token."""


class TokenInvalid(RecoveryError):
    """A token that is unknown, expired or revoked, or none at all."""


Found_co = TypeVar("Found_co", covariant=True)


class FindsTokens(Protocol[Found_co]):
    """What a door needs of a store of tokens."""

    def load_token(self, token_id: str) -> Found_co | None:
        """The token of this id, freshly read."""


class Entrance(Generic[KeptToken]):
    """Lives as long as its function; `clock` gives the time by which tokens expire and what was read grows old.

    form: how a token is spelt, with its id as the group `id`.
    """

    def __init__(
        self, store: FindsTokens[KeptToken], clock: Callable[[], datetime], form: Pattern[str] = TOKEN
    ) -> None:
        self._store, self._clock, self._form = store, clock, form
        self._read: dict[str, tuple[datetime, KeptToken | None]] = {}
        self._unknown: deque[datetime] = deque()
        self.reads = 0
        """How often the store was read."""

    def opened_by(self, token: str) -> KeptToken:
        """What is kept of this token. Raises TokenMissing, TokenInvalid and TooManyReports."""
        if not token:
            raise TokenMissing("a token is needed")
        spelt = self._form.fullmatch(token)
        if spelt is None:
            raise TokenInvalid("this is no token")
        now = self._clock()
        kept = self._token(spelt["id"], now)
        if kept is None or not hmac.compare_digest(kept.digest, digest_of(token)) or not kept.lives(now):
            raise TokenInvalid(f"the token {spelt['id']} is unknown, expired or revoked")
        return kept

    def _token(self, token_id: str, now: datetime) -> KeptToken | None:
        found = self._read.get(token_id)
        if found is not None and now - found[0] < KEPT:
            return found[1]
        while self._unknown and now - self._unknown[0] >= KEPT:
            self._unknown.popleft()
        was_valid = found is not None and found[1] is not None
        if len(self._unknown) >= UNKNOWN_MAX and not was_valid:
            raise TooManyReports(int(KEPT.total_seconds()))
        self.reads += 1
        token = self._store.load_token(token_id)
        if token is None:
            self._unknown.append(now)
        self._read.pop(token_id, None)
        if len(self._read) >= KEPT_MAX:
            del self._read[next(iter(self._read))]
        self._read[token_id] = (now, token)
        return token


class Door(Entrance[NodeToken]):
    """The entrance of nodes: a token speaks for the instance that it was issued for."""
