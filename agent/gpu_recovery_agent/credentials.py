"""How the agent authenticates to the API: with its token, or with a SigV4 signature.

A signature is made with the role of the instance. It needs botocore, which only the extra `sigv4` installs. botocore
dates a signature with the wall clock. AWS refuses the signature if that clock is minutes wrong, and the agent then
treats the API as unreachable.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from gpu_recovery_agent.rank.paths import AgentSettingsError
from gpu_recovery_agent.settings import AgentSettings

SERVICE = "execute-api"
BOTOCORE_MISSING = "GPU_RECOVERY_AUTH is sigv4, for which botocore is missing: install gpu-recovery-agent[sigv4]"


class Credentials(Protocol):
    """Credentials of a report. Both methods raise AgentSettingsError while there are no usable credentials."""

    def key(self) -> str:
        """Return an identifier of the credentials.

        If the API refuses a report and the key has changed since, a retry is useful.
        """

    def headers(self, body: bytes) -> Mapping[str, str]:
        """Return the HTTP headers that authenticate this body."""


class TokenCredentials:
    """The token of the settings. It is read again for each report."""

    def __init__(self, settings: AgentSettings, environment: Mapping[str, str]) -> None:
        self._settings, self._environment = settings, environment

    def key(self) -> str:
        """Return the token."""
        return self._settings.token(self._environment)

    def headers(self, body: bytes) -> Mapping[str, str]:
        """Return the Authorization header with the token."""
        return {"Authorization": f"Bearer {self.key()}"}


class SignedCredentials:
    """SigV4 with the credentials that botocore finds.

    On an instance these are the role's, renewed before they expire.
    """

    def __init__(self, settings: AgentSettings) -> None:
        try:
            self._auth: Any = importlib.import_module("botocore.auth")
            self._request: Any = importlib.import_module("botocore.awsrequest")
            self._errors: Any = importlib.import_module("botocore.exceptions")
            session: Any = importlib.import_module("botocore.session")
        except ImportError:
            raise AgentSettingsError(BOTOCORE_MISSING) from None
        self._url, self._region, self._session = settings.reports_url, settings.region, session.get_session()
        self._provider: Any = None

    def key(self) -> str:
        """Return the access key id."""
        return str(self._credentials().access_key)

    def headers(self, body: bytes) -> Mapping[str, str]:
        """Return the headers of a POST of this body, signed with SigV4."""
        request = self._request.AWSRequest("POST", self._url, {"Content-Type": "application/json"}, body)
        self._auth.SigV4Auth(self._credentials(), SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())

    def _credentials(self) -> Any:
        try:
            self._provider = self._provider or self._session.get_credentials()
            if self._provider is not None:
                return self._provider.get_frozen_credentials()
        except (self._errors.BotoCoreError, self._errors.ClientError, RuntimeError) as error:
            raise AgentSettingsError(
                f"the credentials of the instance's role cannot be read: {type(error).__name__}"
            ) from None
        raise AgentSettingsError("there are no credentials to sign with: the instance has no role")


def credentials_of(settings: AgentSettings, environment: Mapping[str, str]) -> Credentials:
    """Return the credentials that the settings select. Raises AgentSettingsError if they cannot work, now or later."""
    if settings.signs:
        return SignedCredentials(settings)
    token = TokenCredentials(settings, environment)
    token.key()
    return token
