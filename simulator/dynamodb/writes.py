"""Single writes of the DynamoDB double: the check of a request, its condition, and the item after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from simulator.dynamodb.attribute_values import Item, check_value, value_bytes
from simulator.dynamodb.conditions import parse_condition
from simulator.dynamodb.errors import DynamoError, invalid, invalid_parameter
from simulator.dynamodb.expression_parser import Values
from simulator.dynamodb.limits import NAME_BYTES_MAX, SUBSTITUTIONS_BYTES_MAX
from simulator.dynamodb.table import DynamoTable
from simulator.dynamodb.updates import Update, parse_update

CONDITION_FAILED = "The conditional request failed"


class Placeholders:
    """Names and values of the placeholders of a request, and which of them its expressions use."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Read both from the request.

        Raises:
            DynamoError: one is empty, malformed or too long.
        """
        self.names: Mapping[str, str] = request.get("ExpressionAttributeNames", {})
        self.values: Values = request.get("ExpressionAttributeValues", {})
        self._used: set[str] = set()
        for member in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            if member in request and not request[member]:
                raise invalid(f"{member} must not be empty")
        for name in (*self.names, *self.names.values(), *self.values):
            if len(name.encode()) > NAME_BYTES_MAX:
                raise invalid(
                    f"Expression attribute names and placeholders have at most {NAME_BYTES_MAX} bytes: {name}"
                )
        for value in self.values.values():
            check_value(value)
        sizes = [len(name.encode()) + len(text.encode()) for name, text in self.names.items()]
        sizes += [len(name.encode()) + value_bytes(value) for name, value in self.values.items()]
        if sum(sizes) > SUBSTITUTIONS_BYTES_MAX:
            raise invalid("The total size of the expression attribute names and values is too large")

    def use(self, kind: str, names: frozenset[str], values: frozenset[str]) -> None:
        """Record what an expression uses. Raise DynamoError if a value is not defined."""
        for name in sorted(values - set(self.values)):
            raise invalid(
                f"Invalid {kind}: An expression attribute value used in expression is not defined; "
                f"attribute value: {name}"
            )
        self._used |= names | values

    def check_used(self) -> None:
        """Raise DynamoError if a placeholder is in no expression."""
        for member, given in (("ExpressionAttributeNames", self.names), ("ExpressionAttributeValues", self.values)):
            unused = sorted(set(given) - self._used)
            if unused:
                raise invalid(f"Value provided in {member} unused in expressions: keys: {{{', '.join(unused)}}}")


class Write(NamedTuple):
    """A checked write of one item.

    Attributes:
        table: its table.
        key: the key of the item.
        old: the item before; None if there is none.
        new: the item after; None if it is deleted.
        holds: whether the condition holds.
        changed: names of the attributes that an update changes.
    """

    table: DynamoTable
    key: str
    old: Item | None
    new: Item | None
    holds: bool
    changed: frozenset[str] = frozenset()

    def apply(self) -> None:
        """Carry the write out."""
        if self.new is None:
            self.table.delete(self.key)
        elif self.new is not self.old:
            self.table.put(self.new)


def prepared(table: DynamoTable, kind: str, request: Mapping[str, Any]) -> Write:
    """Check a write and compute its outcome without carrying it out.

    Args:
        table: the table.
        kind: Put, Update, Delete or ConditionCheck.
        request: the parameters of the write.

    Raises:
        DynamoError: the request is malformed or exceeds a limit.
    """
    placeholders = Placeholders(request)
    key = table.key_of(
        table.key_in(request["Item"]) if kind == "Put" and table.key in request["Item"] else request.get("Key", {})
    )
    old = table.items.get(key)
    holds = True
    if "ConditionExpression" in request:
        condition = parse_condition("ConditionExpression", request["ConditionExpression"], placeholders.names)
        placeholders.use("ConditionExpression", condition.used_names, condition.used_values)
    update = _update_of(table, request, placeholders) if kind == "Update" else None
    placeholders.check_used()
    if "ConditionExpression" in request:
        holds = condition.holds(old or {}, placeholders.values)
    if kind == "Put":
        table.check(request["Item"])
        return Write(table, key, old, request["Item"], holds)
    if kind == "Delete":
        return Write(table, key, old, None, holds)
    if update is None or not holds:
        return Write(table, key, old, old, holds)
    new = update.apply(old or dict(request["Key"]), placeholders.values)
    table.check(new, updated=True)
    return Write(table, key, old, new, True, frozenset(update.attributes()))


def _update_of(table: DynamoTable, request: Mapping[str, Any], placeholders: Placeholders) -> Update | None:
    """Parse the update expression; None if the request has none, so that it only creates the item."""
    if "UpdateExpression" not in request:
        return parse_update_of_nothing()
    update = parse_update(request["UpdateExpression"], placeholders.names)
    placeholders.use("UpdateExpression", update.used_names, update.used_values)
    for name in table.key_attributes:
        if name in update.attributes():
            raise invalid_parameter(f"Cannot update attribute {name}. This attribute is part of the key")
    return update


def parse_update_of_nothing() -> Update:
    """Return the update that changes no attribute."""
    return Update((), frozenset(), frozenset())


def condition_failed(write: Write, request: Mapping[str, Any]) -> DynamoError:
    """Return the error for a write whose condition does not hold, with the present item if the request asks for it."""
    return DynamoError("ConditionalCheckFailedException", CONDITION_FAILED, present_item(write, request))


def present_item(write: Write, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the member `Item` of a refusal; empty if the request did not ask for it or there is no item."""
    wants_item = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
    return {"Item": dict(write.old)} if wants_item and write.old is not None else {}
