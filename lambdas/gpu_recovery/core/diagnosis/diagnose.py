"""Diagnosis: observations of a run to a ranking of causes, with a confidence.

The functions are pure. The same observations give the same diagnosis in any order.

A match of a rule adds its weight, in log-odds, to its own hypothesis (a cause and a scope). It never lowers the score
of another hypothesis, so more evidence for a hypothesis never lowers its rank. A hypothesis that rests on consequences
alone ranks below every other hypothesis.

The confidence of a hypothesis is its share against the other causes and against a cause that no rule knows. A cause
takes part in this share once, with the strongest of its scopes: if one GPU fails, a thousand ranks that wait for it are
not a thousand rivals. The scopes of a cause then divide the share of the cause.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from gpu_recovery.core.diagnosis.case import Case, History, Topology
from gpu_recovery.core.diagnosis.catalogue import RULES
from gpu_recovery.core.diagnosis.hypothesis import Hypothesis
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.probes import next_probe
from gpu_recovery.core.diagnosis.remedies import remedy_for
from gpu_recovery.core.diagnosis.rule import Rule, RuleFinding, findings
from gpu_recovery.core.diagnosis.rules.instances import IDLE_CHECK
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Probe, Remedy, Scope, ScopeKind, Weight
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

RIVALS_MAX = 5
"""Upper bound of the rivals in a diagnosis."""
BLAMES_INSTANCES = frozenset({Cause.GPU_FAULT, Cause.NODE_FAULT, Cause.DRIVER, Cause.RDMA, Cause.STRAGGLER})
"""Causes that are more probable on an instance with a lemon score."""
LEMON_WEIGHT = Weight.WEAK
"""Weight, in log-odds, of a lemon score of 1."""
UNKNOWN_CAUSE_ODDS = 2.2
"""Odds of a cause that no rule knows, in every share.

With this value a single hint stays undecided (0.43), and so does a weak match that has a hint as its rival (0.44).
"""
CERTAIN = 0.99
"""Upper bound of a confidence (row 35 of the fault catalogue, docs/diagnosis.md): another cause is always possible."""


@frozen_dataclass()
class Diagnosis:
    """Most probable cause of a failure, with its rivals. If no rule names a cause, it is `UNKNOWN`.

    confidence: between 0 and 1.
    decided: the confidence reaches its threshold, and no rival is close.
    evidence: report ids of the observations that support the cause.
    next_probe: the probe to run next; None if the diagnosis is decided or no probe is left.
    informational: findings that name no cause.
    version: version of the thresholds.
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
    informational: tuple[RuleFinding, ...]
    version: str


def diagnose(
    reports: Iterable[Observation],
    topology: Topology,
    history: History,
    at_s: float,
    thresholds: Thresholds = Thresholds(),  # noqa: B008
    rules: Iterable[Rule] = RULES,
) -> Diagnosis:
    """Diagnose the failure that the observations of one window show.

    Args:
        at_s: time of the diagnosis, Unix seconds on the server's clock.
        rules: the rules to apply, all of the catalogue by default.
    """
    case = Case.of(reports, topology, history, at_s, thresholds)
    rule_findings = findings(rules, case)
    ranked = ranking(rule_findings, case)
    notes = tuple(_notes(rule_findings, ranked, case))
    if not ranked:
        no_findings: tuple[RuleFinding, ...] = ()
        probe = next_probe((), case)
        return Diagnosis(
            Cause.UNKNOWN, JOB, Remedy.NOTHING, 0.0, False, (), no_findings, (), probe, notes, thresholds.version
        )
    first = ranked[0]
    first_instances = case.topology.instances_of(first.scope)
    same = [
        hypothesis
        for hypothesis in ranked
        if hypothesis is first or _is_the_same(hypothesis, first, first_instances, case)
    ]
    confidence = round(min(math.fsum(hypothesis.confidence for hypothesis in same), CERTAIN), 4)
    rivals = tuple(hypothesis for hypothesis in ranked if hypothesis not in same)
    close = any(confidence - rival.confidence < thresholds.margin for rival in rivals if rival.follows == first.follows)
    decided = confidence >= thresholds.decided and not close
    probe = None if decided else next_probe(ranked, case)
    evidence = tuple(sorted({cited for hypothesis in same for cited in hypothesis.evidence}))
    return Diagnosis(
        first.cause,
        first.scope,
        remedy_for(first.cause, first.scope, frozenset(finding.row for finding in first.findings)),
        confidence,
        decided,
        evidence,
        first.findings,
        rivals[:RIVALS_MAX],
        probe,
        notes,
        thresholds.version,
    )


