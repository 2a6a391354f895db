"""SigV4 signatures of requests to a deployment with the setting `api_auth: iam`.

Signing needs botocore, which only the extra `iam` installs. The credentials are those that botocore finds: variables,
a profile, IAM Identity Center, or the role of an instance or a container. The ranks of a job sign too, so this module
imports no HTTP library.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .errors import SettingsMissing

SERVICE = "execute-api"
BOTOCORE_MISSING = (
    "requests to this deployment are signed, for which botocore is missing: pip install 'gpu-recovery[iam]'"
)
REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")
REGION_IN_HOST = re.compile(rf"[a-z0-9-]+\.execute-api\.({REGION.pattern})\.amazonaws\.com(?:\.cn)?")


class RequestSigner:
    """Signs requests with the credentials of the moment.

    Args:
        api_url: address of the API. Its host names the region, unless it is a domain name of your own.
        environment: variables, for the region of such a domain name.

    Raises:
        SettingsMissing: botocore is missing, or neither the address nor the environment names the region.
    """

    def __init__(self, api_url: str, environment: Mapping[str, str]) -> None:
        self._region = region_of(api_url, environment)
        try:
            self._auth: Any = importlib.import_module("botocore.auth")
            self._request: Any = importlib.import_module("botocore.awsrequest")
            self._errors: Any = importlib.import_module("botocore.exceptions")
            session: Any = importlib.import_module("botocore.session")
        except ImportError:
            raise SettingsMissing(BOTOCORE_MISSING) from None
        self._session = session.get_session()
        self._secrets: tuple[str, ...] = ()

    def sign(self, method: str, url: str, headers: Mapping[str, str], content: bytes | None) -> dict[str, str]:
        """Return the headers and those of the signature, which covers all of them.

        Raises:
            SettingsMissing: there are no credentials, or botocore cannot read them.
        """
        request = self._request.AWSRequest(method, url, dict(headers), content)
        self._auth.SigV4Auth(self._credentials(), SERVICE, self._region).add_auth(request)
        return dict(request.headers.items())

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
        except (self._errors.BotoCoreError, self._errors.ClientError, RuntimeError) as error:
            raise SettingsMissing(f"the AWS credentials cannot be read: {type(error).__name__}") from None
        if frozen is None:
            raise SettingsMissing("there are no AWS credentials to sign with: sign in, or set AWS_PROFILE")
        self._secrets = tuple(filter(None, (frozen.secret_key, frozen.token)))
        return frozen


def region_of(api_url: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the region of the API, by the name of its host or by the environment.

    Raises:
        SettingsMissing: neither names the region.
    """
    in_host = REGION_IN_HOST.fullmatch(urlsplit(api_url).hostname or "")
    named = (environment.get(name, "") for name in ("AWS_REGION", "AWS_DEFAULT_REGION"))
    region = in_host[1] if in_host else next(filter(None, named), "")
    if not REGION.fullmatch(region):
        raise SettingsMissing("set AWS_REGION to the region of the API: its address does not name the region")
    return region
