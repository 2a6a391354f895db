"""IAM authentication of requests: SigV4 signatures for a deployment with the setting `api_auth: iam`.

Signing needs botocore, which only the extra `iam` installs. The credentials are those that botocore finds: variables,
a profile, IAM Identity Center, or the role of an instance or a container.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Generator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpu_recovery_client.errors import SettingsMissing

SERVICE = "execute-api"
EXTRA = "requests to this deployment are signed, for which botocore is missing: pip install 'gpu-recovery[iam]'"
REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")
REGION_IN_HOST = re.compile(rf"[a-z0-9-]+\.execute-api\.({REGION.pattern})\.amazonaws\.com(?:\.cn)?")
SIGNED_HEADERS = ("content-type", "idempotency-key", "if-match")
"""Headers that a signature covers, besides Host and those of the signature itself. A proxy may change other headers."""


class IamAuth(httpx.Auth):
    """Signs each request, also each repetition, with SigV4. Credentials are read for each signature.

    Args:
        api_url: address of the API. Its host names the region, unless it is a domain name of your own.
        environment: variables, for the region of such a domain name.

    Raises:
        SettingsMissing: botocore is missing, or neither the address nor the environment names the region.
    """

    requires_request_body = True

    def __init__(self, api_url: str, environment: Mapping[str, str] = os.environ) -> None:
        self._region = region_of(api_url, environment)
        try:
            self._auth: Any = importlib.import_module("botocore.auth")
            self._request: Any = importlib.import_module("botocore.awsrequest")
            self._errors: Any = importlib.import_module("botocore.exceptions")
            session: Any = importlib.import_module("botocore.session")
        except ImportError:
            raise SettingsMissing(EXTRA) from None
        self._session = session.get_session()
        self._secrets: tuple[str, ...] = ()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Sign the request and send it once."""
        headers = {name: request.headers[name] for name in SIGNED_HEADERS if name in request.headers}
        unsigned = self._request.AWSRequest(request.method, str(request.url), headers, request.content)
        self._auth.SigV4Auth(self._credentials(), SERVICE, self._region).add_auth(unsigned)
        request.headers.update(dict(unsigned.headers.items()))
        yield request

    def masked(self, text: str) -> str:
        """Return a text of a server or library without the credentials.

        AWS repeats headers when it refuses a signature.
        """
        for secret in self._secrets:
            text = text.replace(secret, "[credentials]")
        return text

    def _credentials(self) -> Any:
        try:
            found = self._session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except (self._errors.BotoCoreError, RuntimeError) as error:
            raise SettingsMissing(f"the AWS credentials cannot be read: {type(error).__name__}") from None
        if frozen is None:
            raise SettingsMissing("there are no AWS credentials to sign with: sign in, or set AWS_PROFILE")
        self._secrets = tuple(filter(None, (frozen.secret_key, frozen.token)))
        return frozen


def region_of(api_url: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the region of the API, by the name of its host or by the environment.

    Raises SettingsMissing if neither names the region.
    """
    in_host = REGION_IN_HOST.fullmatch(urlsplit(api_url).hostname or "")
    named = (environment.get(name, "") for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    region = in_host[1] if in_host else next(filter(None, named), "")
    if not REGION.fullmatch(region):
        raise SettingsMissing("set AWS_REGION to the region of the API: its address does not name the region")
    return region
