"""Signature of a log line, and the search for the first signature that fits a line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_normalization import LineLevel

BORNE = frozenset({LineKind.USER_ERROR_CONFIG, LineKind.USER_ERROR_DEPENDENCY, LineKind.USER_ERROR_CHECKPOINT})
"""Kinds that do not count if the line is a warning, because the program continued after it."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A wording by which a line is classified. Lines are compared in lower case.

    needs:   texts of which the line must contain at least one. This test excludes most lines before a pattern is tried.
    pattern: the pattern that the line must also match. Gaps are bounded and repetitions are not nested, so the time per
             line is at most its length times the gaps.
    soft:    the signature does not apply to a line of level INFO or lower.
    whole:   the signature is also compared with conditional sentences.
    generic: the signature only says that something went wrong. Within a traceback any other signature precedes it.
    source:  the program that writes such lines.
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
    """An ordered table of signatures. The first that fits a line classifies the line."""

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
        """Append a signature.

        Args:
            needs: texts in lower case, separated by `|`.

        Raises:
            ValueError: a text is empty or not in lower case.
        """
        if needs != needs.lower() or not all(needs.split("|")):
            raise ValueError(f"texts that no line in lower case has: {needs!r}")
        signature = Signature(
            kind, tuple(needs.split("|")), re.compile(pattern), role, source, soft=soft, whole=whole, generic=generic
        )
        self.rows.append(signature)


@dataclass(slots=True)
class Counter:
    """Counts the patterns that were tried: the cost of a classification."""

    searches: int = 0


def first(
    rows: Iterable[Signature], definite: str, whole: str, counter: Counter, *, level: LineLevel
) -> Signature | None:
    """Return the first signature that fits a line; None if none does.

    Args:
        definite: the line in lower case without conditional sentences.
        whole: the line in lower case.
        level: the level that the line states.
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
