"""The base of the models of requests, and the rules of their values.

Each rule has its own sentence, which the client reads if a value breaks the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

BROKEN = "broken_rule"
"""Type of the errors of these rules."""
BROKEN_NAME = "broken_name"
"""Type of the errors of a name in an object."""


class RequestModel(BaseModel):
    """Object in a request. It may have no other fields."""

    model_config = ConfigDict(extra="forbid")


class Rule:
    """Marks a value that must follow a rule: `Annotated[int, Whole(1, 16)]`.

    Args:
        schema: accepts the values that follow the rule.
        sentence: what the value must be, beginning with `must`.
        described: the rule as JSON Schema.
    """

    kind = BROKEN

    def __init__(self, schema: CoreSchema, sentence: str, described: dict[str, Any]) -> None:
        self.schema, self.sentence, self.described = schema, sentence, described

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return the schema, with the sentence as its error."""
        return core_schema.custom_error_schema(self.schema, self.kind, custom_error_message=self.sentence)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Return the schema in openapi.json."""
        return dict(self.described)


class Whole(Rule):
    """A whole number from `least` to `most`. `of` says what is counted, such as ` of seconds`."""

    def __init__(self, least: int, most: int, of: str = "") -> None:
        super().__init__(
            core_schema.int_schema(strict=True, ge=least, le=most),
            f"must be a whole number{of} from {least} to {most}",
            {"type": "integer", "minimum": least, "maximum": most},
        )


class AtLeast(Rule):
    """A whole number of at least `least`."""

    def __init__(self, least: int) -> None:
        super().__init__(
            core_schema.int_schema(strict=True, ge=least),
            f"must be a whole number of at least {least}",
            {"type": "integer", "minimum": least},
        )


class Text(Rule):
    """A text of 1 to `most` characters. `most` is None for no limit."""

    def __init__(self, sentence: str, most: int | None = None) -> None:
        bound = {} if most is None else {"maxLength": most}
        super().__init__(
            core_schema.str_schema(strict=True, min_length=1, max_length=most),
            sentence,
            {"type": "string", "minLength": 1, **bound},
        )


class Matching(Rule):
    """A text that matches a pattern as a whole. `what` describes such a text."""

    def __init__(self, pattern: re.Pattern[str], what: str) -> None:
        whole = f"^({pattern.pattern})$"
        super().__init__(
            core_schema.str_schema(strict=True, pattern=whole),
            f"must be {what}",
            {"type": "string", "pattern": whole},
        )


class Name(Rule):
    """A name in an object that matches a pattern as a whole. The error is one of the object: the name may be unfit."""

    kind = BROKEN_NAME

    def __init__(self, pattern: re.Pattern[str], sentence: str) -> None:
        whole = f"^({pattern.pattern})$"
        schema = core_schema.str_schema(strict=True, pattern=whole)
        super().__init__(schema, sentence, {"type": "string", "pattern": whole})


class Line(Rule):
    """A line of at most `most` printable characters."""

    def __init__(self, most: int) -> None:
        schema = core_schema.str_schema(strict=True, max_length=most)
        super().__init__(
            core_schema.no_info_after_validator_function(_printable, schema),
            f"must be a line of at most {most} characters",
            {"type": "string", "maxLength": most},
        )


class Choice(Rule):
    """A text that is one of `values`."""

    def __init__(self, values: Iterable[str], sentence: str = "") -> None:
        values = [str(value) for value in values]
        super().__init__(
            core_schema.literal_schema(values),
            sentence or f"must be one of {', '.join(values)}",
            {"type": "string", "enum": values},
        )


class Checked:
    """Marks a value that a function checks after the rules before it.

    Args:
        check: returns the value, or raises the error that `refusal` returns.
        missing: sentence if the value is missing, "" for that of the rules before it.
    """

    def __init__(self, check: Callable[[Any], Any], missing: str = "") -> None:
        self.check, self.missing = check, missing

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return the schema before it, with the function behind it."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))


class Read:
    """Marks a value that a function checks and converts from JSON.

    Args:
        read: returns the value, or raises the error that `refusal` returns.
        described: JSON Schema of the value.
    """

    def __init__(self, read: Callable[[Any], Any], described: dict[str, Any]) -> None:
        self.read, self.described = read, described

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        """Return the schema of the function."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        """Return the schema in openapi.json."""
        return dict(self.described)


def refusal(sentence: str) -> PydanticCustomError:
    """Return the error of a value that breaks a rule."""
    return PydanticCustomError(BROKEN, "{sentence}", {"sentence": sentence})


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError(text)
    return text
