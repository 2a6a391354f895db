"""The tiers of the suite: one place says how many examples, steps, seeds and incidents a test has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import tiers
from tests.tiers import EXAMPLES, STEPS, Tier

TESTS = Path(__file__).parent
EFFORT = {
    "max_examples",
    "stateful_step_count",
    "derandomize",
    "deadline",
    "database",
    "suppress_health_check",
    "phases",
}
"""What a Hypothesis profile decides."""
DECIDING = ("settings", "Settings", "register_profile")
"""Names of the calls that make a profile."""


@pytest.fixture(params=list(Tier))
def tier(request: pytest.FixtureRequest) -> Iterator[Tier]:
    """Each tier in turn; afterwards the tier of this run."""
    chosen = tiers.selected()
    tiers.select(request.param)
    yield request.param
    tiers.select(chosen)


def test_a_tier_has_its_profile(tier: Tier) -> None:
    """Examples are the same in every run, except in `full`, which says how to repeat what it found."""
    profile = settings()
    assert (profile.max_examples, profile.stateful_step_count) == (EXAMPLES[tier], STEPS[tier])
    assert profile.deadline is None
    assert (profile.derandomize, profile.print_blob) == ((False, True) if tier is Tier.FULL else (True, False))


def test_a_weight_scales_the_examples_and_nothing_else(tier: Tier) -> None:
    """At least one example stays."""
    assert tiers.examples(2.5).max_examples == 2.5 * EXAMPLES[tier]
    assert tiers.examples(0.0001).max_examples == 1
    assert repr(settings(tiers.examples(3), max_examples=EXAMPLES[tier])) == repr(settings())


@pytest.mark.parametrize("weight", [0, -1])
def test_a_property_without_examples_is_refused(weight: float) -> None:
    """It would pass whatever it says."""
    with pytest.raises(ValueError, match="must be positive"):
        tiers.examples(weight)


@pytest.mark.slow
def test_no_test_decides_its_own_number_of_examples() -> None:
    """Else there would be a dial in every file, and no tier could be made shorter."""
    found = [
        f"{path.relative_to(TESTS)}:{call.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        if path not in (Path(tiers.__file__), Path(__file__)) and _may_decide(text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and _decides(call)
    ]
    assert found == []


def _may_decide(text: str) -> bool:
    """Return whether a module has a name of such a call and a name of an effort. Only then it is parsed."""
    return any(name in text for name in DECIDING) and any(name in text for name in EFFORT)


def _decides(call: ast.Call) -> bool:
    """Return whether the call makes Hypothesis settings with an effort of their own."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in DECIDING and bool({word.arg for word in call.keywords} & EFFORT)
