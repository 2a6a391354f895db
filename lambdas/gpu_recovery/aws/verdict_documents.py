"""Verdict documents of health checks in S3, whole, for readers who show them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.clients import client
from gpu_recovery.aws.ecs_requests import verdict_key
from gpu_recovery.core.launch_signature import verdict_name
from gpu_recovery.ports.errors import VerdictUnreadable

DOCUMENT_BYTES_MAX = 1_048_576
"""Upper bound of a document. The schema bounds every list and text, so a document of a check is much smaller."""


class S3VerdictDocuments:
    """`ports.verdict_documents.VerdictDocuments` on S3.

    A document is read under its secret name, which is derived from the launch key: other checks may write under every
    other name (docs/decisions/0037-a-secret-key-for-each-verdict.md). The name is in no answer.

    Args:
        bucket: the bucket of the verdicts.
        launch_key: returns the launch key of the deployment.
    """

    def __init__(self, bucket: str, launch_key: Callable[[], str]) -> None:
        self._bucket, self._launch_key = bucket, launch_key

    @cached_property
    def _s3(self) -> Any:
        return client("s3")

    def load(self, check_id: str) -> Mapping[str, Any] | None:
        """Return the verdict document of a check; None if none is stored. Raises VerdictUnreadable."""
        key = verdict_key(check_id, verdict_name(self._launch_key(), check_id))
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=key)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        if answer.get("ContentLength", 0) > DOCUMENT_BYTES_MAX:
            raise VerdictUnreadable(f"the document of {check_id} has more than {DOCUMENT_BYTES_MAX} bytes")
        try:
            document = json.loads(answer["Body"].read())
        except ValueError as error:
            raise VerdictUnreadable(f"the document of {check_id} is no JSON: {error}") from error
        if not isinstance(document, dict) or document.get("check_id") != check_id:
            raise VerdictUnreadable(f"the document of {check_id} belongs to no check or to another check")
        return document
