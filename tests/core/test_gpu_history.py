"""GPU history: what is kept of an inventory, and how samples are thinned."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core.gpu_history import GPUS_MAX, Sample, sample_in, sample_text, thinned
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
READING = {
    "index": 0,
    "utilization": 97,
    "temperature": 62,
    "memory_temperature": 71,
    "power_mw": 387_400,
    "memory": {"total": 85_899_345_920, "used": 70_866_960_384},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from([*READING, "used", "gpus"]), each),
    max_leaves=12,
)


def at(minutes: float) -> datetime:
    """Minutes after the present."""
    return NOW + timedelta(minutes=minutes)


def test_a_reading_is_kept_in_percent_degrees_watts_and_mib() -> None:
    """A gauge that was not read is None."""
    text = sample_text({"gpus": [READING, {"utilization": 0}]})
    assert text is not None
    assert sample_in(NOW, text).gpus == ((97, 62, 71, 387, 67_584), (0, None, None, None, None))


@pytest.mark.parametrize("inventory", [{}, {"gpus": []}, {"gpus": [{"uuid": "GPU-1"}]}, {"gpus": "many"}])
def test_an_inventory_without_gauges_is_not_kept(inventory: dict[str, Any]) -> None:
    """An item without a value costs as much as another."""
    assert sample_text(inventory) is None


def test_a_sample_of_32_gpus_is_one_write_unit() -> None:
    """Less than 1 kB with the key, whatever the numbers are."""
    large = {"utilization": 100, "temperature": 105, "memory_temperature": 105, "power_mw": 1_200_000}
    memory = {"used": 206_158_430_208}
    text = sample_text({"gpus": [{**large, "memory": memory}] * 40})
    assert text is not None and len(json.loads(text)) == GPUS_MAX
    assert len(text) + 120 < 1_024


@given(inventory=st.dictionaries(st.sampled_from(["gpus", "agent"]), JSON | st.lists(JSON, max_size=4)))
def test_whatever_an_agent_sends_the_text_can_be_read_again(inventory: dict[str, Any]) -> None:
    """No inventory raises."""
    text = sample_text(inventory)
    if text is not None:
        assert len(sample_in(NOW, text).gpus) <= GPUS_MAX


@pytest.mark.parametrize("text", ["{}", "[1]", "[[1]]", "nothing"])
def test_a_text_of_another_form_is_no_sample(text: str) -> None:
    """A later release may write one."""
    with pytest.raises(ValueError):
        sample_in(NOW, text)


def test_a_bucket_has_the_least_and_the_largest_value() -> None:
    """An hour in two buckets; the second has one sample with a GPU more."""
    one, other = (10, 60, None, 300, 5), (90, 70, None, 400, 5)
    samples = [Sample(at(0), (one,)), Sample(at(29), (other,)), Sample(at(30), (one, other)), Sample(at(60), (other,))]
    first, second = thinned(reversed(samples), at(0), at(60), 2)
    assert (first.at, first.least, first.most) == (at(0), (one,), (other,))
    assert (second.at, second.least, second.most) == (at(30), (one, other), (one, other))


@given(
    minutes=st.lists(st.integers(0, 10_079), max_size=60, unique=True),
    points=st.integers(1, 600),
)
def test_thinning_keeps_the_extremes_and_the_bound(minutes: list[int], points: int) -> None:
    """At most as many buckets as asked for, in the order of time."""
    samples = [Sample(at(minute), ((minute, None, None, None, None),)) for minute in minutes]
    buckets = thinned(samples, at(0), at(10_080), points)
    assert len(buckets) <= points and [one.at for one in buckets] == sorted(one.at for one in buckets)
    if minutes:
        assert min(one.least[0][0] or 0 for one in buckets) == min(minutes)
        assert max(one.most[0][0] or 0 for one in buckets) == max(minutes)
