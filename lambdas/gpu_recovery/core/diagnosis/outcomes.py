"""Whether verdicts were right, by whether their remedies held: counted for each rule and each cause.

A remedy has held once `steady_s` (`core.policy`) has passed without a failure that speaks against it: one at a place
of the verdict's, or one of the same job that is put down to the same cause elsewhere (who is left out does not fail).
Until then it is open. It is a hint, not a proof: a transient fault is gone whatever was done about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .diagnose import Diagnosis
from .words import Cause, Scope, ScopeKind


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was said, and when its remedy was done (Unix seconds). rows: the rules that spoke for it.

    version: of the thresholds it was made under: a rule that was changed is judged anew.
    """

    job_id: str
    at_s: float
    cause: Cause
    scope: Scope
    rows: tuple[str, ...]
    version: str

    @classmethod
    def of(cls, diagnosis: Diagnosis, job_id: str, at_s: float) -> Verdict:
        """The verdict of a diagnosis of `job_id` whose remedy was done at `at_s`."""
        rows = tuple(sorted({one.row for one in diagnosis.findings}))
        return cls(job_id, at_s, diagnosis.cause, diagnosis.scope, rows, diagnosis.version)


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a job, where it was, and what it was put down to; UNKNOWN if to nothing."""

    job_id: str
    at_s: float
    scope: Scope
    cause: Cause = Cause.UNKNOWN


@dataclass(frozen=True, slots=True)
class Tally:
    """How many remedies held, how many did not, and of how many it is not known yet."""

    held: int = 0
    failed: int = 0
    open: int = 0

    @property
    def precision(self) -> float | None:
        """The share that held of those that are known; None while none is."""
        known = self.held + self.failed
        return self.held / known if known else None

    def and_one(self, held: bool | None) -> Tally:
        """With one more verdict."""
        return Tally(self.held + (held is True), self.failed + (held is False), self.open + (held is None))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The counts. rows: by rule and version. seen: by the cause that was said and the one that showed.

    A cause shows by its remedy's holding; where that did not hold, as what the first failure after it was put down to.
    If that is the same again, the cause may stand, and the remedy was not enough.
    """

    rows: Mapping[tuple[str, str], Tally]
    causes: Mapping[Cause, Tally]
    seen: Mapping[tuple[Cause, Cause], int]


def against(verdict: Verdict, failures: Iterable[Failure], steady_s: float) -> Failure | None:
    """The first failure that speaks against the verdict; None if none does."""
    found = [
        one
        for one in failures
        if 0.0 < one.at_s - verdict.at_s <= steady_s and _speaks_against(verdict, one)
    ]  # fmt: skip
    return min(found, key=lambda one: (one.at_s, one.cause, one.scope), default=None)


def _speaks_against(verdict: Verdict, failure: Failure) -> bool:
    if verdict.job_id == failure.job_id and (verdict.scope.kind is ScopeKind.JOB or verdict.cause is failure.cause):
        return True
    same = verdict.scope.kind is failure.scope.kind and verdict.scope.kind in (ScopeKind.INSTANCE, ScopeKind.RACK)
    mine = same or (verdict.job_id == failure.job_id and verdict.scope.kind is failure.scope.kind)
    return mine and bool({*verdict.scope.names} & {*failure.scope.names})


def outcomes(
    verdicts: Iterable[Verdict], failures: Iterable[Failure], steady_s: float, now_s: float
) -> Outcomes:  # fmt: skip
    """How the verdicts have turned out by `now_s`. A verdict of UNKNOWN said nothing and is not counted."""
    rows: dict[tuple[str, str], Tally] = {}
    causes: dict[Cause, Tally] = {}
    seen: dict[tuple[Cause, Cause], int] = {}
    places = _Places(failures)
    for one in verdicts:
        if one.cause is Cause.UNKNOWN:
            continue
        failure = against(one, places.near(one), steady_s)
        held = False if failure else True if now_s - one.at_s > steady_s else None
        causes[one.cause] = causes.get(one.cause, Tally()).and_one(held)
        for row in dict.fromkeys(one.rows):
            rows[row, one.version] = rows.get((row, one.version), Tally()).and_one(held)
        if held is not None:
            shown = (one.cause, failure.cause if failure else one.cause)
            seen[shown] = seen.get(shown, 0) + 1
    return Outcomes(rows, causes, seen)


class _Places:
    """The failures by job and by place, so that a verdict is held against few of them."""

    def __init__(self, failures: Iterable[Failure]) -> None:
        self._by: dict[tuple[str, str], list[Failure]] = {}
        for one in failures:
            for key in _keys(one.job_id, one.scope):
                self._by.setdefault(key, []).append(one)

    def near(self, verdict: Verdict) -> list[Failure]:
        """Those of its job and those at its places."""
        return [one for key in _keys(verdict.job_id, verdict.scope) for one in self._by.get(key, ())]


def _keys(job_id: str, scope: Scope) -> list[tuple[str, str]]:
    return [("", job_id), *((str(scope.kind), name) for name in scope.names)]
