"""Attribute values in DynamoDB's typed form, such as `{"S": "text"}`: validity, size, equality and order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from simulator.dynamodb.errors import invalid, invalid_parameter
from simulator.dynamodb.limits import DEPTH_MAX, DIGITS_MAX, EXPONENT_MAX, EXPONENT_MIN

Value = Mapping[str, Any]
"""A typed value: one entry, from the type to the content."""
Item = Mapping[str, Value]
"""Typed values by attribute name. Items are never changed in place."""
SCALARS = ("S", "N", "B")
"""Types that have an order, and that a key may have."""
_EXACT = Context(prec=DIGITS_MAX)
_SETS = {"SS": "S", "NS": "N", "BS": "B"}


def type_of(value: Value) -> str:
    """Return the type of a value, such as "S"."""
    return next(iter(value))


def check_item(item: Item) -> None:
    """Raise DynamoError if a value of the item is invalid."""
    for value in item.values():
        check_value(value)


def check_value(value: Value, depth: int = 0) -> None:
    """Raise DynamoError if the value is invalid: an empty set, a number out of range, or too many levels."""
    if len(value) != 1:
        raise invalid("Supplied AttributeValue has more than one datatypes set, must contain exactly one")
    kind, content = next(iter(value.items()))
    if kind == "N":
        _check_number(content)
    elif kind in _SETS:
        if not content:
            raise invalid_parameter("An string set  may not be empty" if kind == "SS" else "a set may not be empty")
        elements = [number(text) for text in content] if kind == "NS" else list(content)
        if len(set(elements)) != len(elements):
            raise invalid_parameter(f"Input collection {list(content)} contains duplicates.")
        for text in content if kind == "NS" else ():
            _check_number(text)
    elif kind in ("L", "M"):
        if depth >= DEPTH_MAX:
            raise invalid("Nesting Levels have exceeded supported limits")
        for inner in content.values() if kind == "M" else content:
            check_value(inner, depth + 1)
    elif kind not in ("S", "B", "BOOL", "NULL"):
        raise invalid(f"Supplied AttributeValue is empty, must contain exactly one of the supported datatypes: {kind}")


def _check_number(text: str) -> None:
    value = number(text)
    if len("".join(map(str, value.as_tuple().digits)).strip("0")) > DIGITS_MAX:
        raise invalid("Attempting to store more than 38 significant digits in a Number")
    if value and not EXPONENT_MIN <= value.adjusted() <= EXPONENT_MAX:
        raise invalid("Number overflow. Attempting to store a number with magnitude out of the supported range")


def number(text: str) -> Decimal:
    """Return the number that `text` stands for.

    Raises:
        DynamoError: `text` is no number.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}") from None
    if not value.is_finite():
        raise invalid(f"The parameter cannot be converted to a numeric value: {text}")
    return value


def number_value(value: Decimal) -> Value:
    """Return a number as a typed value, without an exponent and without trailing zeros."""
    return {"N": format(_EXACT.normalize(value), "f")}


def added(one: str, other: str, sign: int = 1) -> Value:
    """Return the sum of two numbers as a typed value; their difference if `sign` is -1."""
    return number_value(_EXACT.add(number(one), sign * number(other)))


def size_of(item: Item) -> int:
    """Return the size of an item in bytes, as DynamoDB bills it: names and values."""
    return sum(len(name.encode()) + value_bytes(value) for name, value in item.items())


def value_bytes(value: Value) -> int:
    """Return the size of a value in bytes. A number of n significant digits takes n/2 + 1 bytes."""
    kind, content = next(iter(value.items()))
    if kind == "S":
        return len(content.encode())
    if kind == "B":
        return len(content)
    if kind == "N":
        return _number_bytes(content)
    if kind in ("BOOL", "NULL"):
        return 1
    if kind in _SETS:
        return sum(map(_number_bytes, content)) if kind == "NS" else sum(len(_bytes(entry)) for entry in content)
    if kind == "L":
        return 3 + sum(1 + value_bytes(inner) for inner in content)
    return 3 + sum(1 + len(name.encode()) + value_bytes(inner) for name, inner in content.items())


def _number_bytes(text: str) -> int:
    return (len(text.strip("-").replace(".", "").strip("0")) + 1) // 2 + 1


def _bytes(content: Any) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


def sort_key(value: Value) -> Any:
    """Return what orders values of one scalar type: strings by their UTF-8 bytes, numbers by their size."""
    kind, content = next(iter(value.items()))
    return number(content) if kind == "N" else _bytes(content)


def same(one: Value, other: Value) -> bool:
    """Return whether two values are equal: of one type, numbers by their size, sets in any order."""
    kind, content = next(iter(one.items()))
    if kind not in other:
        return False
    against = other[kind]
    if kind == "N":
        return number(content) == number(against)
    if kind == "NS":
        return set(map(number, content)) == set(map(number, against))
    if kind in _SETS:
        return set(content) == set(against)
    if kind == "L":
        return len(content) == len(against) and all(map(same, content, against))
    if kind == "M":
        return content.keys() == against.keys() and all(same(inner, against[name]) for name, inner in content.items())
    return bool(content == against)


def ordered(one: Value, other: Value, holds: Callable[[Any, Any], bool]) -> bool:
    """Return whether `holds` is true of two values. Values of different types have no order, so it is then false."""
    kind = type_of(one)
    return kind in SCALARS and kind in other and holds(sort_key(one), sort_key(other))


def contains(whole: Value, part: Value) -> bool:
    """Return whether a string has a substring, a set an element, or a list an equal value."""
    kind, content = next(iter(whole.items()))
    part_kind, part_content = next(iter(part.items()))
    if kind in ("S", "B"):
        return part_kind == kind and part_content in content
    if kind in _SETS:
        return part_kind == _SETS[kind] and any(same({part_kind: entry}, part) for entry in content)
    return kind == "L" and any(same(inner, part) for inner in content)


def length(value: Value) -> int | None:
    """Return what the function `size` gives for a value; None for a type without a size."""
    kind, content = next(iter(value.items()))
    if kind in ("S", "B"):
        return len(_bytes(content))
    return len(content) if kind in (*_SETS, "L", "M") else None


def united(one: Value | None, other: Value) -> Value:
    """Return the result of ADD: the sum of two numbers, or the union of two sets."""
    kind, content = next(iter(other.items()))
    if kind != "N" and kind not in _SETS:
        raise invalid("Invalid UpdateExpression: Incorrect operand type for operator or function; operator: ADD")
    if one is None:
        return other
    if kind not in one:
        raise invalid("An operand in the update expression has an incorrect data type")
    if kind == "N":
        return added(one["N"], content)
    return {kind: [*one[kind], *(entry for entry in content if not contains(one, {_SETS[kind]: entry}))]}


def subtracted(one: Value, other: Value) -> Value | None:
    """Return the result of DELETE: the set without the elements of another; None if no element is left."""
    kind = type_of(other)
    if kind not in _SETS:
        raise invalid("Invalid UpdateExpression: Incorrect operand type for operator or function; operator: DELETE")
    if kind not in one:
        raise invalid("An operand in the update expression has an incorrect data type")
    left = [entry for entry in one[kind] if not contains(other, {_SETS[kind]: entry})]
    return {kind: left} if left else None
