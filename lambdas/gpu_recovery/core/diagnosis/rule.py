"""What a rule is: one row of the catalogue, with its sentences and the reports it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope


@dataclass(frozen=True)
class Match:
    """What a rule has found.

    cause:   None where it only says something, and speaks for nobody.
    weight:  how much it speaks for its cause (`taxonomy.Weight`).
    follows: it is a consequence of something else: while anything is found that is not, it anchors no verdict.
    values:  what the sentences name.
    evidence: the ids of the reports that show it.
    """

    cause: Cause | None
    scope: Scope = JOB
    weight: float = 0.0
    evidence: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    follows: bool = False


@dataclass(frozen=True)
class Rule:
    """One row. `row` is the number of the mechanism in seed 002's catalogue, with a letter where it has several.

    english, chinese: the sentence, a format string over a match's values. needs: the kinds of report it reads.
    """

    row: str
    english: str
    chinese: str
    needs: tuple[type[Observation], ...]
    find: Callable[[Case], Iterable[Match]]
    source: str = "seed 002"


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """A match, said."""

    row: str
    cause: Cause | None
    scope: Scope
    weight: float
    follows: bool
    english: str
    chinese: str
    evidence: tuple[str, ...]


def findings(rules: Iterable[Rule], case: Case) -> tuple[RuleFinding, ...]:
    """What the rules find in the case, by rows and scopes. A rule without any of its reports is not asked."""
    found = [
        RuleFinding(
            rule.row,
            match.cause,
            match.scope,
            match.weight,
            match.follows,
            rule.english.format(**match.values),
            rule.chinese.format(**match.values),
            tuple(sorted(set(match.evidence))),
        )
        for rule in rules
        if any(case.all(kind) for kind in rule.needs)
        for match in rule.find(case)
    ]
    return tuple(sorted(found, key=lambda one: (_order(one.row), one.scope, one.english, one.evidence)))


def _order(row: str) -> tuple[int, str]:
    digits = row.rstrip("abcdefghijklmnopqrstuvwxyz+")
    return (int(digits) if digits.isdigit() else 1_000, row)
