"""Errors that DynamoDB answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DynamoError(Exception):
    """An error answer.

    Attributes:
        code: error code, such as `ConditionalCheckFailedException`.
        message: the text for people.
        details: further members of the answer, such as `Item` or `CancellationReasons`.
    """

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.details = code, message, dict(details or {})


class UnsupportedRequest(Exception):
    """The double does not have an operation, a parameter or a form of a table. DynamoDB may have it."""


def invalid(message: str) -> DynamoError:
    """Return the error for a request that DynamoDB refuses as malformed."""
    return DynamoError("ValidationException", message)


def invalid_parameter(message: str) -> DynamoError:
    """Return the error for a parameter value that DynamoDB refuses."""
    return invalid(f"One or more parameter values were invalid: {message}")
