"""How the tests of the families ask: reports in, findings or a diagnosis by one family's rules out."""

from collections.abc import Iterable
from dataclasses import fields
from string import Formatter
from typing import Any

from gpu_recovery.core.diagnosis.case import Case, History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose
from gpu_recovery.core.diagnosis.observations import Observation
from gpu_recovery.core.diagnosis.rule import Rule, RuleFinding, findings
from gpu_recovery.core.diagnosis.taxonomy import Scope, ScopeKind
from gpu_recovery.core.diagnosis.thresholds import Thresholds

AT_S = 10_000.0
TWO = Topology.of(
    (
        Worker("train/0", "i-1", "rack-a", 0, "train"),
        Worker("rollout/0", "i-1", "rack-a", None, "rollout"),
        Worker("train/1", "i-2", "rack-a", 1, "train"),
        Worker("rollout/1", "i-2", "rack-a", None, "rollout"),
    )
)


def instance(name: str) -> Scope:
    """The scope of an instance."""
    return Scope.of(ScopeKind.INSTANCE, name)


def numbered(reports: Iterable[Observation]) -> list[Observation]:
    """The reports with ids r0, r1, ... and a second apart, where a test does not care."""
    made = []
    for n, one in enumerate(reports):
        given: dict[str, Any] = {field.name: getattr(one, field.name) for field in fields(one)}
        made.append(type(one)(**{**given, "report_id": one.report_id or f"r{n}", "at_s": one.at_s or 9_000.0 + n}))
    return made


def asked(rules: tuple[Rule, ...], *reports: Observation, topology: Topology = TWO, at_s: float = AT_S) -> Diagnosis:
    """The diagnosis by these rules alone."""
    return diagnose(numbered(reports), topology, History(), at_s, Thresholds(), rules)


def found(
    rules: tuple[Rule, ...], row: str, *reports: Observation, topology: Topology = TWO, at_s: float = AT_S
) -> list[RuleFinding]:
    """What the rules of one row find."""
    case = Case.of(numbered(reports), topology, History(), at_s, Thresholds())
    assert row in {rule.row for rule in rules}
    return [one for one in findings(rules, case) if one.row == row]


def names_of(sentence: str) -> set[str]:
    """What a sentence names."""
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}
