"""Objects of the two functions that answer the internet, created once per cold start."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from gpu_recovery.auth.tokens import TokenKind
from gpu_recovery.aws.command_executor import CommandExecutor
from gpu_recovery.aws.secret_values import signing_key
from gpu_recovery.aws.settings import LambdaSettingsInvalid
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.aws.wiring import dynamodb, recovery, settings
from gpu_recovery.execution.hand_over import CLUSTER_COMMANDS, HandOver
from gpu_recovery.recovery import Recovery


@cache
def tokens() -> DynamoTokenStore:
    """Return the store of the node tokens, for the functions that issue or check them."""
    return DynamoTokenStore(dynamodb(), settings().instance_table)


def node_token_key() -> bytes:
    """Return the issuer key of the node tokens, for the functions that issue or check them."""
    return signing_key(settings().node_token_key_secret, TokenKind.NODE.key_label)


def api_recovery(*also_left: type, **changes: Any) -> Recovery:
    """Return the loop of a function that answers the internet. It leaves commands for the cluster to another function.

    Args:
        also_left: further types of commands that the function leaves, for example because it may read no logs.
        changes: fields of the loop that differ for this function.

    Raises:
        LambdaSettingsInvalid: the environment does not name the command executor.
    """
    function = settings().executor_function
    if not function:
        raise LambdaSettingsInvalid("environment variable COMMAND_EXECUTOR_FUNCTION is not set")
    hand_over = HandOver((*CLUSTER_COMMANDS, *also_left), CommandExecutor(function).wake)
    return replace(recovery(), hand_over=hand_over, **changes)
