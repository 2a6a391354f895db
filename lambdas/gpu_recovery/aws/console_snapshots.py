"""Console snapshots in S3: `console/<name>.json.gz` in the verdict bucket. They expire after 7 days."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws.clients import ONE_SHORT_TRY, as_unavailable, client
from gpu_recovery.core.console_snapshots import SnapshotName
from gpu_recovery.ports.errors import StorageFailed

PREFIX = "console/"
"""Prefix of the keys of console snapshots."""


class S3ConsoleSnapshots:
    """`ports.ConsoleSnapshots` in the bucket `bucket`. Each call is a single short try."""

    def __init__(self, bucket: str) -> None:
        self._bucket = bucket

    @cached_property
    def _s3(self) -> Any:
        return client("s3", ONE_SHORT_TRY)

    def save(self, name: SnapshotName, text: str) -> None:
        """Put the document, compressed."""
        body = gzip.compress(text.encode(), 6, mtime=0)
        with as_unavailable("the storage of console snapshots"):
            self._s3.put_object(Bucket=self._bucket, Key=key_of(name), Body=body, ContentType="application/gzip")

    def load(self, name: SnapshotName) -> Mapping[str, Any] | None:
        """Return the document; None if there is none."""
        with as_unavailable("the storage of console snapshots"):
            try:
                body = self._s3.get_object(Bucket=self._bucket, Key=key_of(name))["Body"].read()
            except ClientError as error:
                if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                    return None
                raise
        try:
            document: Mapping[str, Any] = json.loads(gzip.decompress(body))
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise StorageFailed(f"the console snapshot {name} is malformed") from error
        return document


def key_of(name: SnapshotName) -> str:
    """Return the S3 key of a snapshot."""
    return f"{PREFIX}{name}.json.gz"
