"""EventBridge pattern matching, for the operators our rules use; any other operator is an error, never a match.

A pattern matches when every key matches. A list of alternatives matches when one of them does. An array in the event
matches when one of its elements does. A key that the event lacks is matched by `{"exists": false}` alone.
"""

from typing import Any

_ABSENT = object()


def matches(pattern: dict[str, Any], event: Any) -> bool:
    return all(_field(expected, _value(event, key)) for key, expected in pattern.items())


def _value(event: Any, key: str) -> Any:
    return event.get(key, _ABSENT) if isinstance(event, dict) else _ABSENT


def _field(expected: Any, actual: Any) -> bool:
    if isinstance(actual, list):
        return any(_field(expected, item) for item in actual) if actual else _field(expected, _ABSENT)
    if isinstance(expected, dict):
        return matches(expected, {} if actual is _ABSENT else actual)
    return any(_alternative(each, actual) for each in expected)


def _alternative(wanted: Any, actual: Any) -> bool:
    if not isinstance(wanted, dict):
        return type(wanted) is type(actual) and wanted == actual
    ((operator, argument),) = wanted.items()
    if operator == "exists":
        return (actual is not _ABSENT) is argument
    if actual is _ABSENT:
        return False
    if operator == "prefix":
        return isinstance(actual, str) and actual.startswith(argument)
    if operator == "anything-but":
        forbidden = argument if isinstance(argument, list) else [argument]
        return not any(_alternative(each, actual) for each in forbidden)
    raise ValueError(f"operator {operator!r} is not in this matcher")
