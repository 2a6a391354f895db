"""Readers turn one raw context value into a typed one, or say in a sentence what is wrong with it.

`cdk.json` brings JSON values and `cdk -c key=value` brings text, so each reader takes both. A reader knows nothing
about which setting it reads; the settings put the key in front of its message.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

Reader = Callable[[Any], Any]


def text(pattern: str, meaning: str) -> Reader:
    """Text that matches `pattern` as a whole; `meaning` is what the error calls it."""
    expected = re.compile(pattern)

    def read(raw: Any) -> str:
        if not isinstance(raw, str) or not expected.fullmatch(raw):
            raise ValueError(f"{raw!r} is not {meaning}")
        return raw

    return read


def one_of(*allowed: str) -> Reader:
    def read(raw: Any) -> str:
        if raw not in allowed:
            raise ValueError(f"{raw!r} is none of {', '.join(allowed)}")
        return str(raw)

    return read


def integer(low: int, high: int) -> Reader:
    """A whole number with low <= n <= high; `true` is not 1."""

    def read(raw: Any) -> int:
        value = int(raw) if isinstance(raw, str) and re.fullmatch(r"-?\d+", raw) else raw
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # jsii hands every JSON number over as a double
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"{raw!r} is not a whole number from {low} to {high}")
        return value

    return read


def integer_of(allowed: tuple[int, ...]) -> Reader:
    within = integer(min(allowed), max(allowed))

    def read(raw: Any) -> int:
        value = within(raw)
        if value not in allowed:
            raise ValueError(f"{raw!r} is none of {', '.join(map(str, allowed))}")
        return int(value)

    return read


def boolean(raw: Any) -> bool:
    if raw in (True, "true"):
        return True
    if raw in (False, "false"):
        return False
    raise ValueError(f"{raw!r} is neither true nor false")


def items(each: Reader) -> Reader:
    """A list without repetition: JSON, or text with commas between the items."""

    def read(raw: Any) -> tuple[Any, ...]:
        values = _from_json(raw) if isinstance(raw, str) and raw.lstrip().startswith("[") else raw
        if isinstance(values, str):
            values = [part.strip() for part in values.split(",") if part.strip()]
        if not isinstance(values, list | tuple):
            raise ValueError(f"{raw!r} is not a list")
        found = tuple(each(value) for value in values)
        if len(set(found)) != len(found):
            raise ValueError(f"{raw!r} names something twice")
        return found

    return read


def thresholds(raw: Any) -> Mapping[str, Any]:
    """An object of policy fields, {"attempts_max": 3}; values are numbers, booleans or text."""
    values = _from_json(raw) if isinstance(raw, str) else raw
    if not isinstance(values, Mapping):
        raise ValueError(f"{raw!r} is not an object")
    for name, value in values.items():
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name == "preset":
            raise ValueError(f"{name!r} cannot be the name of a threshold")
        if not isinstance(value, bool | int | float | str):
            raise ValueError(f"{name} is {value!r}: a threshold is a number, a boolean or text")
    return dict(sorted((name, _whole(value)) for name, value in values.items()))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _from_json(raw: str) -> Any:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise ValueError(f"{raw!r} is not JSON ({error})") from error
