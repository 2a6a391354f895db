"""Update expressions: SET, REMOVE, ADD and DELETE, parsed once for each text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from simulator.dynamodb.attribute_values import Item, Value, added, subtracted, united
from simulator.dynamodb.conditions import PARSED_MAX
from simulator.dynamodb.errors import invalid
from simulator.dynamodb.expression_parser import DocumentPath, Operand, Parser, Values, value_at

Change = Callable[[Item, Values], Value | None]
"""Function that gives the new value of a path from the old item; None removes the path."""


class Update(NamedTuple):
    """A parsed update: the changed paths, each with its change, and the placeholders that it uses."""

    changes: tuple[tuple[DocumentPath, Change], ...]
    used_names: frozenset[str]
    used_values: frozenset[str]

    def apply(self, item: Item, values: Values) -> Item:
        """Return the item after the update. All changes read the item as it was before.

        Raises:
            DynamoError: a path does not exist, or an operand has the wrong type.
        """
        new_values = [(path, change(item, values)) for path, change in self.changes]
        removed = sorted((path for path, value in new_values if value is None), key=_position, reverse=True)
        for path, value in new_values:
            if value is not None:
                item = _with(item, path, value)
        for path in removed:  # list elements from the last to the first, so that indexes stay valid
            item = _without(item, path)
        return item

    def attributes(self) -> set[str]:
        """Return the names of the top-level attributes that change."""
        return {str(path[0]) for path, _ in self.changes}


def _position(path: DocumentPath) -> tuple[int, int]:
    last = path[-1]
    return (1, last) if isinstance(last, int) else (0, 0)


def parse_update(text: str, names: Mapping[str, str]) -> Update:
    """Parse an update expression.

    Raises:
        DynamoError: the expression is malformed, exceeds a limit, or changes a path twice.
    """
    return _parsed(text, tuple(sorted(names.items())))


@lru_cache(PARSED_MAX)
def _parsed(text: str, names: tuple[tuple[str, str], ...]) -> Update:
    parser = Parser("UpdateExpression", text, dict(names))
    changes: list[tuple[DocumentPath, Change]] = []
    seen: set[str] = set()
    while parser.next.kind != "end":
        section = parser.take(*_SECTIONS)
        if section is None:
            parser.expect("SET")
        if section in seen:
            raise parser.refusal(f'The "{section}" section can only be used once in an update expression;')
        seen.add(str(section))
        changes.append(_SECTIONS[str(section)](parser))
        while parser.take(","):
            changes.append(_SECTIONS[str(section)](parser))
    _check_paths(parser, [path for path, _ in changes])
    return Update(tuple(changes), frozenset(parser.used_names), frozenset(parser.used_values))


def _check_paths(parser: Parser, paths: list[DocumentPath]) -> None:
    """Raise DynamoError if a path is, or contains, another path of the expression."""
    known = set(paths)
    if len(known) < len(paths) or any(path[:n] in known for path in paths for n in range(1, len(path))):
        raise parser.refusal("Two document paths overlap with each other; must remove or rewrite one of these paths;")


def _set(parser: Parser) -> tuple[DocumentPath, Change]:
    path = parser.path()
    parser.expect("=")
    return path, _required(_sum(parser))


def _required(operand: Operand) -> Change:
    def change(item: Item, values: Values) -> Value:
        value = operand(item, values)
        if value is None:
            raise invalid("The provided expression refers to an attribute that does not exist in the item")
        return value

    return change


def _sum(parser: Parser) -> Operand:
    left = _term(parser)
    sign = parser.take("+", "-")
    if sign is None:
        return left
    parser.operator()
    right = _term(parser)

    def total(item: Item, values: Values) -> Value:
        one, other = _required(left)(item, values), _required(right)(item, values)
        if one is None or other is None or "N" not in one or "N" not in other:
            raise invalid("An operand in the update expression has an incorrect data type")
        return added(one["N"], other["N"], 1 if sign == "+" else -1)

    return total


def _term(parser: Parser) -> Operand:
    function = parser.function()
    if function is None:
        return parser.path_or_value()
    if function == "if_not_exists":
        path = parser.path()
        parser.expect(",")
        default = _term(parser)
        parser.expect(")")

        def present_or_default(item: Item, values: Values) -> Value | None:
            value = value_at(item, path)
            return default(item, values) if value is None else value

        return present_or_default
    if function == "list_append":
        first = _term(parser)
        parser.expect(",")
        second = _term(parser)
        parser.expect(")")

        def joined(item: Item, values: Values) -> Value:
            one, other = _required(first)(item, values), _required(second)(item, values)
            if one is None or other is None or "L" not in one or "L" not in other:
                raise invalid("An operand in the update expression has an incorrect data type")
            return {"L": [*one["L"], *other["L"]]}

        return joined
    raise parser.refusal(f"Invalid function name; function: {function}")


def _remove(parser: Parser) -> tuple[DocumentPath, Change]:
    return parser.path(), lambda item, values: None


def _add(parser: Parser) -> tuple[DocumentPath, Change]:
    path = parser.path()
    name = parser.placeholder()
    return path, lambda item, values: united(value_at(item, path), values[name])


def _delete(parser: Parser) -> tuple[DocumentPath, Change]:
    path = parser.path()
    name = parser.placeholder()

    def change(item: Item, values: Values) -> Value | None:
        present = value_at(item, path)
        return None if present is None else subtracted(present, values[name])

    return path, change


_SECTIONS: dict[str, Callable[[Parser], tuple[DocumentPath, Change]]] = {
    "SET": _set,
    "REMOVE": _remove,
    "ADD": _add,
    "DELETE": _delete,
}


# -- changed copies ----------------------------------------------------------------------------------------------------


def _with(item: Item, path: DocumentPath, value: Value) -> Item:
    """Return the item with another value at `path`. The containers on the way are copied."""
    changed: Item = _changed({"M": item}, path, value)["M"]
    return changed


def _without(item: Item, path: DocumentPath) -> Item:
    """Return the item without `path`; unchanged if the path does not exist."""
    if value_at(item, path) is None:
        return item
    changed: Item = _changed({"M": item}, path, None)["M"]
    return changed


def _changed(here: Any, path: DocumentPath, value: Value | None) -> Any:
    part, kind = path[0], "M" if isinstance(path[0], str) else "L"
    if here is None or kind not in here:
        raise invalid("The document path provided in the update expression is invalid for update")
    copy: Any = dict(here["M"]) if kind == "M" else list(here["L"])
    if len(path) > 1:
        inner = copy.get(part) if isinstance(part, str) else (copy[part] if part < len(copy) else None)
        copy[part] = _changed(inner, path[1:], value)
    elif value is None:
        del copy[part]
    elif isinstance(part, int) and part >= len(copy):
        copy.append(value)
    else:
        copy[part] = value
    return {kind: copy}
