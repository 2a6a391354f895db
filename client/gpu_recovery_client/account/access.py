"""Read access to an AWS account: clients of botocore, made when they are needed, and errors in plain words."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from gpu_recovery_client.errors import ClientError, SettingsMissing

BOTOCORE_MISSING = "the account is read with botocore, which is missing: pip install 'gpu-recovery[iam]'"
BATCH = 50
"""Largest number of instances or groups in one request, the limit of Auto Scaling."""
Described = Mapping[str, Any]


class Refused(ClientError):
    """AWS refused a call, or did not answer it. `code` is the error code of the service, or ""."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class Account:
    """The account and region of the caller's credentials.

    Args:
        region: region to read; None: that of the environment or of the AWS profile.

    Raises:
        SettingsMissing: botocore is missing, or no region is known.
    """

    def __init__(self, region: str | None = None) -> None:
        try:
            self._session = importlib.import_module("botocore.session").get_session()
            self._errors: Any = importlib.import_module("botocore.exceptions")
        except ImportError:
            raise SettingsMissing(BOTOCORE_MISSING) from None
        # botocore itself reads AWS_DEFAULT_REGION only; the AWS CLI and the CDK read AWS_REGION first.
        found = region or os.environ.get("AWS_REGION") or self._session.get_config_variable("region")
        if not found:
            raise SettingsMissing("no AWS region is selected: set AWS_REGION, or give --region")
        self.region: str = found
        self._clients: dict[str, Any] = {}

    def call(self, service: str, operation: str, **parameters: Any) -> Described:
        """Call one operation by its name in botocore, such as `describe_clusters`.

        Raises:
            SettingsMissing: there are no credentials.
            Refused: AWS refused the call, or did not answer.
        """
        with self._plain_errors(service, operation):
            answer: Described = getattr(self._client(service), operation)(**parameters)
            return answer

    def items(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[Any]:
        """Yield the items `key` of every page of an operation. Errors are those of `call`."""
        with self._plain_errors(service, operation):
            for page in self._client(service).get_paginator(operation).paginate(**parameters):
                yield from page.get(key, ())

    @cached_property
    def account_id(self) -> str:
        """The id of the account."""
        return str(self.call("sts", "get_caller_identity")["Account"])

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._session.create_client(service, region_name=self.region)
        return self._clients[service]

    @contextmanager
    def _plain_errors(self, service: str, operation: str) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except (errors.NoCredentialsError, errors.PartialCredentialsError) as error:
            raise SettingsMissing("there are no AWS credentials to read the account with: set AWS_PROFILE") from error
        except errors.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            raise Refused(f"AWS did not answer: {error}", code) from error
        except errors.BotoCoreError as error:
            raise Refused(f"AWS did not answer {service} {operation}: {error}") from error


def batches(names: Sequence[str], size: int = BATCH) -> Iterator[list[str]]:
    """Yield the names in lists of at most `size`."""
    for first in range(0, len(names), size):
        yield list(names[first : first + size])
