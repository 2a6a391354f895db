"""Token check: authenticates the tokens of instances and of users, and caches what it read, refusals included.

Anyone can call this endpoint, so a token that this deployment did not issue is rejected by its issuer tag, without
reading the table. The id of an issued token is looked up once a minute at most.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from datetime import datetime, timedelta

from gpu_recovery.auth.issuer_tag import has_valid_tag
from gpu_recovery.auth.tokens import Token, TokenKind, TokenLookup, digest_of
from gpu_recovery.core.errors import RecoveryError

TOKEN_CACHE_TTL = timedelta(seconds=60)
"""Time for which a cached token is used. A revoked token stays valid for at most this time."""
CACHED_TOKENS_MAX = 20_000


class TokenMissing(RecoveryError):
    """The request carries no token."""


class TokenInvalid(RecoveryError):
    """The token is malformed, unknown, expired or revoked."""


class TokenAuthenticator:
    """Authenticates tokens of one kind. The cache lives as long as the Lambda function's process.

    clock: the time by which tokens expire and the cache grows old.
    key:   returns the issuer key of this kind of tokens.
    """

    def __init__(
        self, store: TokenLookup, clock: Callable[[], datetime], kind: TokenKind, key: Callable[[], bytes]
    ) -> None:
        self._store, self._clock, self._kind, self._key = store, clock, kind, key
        self._read: dict[str, tuple[datetime, Token | None]] = {}
        self.reads = 0
        """How often the store was read."""

    def authenticate(self, token: str) -> Token:
        """Return the record of a valid token.

        Raises:
            TokenMissing: `token` is empty.
            TokenInvalid: the token is malformed, unknown, expired or revoked.
        """
        if not token:
            raise TokenMissing("a token is required")
        match = self._kind.pattern.fullmatch(token)
        if match is None:
            raise TokenInvalid("this is not a token")
        if not has_valid_tag(self._key(), token):
            raise TokenInvalid(f"the token {match['id']} was not issued by this deployment")
        now = self._clock()
        record = self._token(match["id"], now)
        if record is None or not hmac.compare_digest(record.digest, digest_of(token)) or not record.is_valid(now):
            raise TokenInvalid(f"the token {match['id']} is unknown, expired or revoked")
        return record

    def valid_record(self, token_id: str) -> Token:
        """Return the record of a token by its id, without the token itself. A session names its parent so.

        Raises:
            TokenInvalid: the token is unknown, expired or revoked.
        """
        now = self._clock()
        record = self._token(token_id, now)
        if record is None or not record.is_valid(now):
            raise TokenInvalid(f"the token {token_id} is unknown, expired or revoked")
        return record

    def _token(self, token_id: str, now: datetime) -> Token | None:
        """Return the record of a token id from the cache or the store; None if it is unknown."""
        cached = self._read.get(token_id)
        if cached is not None and now - cached[0] < TOKEN_CACHE_TTL:
            return cached[1]
        self.reads += 1
        token = self._store.load_token(token_id)
        self._read.pop(token_id, None)
        if len(self._read) >= CACHED_TOKENS_MAX:
            del self._read[next(iter(self._read))]
        self._read[token_id] = (now, token)
        return token