def _notes(rule_findings: Iterable[RuleFinding], ranked: Iterable[Hypothesis], case: Case) -> Iterator[RuleFinding]:
    """Findings without a cause. Those about idle checks stay only for the instances that a hypothesis names.

    Most instances of a large gang have passed an idle check, and the text of a diagnosis shows few notes.
    """
    named = frozenset[str]().union(*(case.topology.instances_of(hypothesis.scope) for hypothesis in ranked))
    for finding in rule_findings:
        if finding.cause is None and (finding.row != IDLE_CHECK or case.topology.instances_of(finding.scope) & named):
            yield finding


def _is_the_same(hypothesis: Hypothesis, first: Hypothesis, first_instances: frozenset[str], case: Case) -> bool:
    """Whether the hypothesis has the cause of `first` and shares an instance with it."""
    if hypothesis.cause is not first.cause or hypothesis.follows is not first.follows:
        return False
    return bool(first_instances & case.topology.instances_of(hypothesis.scope))


def ranking(rule_findings: Iterable[RuleFinding], case: Case) -> tuple[Hypothesis, ...]:
    """Every hypothesis that a finding supports, the most probable first. Findings without a cause are skipped."""
    supporting: dict[tuple[Cause, Scope], list[RuleFinding]] = {}
    for finding in rule_findings:
        if finding.cause is not None:
            supporting.setdefault((finding.cause, finding.scope), []).append(finding)
    scores = {key: _score(key, of_key, case) for key, of_key in supporting.items()}
    follows = {key: all(finding.follows for finding in of_key) for key, of_key in supporting.items()}
    # A consequence takes no share from a cause: one fault may have consequences on many instances.
    shares = {**_shares(scores), **_shares({key: score for key, score in scores.items() if not follows[key]})}
    made = [
        Hypothesis(
            cause,
            scope,
            round(scores[cause, scope], 6),
            round(min(shares[cause, scope], CERTAIN), 4),
            follows[cause, scope],
            tuple(of_key),
        )
        for (cause, scope), of_key in supporting.items()
    ]
    return tuple(
        sorted(made, key=lambda hypothesis: (hypothesis.follows, -hypothesis.score, hypothesis.cause, hypothesis.scope))
    )


def _shares(scores: Mapping[tuple[Cause, Scope], float]) -> dict[tuple[Cause, Scope], float]:
    """Share of each hypothesis in the odds of all causes. The sum is below 1, because of the unknown cause."""
    places: dict[Cause, list[float]] = {}
    for (cause, _), score in scores.items():
        places.setdefault(cause, []).append(score)
    whole = UNKNOWN_CAUSE_ODDS + math.fsum(math.exp(max(of_scopes)) for of_scopes in places.values())
    of_cause = {cause: math.exp(max(of_scopes)) / whole for cause, of_scopes in places.items()}
    within = {cause: math.fsum(math.exp(score) for score in of_scopes) for cause, of_scopes in places.items()}
    return {key: of_cause[key[0]] * math.exp(score) / within[key[0]] for key, score in scores.items()}


def _score(key: tuple[Cause, Scope], supporting: list[RuleFinding], case: Case) -> float:
    """Score of a hypothesis: the strongest match of each row, summed, plus the lemon weight of its instance.

    Consequences and other findings are summed apart, and the larger sum counts. So many ranks that wait do not turn a
    hint into a cause.
    """
    cause, scope = key
    lemon_weight = 0.0
    if cause in BLAMES_INSTANCES and scope.kind is ScopeKind.INSTANCE and len(scope.names) == 1:
        lemon = case.history.lemons.get(scope.names[0], 0.0)
        lemon_weight = LEMON_WEIGHT * min(max(lemon if math.isfinite(lemon) else 0.0, 0.0), 1.0)
    return lemon_weight + max(
        _sum(finding for finding in supporting if finding.follows is follows) for follows in (False, True)
    )


def _sum(supporting: Iterable[RuleFinding]) -> float:
    by_row: dict[str, float] = {}
    for finding in supporting:
        by_row[finding.row] = max(by_row.get(finding.row, 0.0), finding.weight)
    return math.fsum(by_row.values())
