"""Report over several seeds: the mean of every figure, and the range of the figures of each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from simulator.goodput.sensitivity import by_effect

RANGED = ("ettr", "overhead", "over_own_way", "interruptions", "people_called")
"""Figures of a policy that have a range in the report, under `range`."""
SAME = ("profile", "facts", "legs", "tuned", "replay", "assumptions", "bounds")
"""Parts of a report that are equal for every seed; a profile differs in its number of failures only."""


def over_seeds(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one report with the form of `report.report` for the reports of several seeds.

    `seeds` lists the seeds. Every number is a mean, and each policy has its values by seed and its ranges.
    """
    merged = {
        name: value if name in SAME else _mean([one[name] for one in reports]) for name, value in reports[0].items()
    }
    merged["profile"] = _mean([one["profile"] for one in reports])
    effects = [sorted(one["sensitivity"]["conditions"], key=lambda row: str(row["condition"])) for one in reports]
    merged["sensitivity"]["conditions"] = by_effect(_mean(effects))
    merged["seed"] = reports[0]["seed"]
    merged["seeds"] = [one["seed"] for one in reports]
    for place, policy in enumerate(merged["policies"]):
        each = [one["policies"][place] for one in reports]
        policy["range"] = {name: _range([one[name] for one in each]) for name in RANGED}
        policy["ettr_by_seed"] = [one["ettr"] for one in each]
    return merged


def _range(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return [min(known), max(known)] if known else None


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, and of the numbers of objects and lists, place by place; of texts the first.

    A figure that some of the objects lack counts as 0 there. One that is unknown in some is the mean of the others.
    """
    known = [value for value in values if value is not None]
    if not known:
        return None
    first = known[0]
    if isinstance(first, dict):
        names = dict.fromkeys(name for value in known for name in value)
        return {name: _mean([value.get(name, _nothing(name, known)) for value in known]) for name in names}
    if isinstance(first, list):
        return [_mean(parts) for parts in zip(*known, strict=True)]
    if isinstance(first, bool | str) or all(value == first for value in known):
        return first
    return mean(known)


def _nothing(name: str, values: Sequence[Mapping[str, Any]]) -> Any:
    """Value of a figure in an object that lacks it."""
    example = next(value[name] for value in values if name in value)
    return 0 if isinstance(example, int | float) else None
