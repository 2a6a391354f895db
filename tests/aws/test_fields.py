"""Reading the fields of a document quickly finds what reading them one by one finds, and the same mistakes."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.fields import EventUnreadable, Fields
from hypothesis import example, given
from hypothesis import strategies as st

TEXTS = st.one_of(
    st.sampled_from(["JOB_ID", "RANK", "", "\ud800", "ä", "x" * 9_000, "x" * 5_000]),
    st.none(),
    st.integers(),
    st.booleans(),
)
PAIRS = st.one_of(st.dictionaries(st.sampled_from(["name", "value", "other"]), TEXTS), st.none(), st.just("text"))
LISTS = st.one_of(st.lists(PAIRS, max_size=5), st.none(), st.just("no list"))


def answer(read: Any) -> Any:
    """What `read` answers, or what it finds unreadable and why."""
    try:
        return read()
    except EventUnreadable as error:
        return error.field, error.problem


@example([{"name": "A", "value": 5}, {"name": "A", "value": "x"}])
@example([{"name": "A", "value": "\ud800"}, {"name": "A", "value": "x"}])
@example([{"name": "A", "value": "x" * 9_000}, {"name": "A", "value": "x"}])
@example([{"value": 5}, {}])
@given(LISTS)
def test_pairs_are_what_they_are_one_by_one(listed: Any) -> None:
    """The same mapping, or the same error about the same place."""
    told = Fields({"environment": listed}, "overrides")
    slow = answer(lambda: {one.text("name"): one.text("value") for one in told.each("environment")})
    assert answer(lambda: told.pairs("environment")) == slow


@given(st.one_of(st.lists(TEXTS, max_size=5), st.none()))
def test_texts_are_what_they_are_one_by_one(listed: Any) -> None:
    """The same texts, or the same error about the same place."""
    told = Fields({"command": listed})
    slow = answer(
        lambda: tuple(Fields({f"command[{n}]": one}).text(f"command[{n}]") for n, one in enumerate(listed or []))
    )
    assert answer(lambda: told.texts("command")) == slow


@example([{"name": "RANK", "value": "1"}, {"name": "RANK", "value": "2"}])
@example([{"name": "RANK"}, "no object"])
@given(LISTS)
def test_the_first_is_the_first_of_all(listed: Any) -> None:
    """The same object, or the same error, as by looking through all of them in order."""

    def slow() -> Any:
        for one in told.each("resources"):
            if one.text("name") == "RANK":
                return one
        return None

    told = Fields({"resources": listed})
    assert answer(lambda: told.first("resources", "name", "RANK")) == answer(slow)


@pytest.mark.parametrize("value", ["plain", "", "ä\u2028", "x" * 8_192])
def test_a_text_is_itself(value: str) -> None:
    """Plain or not."""
    assert Fields({"name": value}).text("name") == value
