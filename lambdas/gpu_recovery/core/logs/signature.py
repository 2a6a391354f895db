"""Signature of a log line, and the search for the first signature that fits a line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_normalization import LineLevel, LogLine

DECISIVE = frozenset({LineKind.USER_ERROR_CONFIG, LineKind.USER_ERROR_DEPENDENCY, LineKind.USER_ERROR_CHECKPOINT})
"""Kinds that may end a job permanently.

They need a definite statement: an exception, an error by its level, or a wording that only an error has. Healthy
programs also print that a file was not found or that a package is not installed.
"""


@dataclass(frozen=True, slots=True)
class Signature:
    """A wording by which a line is classified. Lines are compared in lower case.

    needs:      texts of which the line must contain at least one. This test excludes most lines before an expression
                is tried.
    expression: the regular expression that the line must also match. Gaps are bounded and repetitions are not nested,
                so the time per line is at most its length times the gaps.
    soft:       the signature does not apply to a line of level INFO or lower.
    whole:      the signature is also compared with conditional sentences.
    generic:    the signature only says that something went wrong. Within a traceback any other signature precedes it.
    stated:     the wording itself is a definite statement. Other signatures of a kind of `DECISIVE` apply only to lines
                that state an error.
    source:     the program that writes such lines.
    """

    kind: LineKind
    needs: tuple[str, ...]
    expression: str
    role: LineRole
    source: str
    soft: bool = False
    whole: bool = False
    generic: bool = False
    stated: bool = False

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression. It is compiled at its first use: most processes need few signatures or none."""
        return _compiled(self.expression)


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
        stated: bool = False,
    ) -> None:
        """Append a signature.

        Args:
            needs: texts in lower case, separated by `|`.

        Raises:
            ValueError: a text is empty or not in lower case.
        """
        if needs != needs.lower() or not all(needs.split("|")):
            raise ValueError(f"texts that no line in lower case has: {needs!r}")
        self.rows.append(
            Signature(
                kind,
                tuple(needs.split("|")),
                pattern,
                role,
                source,
                soft=soft,
                whole=whole,
                generic=generic,
                stated=stated,
            )
        )


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


@dataclass(slots=True)
class Counter:
    """Counts the patterns that were tried: the cost of a classification."""

    searches: int = 0


def first(
    rows: Iterable[Signature], line: LogLine, counter: Counter, *, is_exception: bool = False
) -> Signature | None:
    """Return the first signature that fits a line; None if none does.

    Args:
        is_exception: the line ends a traceback, so it states an error.
    """
    for row in rows:
        if line.level is not LineLevel.NONE and (
            (row.soft and line.level is LineLevel.INFORMS) or row.kind in DECISIVE
        ):
            continue
        text = line.whole if row.whole else line.definite
        if not _has_any(text, row.needs):
            continue
        counter.searches += 1
        is_definite = row.kind not in DECISIVE or row.stated or is_exception
        if row.pattern.search(text) and (is_definite or line.states_error):
            return row
    return None


def fits_any(rows: Iterable[Signature], text: str, counter: Counter) -> bool:
    """Return whether any of the signatures fits the text, independent of its level."""
    for row in rows:
        if _has_any(text, row.needs):
            counter.searches += 1
            if row.pattern.search(text):
                return True
    return False


def _has_any(text: str, needs: tuple[str, ...]) -> bool:
    for need in needs:  # any() takes twice the time  # noqa: SIM110
        if need in text:
            return True
    return False
