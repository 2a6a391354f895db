"""Patterns, taken apart: texts that they fit, and what of them repeats."""

from __future__ import annotations

from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

CATEGORIES = {codes.CATEGORY_DIGIT: "1", codes.CATEGORY_SPACE: " "}


def wordings(pattern: str) -> Iterator[str]:
    """Each alternative once, with the first of every other; what may repeat no times is left out."""
    yield from _all(parser.parse(pattern))


def _all(items: Any) -> list[str]:
    found = [""]
    for code, value in items:
        options = _options(code, value)
        found = [found[0] + one for one in options] + [one + options[0] for one in found[1:]]
    return found


def _options(code: Any, value: Any) -> list[str]:
    if code is codes.LITERAL:
        return [chr(value)]
    if code is codes.BRANCH:
        return [one for branch in value[1] for one in _all(branch)]
    if code is codes.SUBPATTERN:
        return _all(value[3])
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, _, what = value
        return [one * least for one in _all(what)] if least else [""]
    if code is codes.IN:
        return [_member(*value[0])]
    return ["x"] if code in (codes.ANY, codes.NOT_LITERAL) else [""]


def _member(code: Any, value: Any) -> str:
    if code is codes.LITERAL:
        return chr(value)
    if code is codes.RANGE:
        return chr(value[0])
    return "x" if code is codes.NEGATE else CATEGORIES.get(value, "a")


def repeats_within_repeats(pattern: str) -> bool:
    """Whether anything that repeats without a bound holds something that does."""
    return _nested(parser.parse(pattern), within=False)


def _nested(items: Any, *, within: bool) -> bool:
    for code, value in items:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            endless = value[1] is codes.MAXREPEAT
            if (endless and within) or _nested(value[2], within=within or endless):
                return True
        parts = {codes.BRANCH: lambda v: v[1], codes.SUBPATTERN: lambda v: [v[3]], codes.ASSERT: lambda v: [v[1]]}
        if code in parts and any(_nested(part, within=within) for part in parts[code](value)):
            return True
    return False
