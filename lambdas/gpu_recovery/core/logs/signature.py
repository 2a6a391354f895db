"""How a line is recognised: a signature, and what it is compared with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_normalization import LineLevel

BORNE = frozenset({LineKind.USER_ERROR_CONFIG, LineKind.USER_ERROR_DEPENDENCY, LineKind.USER_ERROR_CHECKPOINT})
"""What a program has gone on with where it only warns of it."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A wording that tells of a kind. All of it is compared with a line in lower case.

    needs:   texts of which the line must have one: most lines are done with before any pattern is tried.
    pattern: what it must have besides. Gaps are bounded and nothing that repeats holds something that repeats, so that
             no line takes longer than its length times the gaps.
    soft:    it says nothing where the line calls itself information.
    whole:   it is compared with what the line only thinks possible, too.
    generic: it knows no more than that something went wrong: within one traceback any other goes before it.
    source:  who writes so.
    """

    kind: LineKind
    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    role: LineRole
    source: str
    soft: bool = False
    whole: bool = False
    generic: bool = False


class Signatures:
    """A table of signatures of one source after another, in order: the first that fits a line is the one."""

    def __init__(self) -> None:
        self.rows: list[Signature] = []

    def add(
        self,
        source: str,
        kind: LineKind,
        needs: str,
        pattern: str,
        role: LineRole = LineRole.ROOT,
        *,
        soft: bool = False,
        whole: bool = False,
        generic: bool = False,
    ) -> None:
        """One more. needs: texts with `|` between them; ValueError for one that is not in lower case."""
        if needs != needs.lower() or not all(needs.split("|")):
            raise ValueError(f"texts that no line in lower case has: {needs!r}")
        made = Signature(
            kind, tuple(needs.split("|")), re.compile(pattern), role, source, soft=soft, whole=whole, generic=generic
        )
        self.rows.append(made)


@dataclass(slots=True)
class Counter:
    """How many patterns were tried: what a classification costs."""

    searches: int = 0


def first(
    rows: Iterable[Signature], definite: str, whole: str, counter: Counter, *, level: LineLevel
) -> Signature | None:
    """The first signature that fits a line; None if none does.

    definite: the line in lower case without what it only thinks possible; whole: with it. level: what it calls itself.
    """
    for row in rows:
        if (level is LineLevel.INFORMS and row.soft) or (level is LineLevel.WARNS and row.kind in BORNE):
            continue
        text = whole if row.whole else definite
        if any(need in text for need in row.needs):
            counter.searches += 1
            if row.pattern.search(text):
                return row
    return None
