"""Console snapshots in S3: `console/<name>.json.gz` in the verdict bucket. They expire after 7 days."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from botocore.config import Config
from botocore.exceptions import ClientError

from gpu_recovery.aws.clients import STANDARD_RETRIES, client
from gpu_recovery.core.console_snapshots import SnapshotName

PREFIX = "console/"
"""Prefix of the keys of console snapshots."""
ONE_SHORT_TRY = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=0.3, read_timeout=1.2)
"""Timeouts in seconds of a writer. A snapshot that is not written comes with the next run, a minute later."""


class S3ConsoleSnapshots:
    """`ports.ConsoleSnapshots` in the bucket `bucket`; `config` has the retries and timeouts of its calls."""

    def __init__(self, bucket: str, config: Config = STANDARD_RETRIES) -> None:
        self._bucket, self._config = bucket, config

    @cached_property
    def _s3(self) -> Any:
        return client("s3", self._config)

    def save(self, name: SnapshotName, document: Mapping[str, Any]) -> None:
        """Put the document, compressed."""
        body = gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 6, mtime=0)
        self._s3.put_object(Bucket=self._bucket, Key=key_of(name), Body=body, ContentType="application/gzip")

    def load(self, name: SnapshotName) -> Mapping[str, Any] | None:
        """Return the document; None if there is none."""
        try:
            answer = self._s3.get_object(Bucket=self._bucket, Key=key_of(name))
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        document: Mapping[str, Any] = json.loads(gzip.decompress(answer["Body"].read()))
        return document


def key_of(name: SnapshotName) -> str:
    """Return the S3 key of a snapshot."""
    return f"{PREFIX}{name}.json.gz"
