"""Writes the verdict document to S3, where the control plane reads it.

Only this module imports boto3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from health_check.settings import CheckSettings

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 20
ATTEMPTS_MAX = 5


class VerdictNotWrittenError(RuntimeError):
    """S3 did not accept the document. The message gives the bucket and the reason."""


def publish(settings: CheckSettings, document: Mapping[str, Any]) -> None:
    """Write the document over any earlier document of the same key; a second write changes nothing.

    Uses the credentials of the task role and the endpoint that botocore chooses.

    Raises:
        VerdictNotWrittenError: S3 did not accept the document.
    """
    try:
        client = boto3.client(
            "s3",
            region_name=settings.region,
            config=Config(
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS_MAX},
            ),
        )
        client.put_object(
            Bucket=settings.verdict_bucket,
            Key=settings.verdict_key,
            Body=json.dumps(document).encode(),
            ContentType="application/json",
        )
    except (BotoCoreError, ClientError) as error:
        # Whoever knows the key can write the document in the place of this check. Some errors show the whole URL.
        reason = str(error).replace(settings.verdict_key, "<key>")
        raise VerdictNotWrittenError(
            f"the verdict was not written to s3://{settings.verdict_bucket}: {reason}"
        ) from error
