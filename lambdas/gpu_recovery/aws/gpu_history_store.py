"""GPU history in DynamoDB: one item for each sample, in the table of the event history."""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import Any

from gpu_recovery.aws.clients import ONE_SHORT_TRY, as_unavailable, client
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.event_history_store import PARTITION, SORT
from gpu_recovery.aws.item_codec import TTL
from gpu_recovery.core.gpu_history import ATTRIBUTE, KEPT, stream_of
from gpu_recovery.core.published_events import utc_text


class DynamoGpuHistory:
    """`ports.gpu_history.GpuHistory` on DynamoDB. `table`: the table of the event history."""

    def __init__(self, table: str) -> None:
        self._table = table

    @cached_property
    def _client(self) -> Any:
        return client("dynamodb", ONE_SHORT_TRY)

    def write(self, instance_id: str, at: datetime, text: str) -> None:
        """Write one sample in a single short try: an agent waits for the answer to its report."""
        expires_s = int((at + KEPT).timestamp())
        item = {PARTITION: stream_of(instance_id), SORT: utc_text(at), ATTRIBUTE: text, TTL: expires_s}
        with as_unavailable("the GPU history"):
            self._client.put_item(TableName=self._table, Item=typed(item))
