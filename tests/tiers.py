"""Tiers of the suite: how much of it a run includes. One dial for cost marks, Hypothesis, seeds and incidents.

| Tier | Command | Includes |
|---|---|---|
| fast | `make test-fast` | tests without the marks `slow` and `full`, few examples |
| default | `make test` | tests without the mark `full` |
| full | `make test-full` | every test, many examples |

`pytest --tier TIER` selects the tier; without the option it is `default`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, settings


class Tier(StrEnum):
    """How much of the suite a run includes."""

    FAST = "fast"
    DEFAULT = "default"
    FULL = "full"


EXAMPLES = {Tier.FAST: 10, Tier.DEFAULT: 24, Tier.FULL: 400}
"""Examples of each property that has no weight."""
STEPS = {Tier.FAST: 20, Tier.DEFAULT: 25, Tier.FULL: 50}
"""Steps of each example of a state machine, at most."""
EXCLUDED_MARKS = {Tier.FAST: {"slow", "full"}, Tier.DEFAULT: {"full"}, Tier.FULL: set[str]()}
"""Marks of tests that a tier leaves out."""
_selected = [Tier.DEFAULT]


def select(tier: Tier) -> None:
    """Select the tier of this run and its Hypothesis profile.

    Examples have no deadline. They are the same in every run, except in the tier `full`, which prints how to repeat
    a failure.
    """
    _selected[:] = [tier]
    settings.register_profile(
        tier,
        max_examples=EXAMPLES[tier],
        stateful_step_count=STEPS[tier],
        deadline=None,
        derandomize=tier is not Tier.FULL,
        print_blob=tier is Tier.FULL,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile(tier)


def selected() -> Tier:
    """Return the tier of this run."""
    return _selected[0]


def scaled(*, fast: int, default: int, full: int) -> int:
    """Return the number for the tier of this run, such as a number of seeds."""
    return {Tier.FAST: fast, Tier.DEFAULT: default, Tier.FULL: full}[selected()]


def examples(weight: float) -> settings:
    """Return the profile of this run with its number of examples times `weight`, at least one.

    Most properties need no weight. A weight under 1 is for a property whose example costs 50 ms and more: an example
    that starts a server or sends requests to moto. A weight over 1 is for a property whose example costs less than
    1 ms and whose inputs rarely reach the code behind the first checks.

    Raises:
        ValueError: `weight` is not positive.
    """
    if weight <= 0:
        raise ValueError(f"the weight of a property must be positive, not {weight}")
    return settings(max_examples=max(1, round(EXAMPLES[selected()] * weight)))


def seeds(full: int, *, fast: int = 1, default: int = 4) -> list[Any]:
    """Return the numbers below `full` as parameters: the first `fast` unmarked, the others below `default` as slow."""
    marks = [() if n < fast else pytest.mark.slow if n < default else pytest.mark.full for n in range(full)]
    return [pytest.param(n, marks=mark) for n, mark in enumerate(marks)]


def sampled(values: Iterable[Any], *, fast: int = 0, default: int) -> list[Any]:
    """Return `values` as parameters, spread evenly over the tiers.

    Args:
        values: the parameters of the full tier.
        fast: number of values without a mark.
        default: number of values without the mark `full`, those of `fast` included.
    """
    every = list(values)
    plain, slow = _spread(len(every), fast), _spread(len(every), default)
    return [
        pytest.param(value, marks=() if n in plain else pytest.mark.slow if n in slow else pytest.mark.full)
        for n, value in enumerate(every)
    ]


def _spread(length: int, number: int) -> set[int]:
    """Return `number` positions of a sequence, evenly spread."""
    return {n * length // number for n in range(number)}
