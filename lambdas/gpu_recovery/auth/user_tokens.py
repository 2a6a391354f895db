"""The tokens of users: each speaks for one user's name, in one role."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpu_recovery.auth.tokens import SECRET, Issued, KeepsTokens, Listing, Token, issue_to, strike, wish
from gpu_recovery.core.errors import SpecInvalid

USER = "gru_"
"""What the token of a user begins with."""
USER_TOKEN = re.compile(USER + SECRET)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@/+-]{0,126}")


class Role(StrEnum):
    """What a caller may do; each may do what those before it may."""

    VIEWER = "viewer"  # read
    USER = "user"  # submit, and cancel, suspend and resume jobs of its own
    OPERATOR = "operator"  # everything

    def covers(self, needed: Role) -> bool:
        """Whether whoever has this role may do what takes `needed`."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


@dataclass(frozen=True, slots=True)
class UserToken(Token):
    """What is kept of a user's token."""

    token_id: str
    user: str
    role: Role
    digest: str = field(repr=False)
    issued_at: datetime
    expires_at: datetime
    issued_by: str
    note: str = ""
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class UserTokenList(Listing[UserToken]):
    """The tokens of one user, the newest last."""

    user: str
    tokens: tuple[UserToken, ...] = ()
    revision: int = 0

    @property
    def holder(self) -> str:
        """The user."""
        return self.user


UserTokenStore = KeepsTokens[UserTokenList, UserToken]


def issue(store: UserTokenStore, user: str, now: datetime, by: str, asked: Mapping[str, Any]) -> Issued[UserToken]:
    """A new token for a user.

    asked: `{"role": viewer | user | operator, "expires_in_s": seconds, "note": text}`; a `user` unless it says so.
    Raises SpecInvalid and TokensFull.
    """
    checked_user(user)
    role = asked.get("role", Role.USER.value)
    if not isinstance(role, str) or role not in tuple(Role):
        raise SpecInvalid("role", f"must be one of {', '.join(Role)}")
    if set(asked) - {"role", "expires_in_s", "note"}:
        raise SpecInvalid("body", "must have no fields but role, expires_in_s and note")
    life, note = wish({name: value for name, value in asked.items() if name != "role"})

    def made(token_id: str, digest: str) -> UserToken:
        return UserToken(token_id, user, Role(role), digest, now, now + life, by, note)

    return issue_to(store, user, USER, now, made)


def revoke(store: UserTokenStore, user: str, token_id: str, now: datetime) -> UserToken | None:
    """The user's token, revoked; as it is, if it was revoked before; None if the user has none of this id."""
    return strike(store, checked_user(user), token_id, now)


def checked_user(user: str) -> str:
    """The name, if a user with a token can have it; else SpecInvalid."""
    if not NAME.fullmatch(user):
        raise SpecInvalid(
            "user", "must be letters, digits and _ . @ / + -, at most 127, beginning with one of the first"
        )
    return user
