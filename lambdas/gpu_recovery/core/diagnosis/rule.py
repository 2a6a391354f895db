"""Diagnosis rule: a row of the fault catalogue, with its two sentences and the observations it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope
from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass()
class Match:
    """One match of a rule.

    cause: the cause that the match supports; None if the match is only a note.
    weight: support for the cause, in log-odds (`taxonomy.Weight`).
    evidence: report ids of the observations that show the match.
    values: values that the two sentences name.
    follows: the match is a consequence of another fault. It ranks below every match that is not a consequence.
    """

    cause: Cause | None
    scope: Scope = JOB
    weight: float = 0.0
    evidence: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    follows: bool = False


@frozen_dataclass()
class Rule:
    """One row of the catalogue.

    row: number of the mechanism in the fault catalogue (docs/diagnosis.md), with a letter if the mechanism has several
        rules.
    english, chinese: format strings over the values of a match.
    needs: types of observations that the rule reads.
    source: origin of the rule.
    """

    row: str
    english: str
    chinese: str
    needs: tuple[type[Observation], ...]
    find: Callable[[Case], Iterable[Match]]
    source: str = "seed 002"


@frozen_dataclass()
class RuleFinding:
    """A match with its sentences in both languages."""

    row: str
    cause: Cause | None
    scope: Scope
    weight: float
    follows: bool
    english: str
    chinese: str
    evidence: tuple[str, ...]


def findings(rules: Iterable[Rule], case: Case) -> tuple[RuleFinding, ...]:
    """Matches of the rules in the case, sorted by row and scope.

    A rule is skipped if the case has no observation of the types in `rule.needs`.
    """
    matches = [
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
    return tuple(
        sorted(matches, key=lambda finding: (_order(finding.row), finding.scope, finding.english, finding.evidence))
    )


def _order(row: str) -> tuple[int, str]:
    digits = row.rstrip("abcdefghijklmnopqrstuvwxyz+")
    return (int(digits) if digits.isdigit() else 1_000, row)
