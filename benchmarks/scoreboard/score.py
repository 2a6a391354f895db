"""Results of cases, and the score of a set of cases as counts with confidence intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.intervals import wilson


class Seen(StrEnum):
    """Whether the authors of the rules have seen the cases of a set."""

    YES = "yes"
    """Rules were developed on the cases, or the authors made the cases."""
    LATER = "later"
    """The first score is of rules whose authors had not seen the cases. Rules were changed for the cases since."""
    NO = "no"
    """The score is of rules whose authors had not seen the cases."""


class Verdict(StrEnum):
    """A verdict compared with the truth of its case."""

    RIGHT = "right"
    WRONG = "wrong"
    UNDECIDED = "undecided"


def verdict_of(decided: bool, right: bool) -> Verdict:
    """Return the verdict on a case that is decided or not, and right if it is decided."""
    return (Verdict.RIGHT if right else Verdict.WRONG) if decided else Verdict.UNDECIDED


@dataclass(frozen=True)
class CaseResult:
    """What the product made of one case.

    kind_is_right: whether a log line got the kind of its label. None: the case is no log line.
    false_alarm: whether a benign log line got another kind. None: the case is no benign log line.
    verdict: None: the set has no verdicts.
    wrongful_repair: whether a reboot or a replacement is ordered although the GPUs are healthy. None: the GPUs are not
        healthy, or nothing in the set orders repairs.
    missed: whether a GPU is faulty and neither a check nor a repair of its instance is ordered. None: no GPU is faulty.
    """

    kind_is_right: bool | None = None
    false_alarm: bool | None = None
    verdict: Verdict | None = None
    wrongful_repair: bool | None = None
    missed: bool | None = None


@dataclass(frozen=True)
class Share:
    """A counted share: `count` of `of` cases."""

    count: int
    of: int

    def __str__(self) -> str:
        if not self.of:
            return "0 of 0"
        low, high = wilson(self.count, self.of)
        return f"{self.count} of {self.of} ({100 * low:.1f}-{100 * high:.1f} %)"


SHARES: Mapping[str, str] = {
    "right_kind": "Right kind",
    "false_alarms": "False alarms",
    "right": "Verdict right",
    "wrong": "Verdict wrong",
    "undecided": "Undecided",
    "wrongful_repairs": "Wrongful repairs",
    "missed_gpu_faults": "Missed GPU faults",
}
"""The shares of a set by their names in benchmarks/results.json, with their headings."""


def score(seen: Seen, results: Iterable[CaseResult]) -> dict[str, Any]:
    """Return the score of a set, as benchmarks/results.json has it.

    Returns:
        `seen`, the number of cases, and for each name of `SHARES` that the set has: the count, the number of cases
        that could count, and the 95 % interval of the share.
    """
    cases = list(results)
    verdicts = Counter(case.verdict for case in cases if case.verdict is not None)
    shares = {
        "right_kind": _share(case.kind_is_right for case in cases),
        "false_alarms": _share(case.false_alarm for case in cases),
        **{verdict.value: Share(verdicts[verdict], verdicts.total()) for verdict in Verdict},
        "wrongful_repairs": _share(case.wrongful_repair for case in cases),
        "missed_gpu_faults": _share(case.missed for case in cases),
    }
    return {"seen": str(seen), "cases": len(cases)} | {
        name: {
            "count": share.count,
            "of": share.of,
            "interval": [round(bound, 3) for bound in wilson(share.count, share.of)],
        }
        for name, share in shares.items()
        if share.of
    }


def _share(answers: Iterable[bool | None]) -> Share:
    counted = [answer for answer in answers if answer is not None]
    return Share(sum(counted), len(counted))


def share_of(figures: Mapping[str, Any], name: str) -> Share | None:
    """Return a share of a set from its score, or None if the set has no such share."""
    found = figures.get(name)
    return Share(found["count"], found["of"]) if found else None


def total(sets: Iterable[Mapping[str, Any]], name: str) -> Share:
    """Return a share of several sets together. Sets without the share are left out."""
    shares = [share for figures in sets if (share := share_of(figures, name))]
    return Share(sum(share.count for share in shares), sum(share.of for share in shares))
