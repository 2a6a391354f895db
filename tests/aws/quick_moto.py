"""moto, whose DynamoDB answers in a third of the time: a stored item has the form of an answer already."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from moto import mock_aws
from moto.core.serialize import BaseJSONSerializer

_by_shape = BaseJSONSerializer._serialize_type_structure


def _as_it_is(self: Any, serialized: Any, value: Any, shape: Any, key: str) -> None:
    """moto looks for each of the ten kinds of a DynamoDB value in every value; a dict has the right one already."""
    if shape.name == "AttributeValue" and isinstance(value, dict):
        serialized[key] = value
    else:
        _by_shape(self, serialized, value, shape, key)


def items_as_they_are() -> AbstractContextManager[Any]:
    """moto answers with the items as it has stored them."""
    return patch.object(BaseJSONSerializer, "_serialize_type_structure", _as_it_is)


@contextmanager
def quick_moto() -> Iterator[None]:
    """`moto.mock_aws` with items as they are."""
    with mock_aws(), items_as_they_are():
        yield
