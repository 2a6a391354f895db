"""Ranges of ranks: read within bounds, never expanded."""

from __future__ import annotations

import pytest
from gpu_recovery.core.diagnosis.observation_codec import observed
from gpu_recovery.core.diagnosis.observations import FlightReport
from gpu_recovery.core.diagnosis.rank_ranges import TEXT_MAX, parsed


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("", []),
        ("7", [7]),
        ("0-3", [0, 1, 2, 3]),
        ("0-12/4", [0, 4, 8, 12]),
        ("0-1,8-9,13", [0, 1, 8, 9, 13]),
    ],
)
def test_ranges_are_read(text: str, ranks: list[int]) -> None:
    """In their order, by name and by number."""
    found = parsed(text)
    assert found is not None and (list(found), len(found)) == (ranks, len(ranks))
    assert all(rank in found for rank in ranks) and 5 not in found


@pytest.mark.parametrize(
    "text", ["3-1", "0-9/0", "-1", "1,", "a", "1-2-3", "0-9999999", "１", " 1", "1" + ",1" * TEXT_MAX]
)
def test_other_texts_are_no_ranges(text: str) -> None:
    """A negative, backwards, endless or too long range."""
    assert parsed(text) is None


@pytest.mark.parametrize("size", [32, 33, 64, 256, 48_000])
def test_a_group_of_any_size_is_kept(size: int) -> None:
    """Its ranks are a text; a list is kept as well where it fits into a report."""
    told = {"type": "flight", "id": "f", "job": "run-1", "attempt": 1, "rank": size - 1, "group": "0"}
    found, left_out = observed("i-1", [told | {"member_ranges": f"0-{size - 1}"}])
    assert left_out == 0 and isinstance(found[0].report, FlightReport)
    assert found[0].report.member_ranges == f"0-{size - 1}"
    if size <= 1_024:
        found, left_out = observed("i-1", [told | {"members": list(range(size))}])
        assert left_out == 0 and isinstance(found[0].report, FlightReport)
        assert found[0].report.members == tuple(range(size))


def test_a_text_that_is_no_range_is_unknown_and_costs_not_the_report() -> None:
    """A text that is cut would name other ranks."""
    told = {"type": "flight", "id": "f", "job": "run-1", "attempt": 1, "group": "0", "member_ranges": "0-9," * 400}
    found, left_out = observed("i-1", [told])
    assert left_out == 0 and isinstance(found[0].report, FlightReport)
    assert found[0].report.member_ranges == ""
