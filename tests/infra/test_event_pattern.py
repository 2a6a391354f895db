"""The matcher the rules are tested with behaves as EventBridge documents it."""

import pytest

from tests.infra.event_pattern import matches


@pytest.mark.parametrize(
    ("pattern", "event", "expected"),
    [
        ({"a": ["x", "y"]}, {"a": "y"}, True),
        ({"a": ["x", "y"]}, {"a": "z"}, False),
        ({"a": ["x"]}, {}, False),
        ({"a": ["1"]}, {"a": 1}, False),
        ({"a": [None]}, {"a": None}, True),
        ({"a": ["x"], "b": ["y"]}, {"a": "x"}, False),
        ({"a": {"b": ["x"]}}, {"a": {"b": "x", "c": 1}}, True),
        ({"a": {"b": ["x"]}}, {"a": "x"}, False),
        ({"a": {"b": ["x"]}}, {"a": [{"b": "w"}, {"b": "x"}]}, True),
        ({"a": ["x"]}, {"a": ["w", "x"]}, True),
        ({"a": ["x"]}, {"a": []}, False),
        ({"a": [{"prefix": "fam:"}]}, {"a": "fam:12"}, True),
        ({"a": [{"prefix": "fam:"}]}, {"a": "fam-2:12"}, False),
        ({"a": [{"prefix": "fam:"}]}, {}, False),
        ({"a": [{"anything-but": {"prefix": "fam:"}}]}, {"a": "fam-2:12"}, True),
        ({"a": [{"anything-but": {"prefix": "fam:"}}]}, {"a": "fam:12"}, False),
        ({"a": [{"anything-but": {"prefix": "fam:"}}]}, {}, False),
        ({"a": [{"anything-but": ["x", "y"]}]}, {"a": "y"}, False),
        ({"a": [{"exists": False}]}, {}, True),
        ({"a": [{"exists": True}]}, {"a": 0}, True),
        ({"a": {"b": [{"exists": False}]}}, {}, True),
    ],
)
def test_a_pattern_matches_as_eventbridge_documents(pattern: dict, event: dict, expected: bool) -> None:
    """One line per documented behaviour."""
    assert matches(pattern, event) is expected


def test_an_operator_unknown_to_the_matcher_is_an_error() -> None:
    """A rule that begins to use another operator must not pass untested."""
    with pytest.raises(ValueError, match="wildcard"):
        matches({"a": [{"wildcard": "*"}]}, {"a": "x"})
