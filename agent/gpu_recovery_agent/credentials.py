"""By what the API knows this instance: its token, or a signature with the role of the instance (SigV4).

A signature needs botocore, which only the extra `sigv4` brings. Its date is that of the wall's clock, which botocore
reads: where that clock is minutes wrong AWS refuses the signature, and the API counts as away.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from gpu_recovery_agent.settings import AgentSettings, AgentSettingsError

SERVICE = "execute-api"
EXTRA = "GPU_RECOVERY_AUTH is sigv4, for which botocore is missing: install gpu-recovery-agent[sigv4]"


class Credentials(Protocol):
    """What goes with a report. Both raise SettingsError where there is nothing to prove it by, now."""

    def key(self) -> str:
        """What it is proved by: another one is worth another try where this one is refused."""

    def headers(self, body: bytes) -> Mapping[str, str]:
        """The headers for this body."""


class TokenCredentials:
    """The token of the settings, read anew each time."""

    def __init__(self, settings: AgentSettings, environment: Mapping[str, str]) -> None:
        self._settings, self._environment = settings, environment

    def key(self) -> str:
        return self._settings.token(self._environment)

    def headers(self, body: bytes) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key()}"}


class SignedCredentials:
    """SigV4 with the credentials that botocore finds: on an instance those of its role, renewed before they expire."""

    def __init__(self, settings: AgentSettings) -> None:
        try:
            self._auth: Any = importlib.import_module("botocore.auth")
            self._request: Any = importlib.import_module("botocore.awsrequest")
            self._errors: Any = importlib.import_module("botocore.exceptions")
            session: Any = importlib.import_module("botocore.session")
        except ImportError:
            raise AgentSettingsError(EXTRA) from None
        self._url, self._region, self._session = settings.reports_url, settings.region, session.get_session()
        self._found: Any = None

    def key(self) -> str:
        return str(self._credentials().access_key)

    def headers(self, body: bytes) -> Mapping[str, str]:
        request = self._request.AWSRequest("POST", self._url, {"Content-Type": "application/json"}, body)
        self._auth.SigV4Auth(self._credentials(), SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())

    def _credentials(self) -> Any:
        try:
            self._found = self._found or self._session.get_credentials()
            if self._found is not None:
                return self._found.get_frozen_credentials()
        except (self._errors.BotoCoreError, RuntimeError) as error:
            raise AgentSettingsError(
                f"the credentials of the instance's role cannot be had: {type(error).__name__}"
            ) from None
        raise AgentSettingsError("there are no credentials to sign with: the instance has no role")


def credentials_of(settings: AgentSettings, environment: Mapping[str, str]) -> Credentials:
    """What the settings choose. Raises SettingsError where it cannot work, also after a while."""
    if settings.signs:
        return SignedCredentials(settings)
    found = TokenCredentials(settings, environment)
    found.key()
    return found
