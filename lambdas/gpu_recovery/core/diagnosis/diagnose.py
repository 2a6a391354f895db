"""From reports to a verdict. Pure: the same reports, in whatever order, give the same diagnosis.

Each match of a rule adds its weight, in log-odds, to the hypothesis (cause, scope) that it speaks for, and to nobody
else's loss: more evidence for a hypothesis never lowers its rank. What only follows from something else ranks below
everything that does not. How sure the first one is: its share against its rivals, and against what nobody thought of.
A cause rivals another once, by the strongest of its places, however many those are: when one GPU fails, a thousand
ranks that wait for it are not a thousand rivals. Its places then share what the cause has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case, History, Topology
from gpu_recovery.core.diagnosis.catalogue import RULES
from gpu_recovery.core.diagnosis.hypothesis import Hypothesis
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.probes import next_probe
from gpu_recovery.core.diagnosis.remedies import remedy_for
from gpu_recovery.core.diagnosis.rule import Rule, RuleFinding, findings
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Probe, Remedy, Scope, ScopeKind, Weight
from gpu_recovery.core.diagnosis.thresholds import Thresholds

RIVALS_MAX = 5
BLAMES_INSTANCES = frozenset({Cause.GPU_FAULT, Cause.NODE_FAULT, Cause.DRIVER, Cause.RDMA, Cause.STRAGGLER})
"""The causes that a machine with a history is likelier to be the place of."""
LEMON_WEIGHT = Weight.WEAK
UNKNOWN_CAUSE_WEIGHT = 2.2
"""The share of what nobody has thought of: a hint alone, or a weak sign, decides nothing."""
CERTAIN = 0.99
"""No verdict is surer than this (row 35): a rival is always thinkable."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The verdict. `confidence` is between 0 and 1; `next_probe` is None where it is decided.

    said: what was found that speaks for no cause. version: of the thresholds it was made under.
    """

    cause: Cause
    scope: Scope
    remedy: Remedy
    confidence: float
    decided: bool
    evidence: tuple[str, ...]
    findings: tuple[RuleFinding, ...]
    rivals: tuple[Hypothesis, ...]
    next_probe: Probe | None
    findings_sentence: tuple[RuleFinding, ...]
    version: str


def diagnose(
    reports: Iterable[Observation],
    topology: Topology,
    history: History,
    at_s: float,
    thresholds: Thresholds = Thresholds(),  # noqa: B008
    rules: Iterable[Rule] = RULES,
) -> Diagnosis:
    """The verdict over the reports of one window, judged at `at_s` (Unix seconds, the server's clock)."""
    case = Case.of(reports, topology, history, at_s, thresholds)
    found = findings(rules, case)
    ranked = ranking(found, case)
    said = tuple(one for one in found if one.cause is None)
    if not ranked:
        nothing: tuple[RuleFinding, ...] = ()
        probe = next_probe((), case)
        return Diagnosis(
            Cause.UNKNOWN, JOB, Remedy.NOTHING, 0.0, False, (), nothing, (), probe, said, thresholds.version
        )
    first = ranked[0]
    here = case.topology.instances_of(first.scope)
    same = [one for one in ranked if one is first or _is_the_same(one, first, here, case)]
    sure = round(min(math.fsum(one.confidence for one in same), CERTAIN), 4)
    rivals = tuple(one for one in ranked if one not in same)
    close = any(sure - one.confidence < thresholds.margin for one in rivals if one.follows == first.follows)
    decided = sure >= thresholds.decided and not close
    probe = None if decided else next_probe(ranked, case)
    evidence = tuple(sorted({cited for one in same for cited in one.evidence}))
    return Diagnosis(
        first.cause,
        first.scope,
        remedy_for(first.cause, first.scope),
        sure,
        decided,
        evidence,
        first.findings,
        rivals[:RIVALS_MAX],
        probe,
        said,
        thresholds.version,
    )


def _is_the_same(one: Hypothesis, first: Hypothesis, here: frozenset[str], case: Case) -> bool:
    """Whether it is the first hypothesis in other words: the same cause at a place that holds it, or lies in it."""
    if one.cause is not first.cause or one.follows is not first.follows:
        return False
    return bool(here & case.topology.instances_of(one.scope))


def ranking(found: Iterable[RuleFinding], case: Case) -> tuple[Hypothesis, ...]:
    """Every hypothesis that anything speaks for, the likeliest first."""
    speaking: dict[tuple[Cause, Scope], list[RuleFinding]] = {}
    for one in found:
        if one.cause is not None:
            speaking.setdefault((one.cause, one.scope), []).append(one)
    scores = {key: _score(key, ones, case) for key, ones in speaking.items()}
    follows = {key: all(one.follows for one in ones) for key, ones in speaking.items()}
    # A consequence takes nothing from its cause, of which there may be one on each of many machines.
    shares = {**_shares(scores), **_shares({key: score for key, score in scores.items() if not follows[key]})}
    made = [
        Hypothesis(
            cause,
            scope,
            round(scores[cause, scope], 6),
            round(min(shares[cause, scope], CERTAIN), 4),
            follows[cause, scope],
            tuple(ones),
        )
        for (cause, scope), ones in speaking.items()
    ]
    return tuple(sorted(made, key=lambda one: (one.follows, -one.score, one.cause, one.scope)))


def _shares(scores: Mapping[tuple[Cause, Scope], float]) -> dict[tuple[Cause, Scope], float]:
    """How much of the whole each hypothesis has; together they have less than 1."""
    places: dict[Cause, list[float]] = {}
    for (cause, _), score in scores.items():
        places.setdefault(cause, []).append(score)
    whole = UNKNOWN_CAUSE_WEIGHT + math.fsum(math.exp(max(of)) for of in places.values())
    of_cause = {cause: math.exp(max(of)) / whole for cause, of in places.items()}
    within = {cause: math.fsum(math.exp(score) for score in of) for cause, of in places.items()}
    return {key: of_cause[key[0]] * math.exp(score) / within[key[0]] for key, score in scores.items()}


def _score(key: tuple[Cause, Scope], found: list[RuleFinding], case: Case) -> float:
    """The sum over rows of the strongest match of each, with what is remembered of the machine.

    What is a consequence counts apart from what is not: many ranks that wait make no hint a cause.
    """
    cause, scope = key
    known = 0.0
    if cause in BLAMES_INSTANCES and scope.kind is ScopeKind.INSTANCE and len(scope.names) == 1:
        lemon = case.history.lemons.get(scope.names[0], 0.0)
        known = LEMON_WEIGHT * min(max(lemon if math.isfinite(lemon) else 0.0, 0.0), 1.0)
    return known + max(_sum(one for one in found if one.follows is follows) for follows in (False, True))


def _sum(found: Iterable[RuleFinding]) -> float:
    by_row: dict[str, float] = {}
    for one in found:
        by_row[one.row] = max(by_row.get(one.row, 0.0), one.weight)
    return math.fsum(by_row.values())
