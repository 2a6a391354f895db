"""Condition expressions, filter expressions and key condition expressions, parsed once for each text."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from simulator.dynamodb.attribute_values import Item, contains, ordered, same, type_of
from simulator.dynamodb.expression_parser import Operand, Parser, Values, value_at
from simulator.dynamodb.limits import IN_OPERANDS_MAX

Test = Callable[[Item, Values], bool]
"""Function that says whether a condition holds for an item."""
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COMPARATORS = ("=", "<>", *_ORDERS)
PARSED_MAX = 4_096
"""Number of parsed expressions that are kept."""


class Condition(NamedTuple):
    """A parsed condition, with the placeholders that it uses."""

    holds: Test
    used_names: frozenset[str]
    used_values: frozenset[str]


class KeyCondition(NamedTuple):
    """A parsed key condition.

    Attributes:
        partition: name of the partition key's attribute.
        value: placeholder of its value.
        sort: name of the sort key's attribute; None without a condition on it.
        holds: the whole condition.
    """

    partition: str
    value: str
    sort: str | None
    condition: Condition


def parse_condition(kind: str, text: str, names: Mapping[str, str]) -> Condition:
    """Parse a condition.

    Args:
        kind: the name of the parameter, for error messages.
        text: the expression.
        names: attribute names by placeholder.

    Raises:
        DynamoError: the expression is malformed or exceeds a limit.
    """
    return _parsed(kind, text, tuple(sorted(names.items())))


@lru_cache(PARSED_MAX)
def _parsed(kind: str, text: str, names: tuple[tuple[str, str], ...]) -> Condition:
    parser = Parser(kind, text, dict(names))
    holds = _disjunction(parser)
    parser.end()
    return Condition(holds, frozenset(parser.used_names), frozenset(parser.used_values))


def _disjunction(parser: Parser) -> Test:
    terms = [_conjunction(parser)]
    while parser.take("OR"):
        parser.operator()
        terms.append(_conjunction(parser))
    return terms[0] if len(terms) == 1 else lambda item, values: any(term(item, values) for term in terms)


def _conjunction(parser: Parser) -> Test:
    terms = [_negation(parser)]
    while parser.take("AND"):
        parser.operator()
        terms.append(_negation(parser))
    return terms[0] if len(terms) == 1 else lambda item, values: all(term(item, values) for term in terms)


def _negation(parser: Parser) -> Test:
    if parser.take("NOT"):
        parser.operator()
        inner = _negation(parser)
        return lambda item, values: not inner(item, values)
    if parser.take("("):
        inner = _disjunction(parser)
        parser.expect(")")
        return inner
    return _function(parser) or _comparison(parser)


def _function(parser: Parser) -> Test | None:
    """Parse a call of a function that is a condition; None if none follows."""
    if parser.next.text not in _FUNCTIONS:
        return None
    name = parser.function()
    if name is None:
        return None
    if name in ("attribute_exists", "attribute_not_exists"):
        path, exists = parser.path(), name == "attribute_exists"
        parser.expect(")")
        return lambda item, values: (value_at(item, path) is not None) is exists
    left = parser.path_or_value()
    parser.expect(",")
    right = parser.path_or_value()
    parser.expect(")")
    test = _FUNCTIONS[name]

    def holds(item: Item, values: Values) -> bool:
        one, other = left(item, values), right(item, values)
        return one is not None and other is not None and test(one, other)

    return holds


def _begins_with(one: Any, other: Any) -> bool:
    kind = type_of(one)
    return kind in ("S", "B") and kind in other and one[kind].startswith(other[kind])


_FUNCTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "attribute_exists": operator.is_,
    "attribute_not_exists": operator.is_not,
    "begins_with": _begins_with,
    "contains": contains,
    "attribute_type": lambda one, other: other.get("S") == type_of(one),
}
"""Functions that are conditions. The first two take a path and are handled apart."""


def _comparison(parser: Parser) -> Test:
    left = parser.operand()
    if parser.take("BETWEEN"):
        parser.operator()
        low = parser.operand()
        parser.expect("AND")
        high = parser.operand()
        at_least, at_most = _compared(left, ">=", low), _compared(left, "<=", high)
        return lambda item, values: at_least(item, values) and at_most(item, values)
    if parser.take("IN"):
        parser.operator()
        return _member(parser, left)
    sign = parser.take(*_COMPARATORS)
    if sign is None:
        parser.expect("=")
    parser.operator()
    return _compared(left, str(sign), parser.operand())


def _member(parser: Parser, left: Operand) -> Test:
    parser.expect("(")
    tests = [_compared(left, "=", parser.operand())]
    while parser.take(","):
        tests.append(_compared(left, "=", parser.operand()))
    parser.expect(")")
    if len(tests) > IN_OPERANDS_MAX:
        raise parser.refusal(f"The IN operator is provided with too many operands; number of operands: {len(tests)}")
    return lambda item, values: any(test(item, values) for test in tests)


def _compared(left: Operand, sign: str, right: Operand) -> Test:
    """Return the test of a comparator. A value that does not exist is equal to no value, and different from each."""

    def holds(item: Item, values: Values) -> bool:
        one, other = left(item, values), right(item, values)
        if one is None or other is None:
            return sign == "<>" and one is not other
        if sign in _ORDERS:
            return ordered(one, other, _ORDERS[sign])
        return same(one, other) is (sign == "=")

    return holds


# -- key conditions ----------------------------------------------------------------------------------------------------


def parse_key_condition(text: str, names: Mapping[str, str]) -> KeyCondition:
    """Parse a key condition: the equality of the partition key, and at most one condition on the sort key.

    Raises:
        DynamoError: the expression is malformed.
    """
    return _key_parsed(text, tuple(sorted(names.items())))


@lru_cache(PARSED_MAX)
def _key_parsed(text: str, names: tuple[tuple[str, str], ...]) -> KeyCondition:
    parser = Parser("KeyConditionExpression", text, dict(names))
    partition, value, sort = _partition_term(parser), "", None
    parser.expect("=")
    value = parser.placeholder()
    if parser.take("AND"):
        sort = _sort_term(parser)
    parser.end()
    return KeyCondition(partition, value, sort, _parsed("KeyConditionExpression", text, names))


def _partition_term(parser: Parser) -> str:
    path = parser.path()
    if len(path) != 1 or not isinstance(path[0], str):
        raise parser.refusal("KeyConditionExpressions cannot have conditions on nested attributes")
    return path[0]


def _sort_term(parser: Parser) -> str:
    """Parse the condition on the sort key. Return the name of its attribute."""
    if parser.function() == "begins_with":
        name = _partition_term(parser)
        parser.expect(",")
        parser.placeholder()
        parser.expect(")")
        return name
    name = _partition_term(parser)
    if parser.take("BETWEEN"):
        parser.placeholder()
        parser.expect("AND")
        parser.placeholder()
    elif parser.take("=", *_ORDERS):
        parser.placeholder()
    else:
        raise parser.refusal("Invalid operator used in KeyConditionExpression")
    return name
