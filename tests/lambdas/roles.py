"""The roles of the functions, where AWS is a double: which calls of a function IAM would refuse."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

from infra.functions import FUNCTIONS
from infra.permissions import Reach, statements

CHECKED = ("ecs", "ec2", "autoscaling", "logs", "s3")
"""Services whose operations are named like their IAM actions."""
_NAMES: dict[type, Any] = {str: "a name", bool: True}


@cache
def _reach() -> Reach:
    """ARNs of no deployment: only the actions count here."""
    hints = get_type_hints(Reach)
    values = {each.name: _NAMES.get(hints[each.name], ["a name", "a value"]) for each in fields(Reach)}
    return Reach(**values)


@cache
def allowed(function: str) -> frozenset[str]:
    """The actions that the role of the function allows."""
    (row,) = (row for row in FUNCTIONS if row.name == function)
    made = [statement for permission in row.permissions for statement in statements(permission, _reach())]
    return frozenset(action for statement in made for action in statement.actions)


def refuses(function: str, service: str, operation: str) -> bool:
    """Whether IAM refuses the operation to the function."""
    return service in CHECKED and f"{service}:{operation}" not in allowed(function)
