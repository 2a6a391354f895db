"""Parser that condition, update and key condition expressions share: tokens, document paths, operands, limits.

Source of the grammar: "Expression attribute names", "Condition and filter expressions, operators, and functions" and
"Using update expressions" in DynamoDB's developer guide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simulator.dynamodb.attribute_values import Item, Value, length
from simulator.dynamodb.errors import invalid
from simulator.dynamodb.limits import EXPRESSION_BYTES_MAX, OPERATORS_MAX

RESERVED = frozenset((Path(__file__).parent / "reserved_words.txt").read_text().split())
"""Words that cannot be attribute names in an expression."""
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z][A-Za-z0-9_]*)|(?P<alias>#[A-Za-z0-9_]+)|(?P<value>:[A-Za-z0-9_]+)|(?P<index>\d+)"
    r"|(?P<sign><>|<=|>=|[=<>(),.\[\]+\-])|(?P<end>$))"
)
KEYWORDS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"})

DocumentPath = tuple[str | int, ...]
"""Names of attributes and map entries, and indexes of list elements."""
Values = Mapping[str, Value]
"""Values by placeholder."""
Operand = Callable[[Item, Values], Value | None]
"""Function that gives the value of an operand; None if the attribute does not exist."""


class Token(NamedTuple):
    """A word or sign of an expression, with its kind: name, alias, value, index, sign, keyword or end."""

    kind: str
    text: str


class Parser:
    """Parser of one expression.

    Attributes:
        used_names: placeholders of names that the expression contains.
        used_values: placeholders of values that the expression contains.
    """

    def __init__(self, kind: str, text: str, names: Mapping[str, str]) -> None:
        """Read the tokens of the expression.

        Args:
            kind: the name of the parameter, such as `ConditionExpression`, for error messages.
            text: the expression.
            names: attribute names by placeholder.

        Raises:
            DynamoError: the expression is empty or too long, or contains a sign that is unknown.
        """
        self.kind, self.names = kind, names
        self.used_names: set[str] = set()
        self.used_values: set[str] = set()
        self._operators = 0
        if not text.strip():
            raise self.refusal("The expression can not be empty;")
        if len(text.encode()) > EXPRESSION_BYTES_MAX:
            raise self.refusal(
                f"Expression size has exceeded the maximum allowed size; expression size: {len(text.encode())}"
            )
        self._tokens, self._position = list(self._read(text)), 0

    def _read(self, text: str) -> list[Token]:
        tokens: list[Token] = []
        position = 0
        while not tokens or tokens[-1].kind != "end":
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.refusal(f'Syntax error; token: "{text[position:].split(maxsplit=1)[0]}"')
            kind, word = str(match.lastgroup), match.group(str(match.lastgroup))
            if kind == "name" and word.upper() in KEYWORDS:
                kind, word = "keyword", word.upper()
            tokens.append(Token(kind, word))
            position = match.end()
        return tokens

    def refusal(self, message: str) -> Exception:
        """Return the error for this expression."""
        return invalid(f"Invalid {self.kind}: {message}")

    # -- tokens --------------------------------------------------------------------------------------------------------

    @property
    def next(self) -> Token:
        """The next token."""
        return self._tokens[self._position]

    def take(self, *texts: str) -> str | None:
        """Take the next token if it is one of `texts`. Return its text, else None."""
        token = self.next
        if token.kind in ("sign", "keyword") and token.text in texts:
            self._position += 1
            return token.text
        return None

    def expect(self, text: str) -> None:
        """Take the token `text`, or raise DynamoError."""
        if not self.take(text):
            raise self._unexpected()

    def end(self) -> None:
        """Raise DynamoError unless the expression ends here."""
        if self.next.kind != "end":
            raise self._unexpected()

    def operator(self) -> None:
        """Count an operator or function."""
        self._operators += 1
        if self._operators > OPERATORS_MAX:
            raise self.refusal(
                "The expression contains too many operators; "
                f"operator count: {self._operators}, maximum: {OPERATORS_MAX}"
            )

    def function(self) -> str | None:
        """Take the name of a function, if a parenthesis follows it. Return its name, else None."""
        token, follows = self._tokens[self._position], self._tokens[min(self._position + 1, len(self._tokens) - 1)]
        if token.kind != "name" or follows != Token("sign", "("):
            return None
        self._position += 2
        self.operator()
        return token.text

    def _unexpected(self) -> Exception:
        near = " ".join(token.text for token in self._tokens[max(self._position - 1, 0) : self._position + 2])
        return self.refusal(f'Syntax error; token: "{self.next.text or "<EOF>"}", near: "{near}"')

    # -- operands ------------------------------------------------------------------------------------------------------

    def path(self) -> DocumentPath:
        """Parse a document path, such as `a.#b[3]`."""
        parts: list[str | int] = [self._name()]
        while True:
            if self.take("."):
                parts.append(self._name())
            elif self.take("["):
                token = self._kind("index")
                parts.append(int(token.text))
                self.expect("]")
            else:
                return tuple(parts)

    def _name(self) -> str:
        token = self.next
        if token.kind == "alias":
            self._position += 1
            self.used_names.add(token.text)
            if token.text not in self.names:
                raise self.refusal(
                    "An expression attribute name used in the document path is not defined; "
                    f"attribute name: {token.text}"
                )
            return self.names[token.text]
        if token.kind == "keyword" or (token.kind == "name" and token.text.upper() in RESERVED):
            raise self.refusal(f"Attribute name is a reserved keyword; reserved keyword: {token.text}")
        return self._kind("name").text

    def placeholder(self) -> str:
        """Parse the placeholder of a value. Return it with its colon."""
        name = self._kind("value").text
        self.used_values.add(name)
        return name

    def _kind(self, kind: str) -> Token:
        token = self.next
        if token.kind != kind:
            raise self._unexpected()
        self._position += 1
        return token

    def path_or_value(self) -> Operand:
        """Parse a document path or the placeholder of a value."""
        if self.next.kind == "value":
            name = self.placeholder()
            return lambda item, values: values[name]
        path = self.path()
        return lambda item, values: value_at(item, path)

    def operand(self) -> Operand:
        """Parse an operand of a condition: a path, a placeholder or `size(path)`."""
        at = self._position
        function = self.function()
        if function is None:
            return self.path_or_value()
        if function != "size":
            self._position = at
            raise self._unexpected()
        inner = self.path_or_value()
        self.expect(")")

        def size(item: Item, values: Values) -> Value | None:
            value = inner(item, values)
            size = None if value is None else length(value)
            return None if size is None else {"N": str(size)}

        return size


def value_at(item: Item, path: DocumentPath) -> Value | None:
    """Return the value at a document path of an item; None if it does not exist."""
    here: Any = {"M": item}
    for part in path:
        content = here.get("M" if isinstance(part, str) else "L")
        if content is None:
            return None
        here = content.get(part) if isinstance(part, str) else next(iter(content[part : part + 1]), None)
        if here is None:
            return None
    found: Value = here
    return found
