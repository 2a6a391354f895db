"""Token check: authenticates the tokens of instances and of users, and caches what it read, refusals included.

Anyone can call this endpoint, so a malformed token is rejected without reading the table. A token id is looked up once
a minute at most. The number of unknown ids that are looked up in a minute is limited as well.
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta

from gpu_recovery.auth.tokens import Token, TokenKind, TokenLookup, digest_of
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.ports.errors import TooManyReports

TOKEN_CACHE_TTL = timedelta(seconds=60)
"""Time for which a cached token is used. A revoked token stays valid for at most this time."""
CACHED_TOKENS_MAX = 20_000
CACHED_UNKNOWN_TOKENS_MAX = 60
"""Largest number of unknown token ids that are looked up within `TOKEN_CACHE_TTL`.

After that, a token id that is not cached is rejected with TooManyReports, and the caller may try again later.
"""


class TokenMissing(RecoveryError):
    """The request carries no token."""


class TokenInvalid(RecoveryError):
    """The token is malformed, unknown, expired or revoked."""


class TokenAuthenticator:
    """Authenticates tokens of one kind. The cache lives as long as the Lambda function's process.

    clock: the time by which tokens expire and the cache grows old.
    """

    def __init__(self, store: TokenLookup, clock: Callable[[], datetime], kind: TokenKind) -> None:
        self._store, self._clock, self._kind = store, clock, kind
        self._read: dict[str, tuple[datetime, Token | None]] = {}
        self._unknown: deque[datetime] = deque()
        self.reads = 0
        """How often the store was read."""

    def authenticate(self, token: str) -> Token:
        """Return the record of a valid token.

        Raises:
            TokenMissing: `token` is empty.
            TokenInvalid: the token is malformed, unknown, expired or revoked.
            TooManyReports: too many unknown ids were looked up within `TOKEN_CACHE_TTL`.
        """
        if not token:
            raise TokenMissing("a token is needed")
        match = self._kind.pattern.fullmatch(token)
        if match is None:
            raise TokenInvalid("this is no token")
        now = self._clock()
        record = self._token(match["id"], now)
        if record is None or not hmac.compare_digest(record.digest, digest_of(token)) or not record.is_valid(now):
            raise TokenInvalid(f"the token {match['id']} is unknown, expired or revoked")
        return record

    def _token(self, token_id: str, now: datetime) -> Token | None:
        """Return the record of a token id from the cache or the store; None if it is unknown.

        Raises:
            TooManyReports: too many unknown ids were looked up within `TOKEN_CACHE_TTL`.
        """
        cached = self._read.get(token_id)
        if cached is not None and now - cached[0] < TOKEN_CACHE_TTL:
            return cached[1]
        while self._unknown and now - self._unknown[0] >= TOKEN_CACHE_TTL:
            self._unknown.popleft()
        was_valid = cached is not None and cached[1] is not None
        if len(self._unknown) >= CACHED_UNKNOWN_TOKENS_MAX and not was_valid:
            raise TooManyReports(int(TOKEN_CACHE_TTL.total_seconds()))
        self.reads += 1
        token = self._store.load_token(token_id)
        if token is None:
            self._unknown.append(now)
        self._read.pop(token_id, None)
        if len(self._read) >= CACHED_TOKENS_MAX:
            del self._read[next(iter(self._read))]
        self._read[token_id] = (now, token)
        return token
