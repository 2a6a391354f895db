"""What the health check says about a document that S3 did not take."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, EndpointConnectionError, ReadTimeoutError

from health_check import publish
from tests.health_check.examinations import SETTINGS

URL = f"https://{SETTINGS.verdict_bucket}.s3.us-east-1.amazonaws.com/{SETTINGS.verdict_key}"


@pytest.mark.parametrize("error", [EndpointConnectionError(endpoint_url=URL), ReadTimeoutError(endpoint_url=URL)])
def test_no_error_shows_the_key_of_the_verdict(monkeypatch: pytest.MonkeyPatch, error: BotoCoreError) -> None:
    """The log of a check has more readers than its key, and some errors of botocore quote the URL."""

    class Unreachable:
        def put_object(self, **asked: Any) -> None:
            raise error

    monkeypatch.setattr(publish.boto3, "client", lambda *_, **__: Unreachable())
    with pytest.raises(publish.VerdictNotWrittenError, match="endpoint URL") as raised:
        publish.publish(SETTINGS, {})
    assert SETTINGS.verdict_key not in str(raised.value) and SETTINGS.verdict_bucket in str(raised.value)
