"""Models of tokens, users, sessions and the caller."""

from __future__ import annotations

from gpu_recovery.auth.roles import Role
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.policy import Preset
from gpu_recovery.job_api.models.base import ResponseModel, Time


class _Token(ResponseModel):
    """What the tokens of instances and of users share."""

    live: bool
    issued_at: Time
    expires_at: Time
    revoked_at: Time | None
    issued_by: str
    note: str


class NodeToken(_Token):
    """A token of an instance's agent, without its secret."""

    token_id: str
    instance_id: str


class NewNodeToken(NodeToken):
    """A new token of an instance's agent. No other answer contains the token."""

    token: str


class NodeTokens(ResponseModel):
    """The tokens of an instance, the newest last."""

    instance_id: str
    tokens: list[NodeToken]


class UserToken(_Token):
    """A token of a user, without its secret."""

    id: str
    user: str
    role: Role


class NewUserToken(UserToken):
    """A new token of a user. No other answer contains the token."""

    token: str


class UserTokens(ResponseModel):
    """The tokens of a user, the newest last."""

    user: str
    tokens: list[UserToken]


class User(ResponseModel):
    """A user that tokens were issued to."""

    user: str
    roles: list[Role]
    live_tokens: int
    next_end: Time | None
    last_issued_at: Time | None


class Users(ResponseModel):
    """A page of users, in the order of their names."""

    users: list[User]
    next_cursor: str | None


class NewSession(ResponseModel):
    """A new session. No other answer contains it."""

    session: str
    user: str
    role: Role
    expires_at: Time


class DeploymentFacts(ResponseModel):
    """The deployment that the API belongs to."""

    cluster: str
    region: str
    preset: Preset
    adopt: Adoption
    observe_only: bool
    replace: bool


class Me(ResponseModel):
    """The caller, and the deployment that answers."""

    user: str
    role: Role | None
    expires_at: Time | None
    is_session: bool
    deployment: DeploymentFacts
