"""The event history as the functions write and show it, created once per cold start."""

from __future__ import annotations

from functools import cache

from gpu_recovery.aws.clients import ONE_SHORT_TRY, client
from gpu_recovery.aws.event_history_store import DynamoEventHistory
from gpu_recovery.aws.settings import LambdaSettingsInvalid
from gpu_recovery.aws.shown_history import ShownHistory
from gpu_recovery.aws.wiring import dynamodb, settings
from gpu_recovery.ports.event_history import HistoryReader


@cache
def event_history() -> DynamoEventHistory:
    """Return the event history, for the function that writes it.

    Raises:
        LambdaSettingsInvalid: the environment does not name its table.
    """
    return DynamoEventHistory(dynamodb(), _event_history_table())


def shown_history() -> HistoryReader:
    """Return the reader of the event history for the function that shows it.

    Raises:
        LambdaSettingsInvalid: the environment does not name its table.
    """
    return ShownHistory(DynamoEventHistory(client("dynamodb", ONE_SHORT_TRY), _event_history_table()))


def _event_history_table() -> str:
    table = settings().event_history_table
    if not table:
        raise LambdaSettingsInvalid("environment variable EVENT_HISTORY_TABLE_NAME is not set")
    return table
