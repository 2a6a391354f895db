"""Real documents with something wrong at a random place: what a sender, a tool or a hand may do to an event."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

HALF_A_CHARACTER = "\ud800"
DEPTH = 300
ODD: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**31,
    -(2**63) - 1,
    10**40,
    10**400,
    0.5,
    -0.0,
    math.nan,
    math.inf,
    "",
    " ",
    "0",
    "-1",
    "NaN",
    "null",
    "9" * 5_000,
    "x" * 70_000,
    HALF_A_CHARACTER,
    f"a{HALF_A_CHARACTER}",
    "\x00",
    "\u0663",
    "é",
    "\U0001d518",
    "a#b",
    "a/b",
    "../..",
    "arn:aws:ecs",
    "/",
    [],
    {},
    [[]],
    [None],
    [{}],
    {"": ""},
    [1, "a", None, {}],
    {"name": "RANK"},
]


def nested(depth: int = DEPTH) -> Any:
    """Lists in lists."""
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def odd_values() -> st.SearchStrategy[Any]:
    """A value that no field expects; the listed ones first, then anything that JSON can spell."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20)
    anything = st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
    )
    return st.sampled_from(ODD) | anything | st.builds(nested)


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a document, at every depth."""
    keys = document.keys() if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in list(keys):
        yield document, key
        yield from places(document[key])


def _replaced(holder: Any, key: Any, draw: Callable[..., Any]) -> None:
    holder[key] = draw(odd_values())


def _dropped(holder: Any, key: Any, draw: Callable[..., Any]) -> None:
    del holder[key]


def _renamed(holder: Any, key: Any, draw: Callable[..., Any]) -> None:
    if isinstance(holder, dict):
        holder[draw(st.sampled_from([key.upper(), f"{key} ", f"x{key}", ""]))] = holder.pop(key)


def _wrapped(holder: Any, key: Any, draw: Callable[..., Any]) -> None:
    holder[key] = draw(st.sampled_from([[holder[key]], {key: holder[key]}, [holder[key], holder[key]]]))


def _spelt(holder: Any, key: Any, draw: Callable[..., Any]) -> None:
    """A number as a text, a text with blanks or beyond every length."""
    value = holder[key]
    if isinstance(value, str):
        holder[key] = draw(st.sampled_from([f" {value}", f"{value}\n", value * 2_000, value + HALF_A_CHARACTER]))
    else:
        holder[key] = str(value)


def _multiplied(holder: Any, key: Any, draw: Callable[..., Any]) -> None:
    if isinstance(holder[key], list):
        holder[key] = holder[key] * draw(st.integers(2, 300))


def _swapped(holder: Any, key: Any, draw: Callable[..., Any]) -> None:
    """Two fields with each other's values."""
    if isinstance(holder, dict):
        other = draw(st.sampled_from(sorted(holder)))
        holder[key], holder[other] = holder[other], holder[key]


CHANGES = (_replaced, _replaced, _dropped, _renamed, _wrapped, _spelt, _multiplied, _swapped)


@st.composite
def mutated(draw: Callable[..., Any], documents: list[Any], most: int = 3) -> Any:
    """One of `documents` with one to `most` changes; once in a while something else altogether."""
    if draw(st.integers(0, 29)) == 0:
        return draw(odd_values())
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.integers(1, most))):
        found = list(places(document))
        if found:
            holder, key = found[draw(st.integers(0, len(found) - 1))]
            draw(st.sampled_from(CHANGES))(holder, key, draw)
    return document
