"""What is wrong, by a log: each line that tells of something, and the one that is the cause.

Linear in the length of the text: a line is cut to `text.LINE_MAX`, and no pattern goes over it more often than its
gaps are wide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_normalization import LineLevel, LogLine, read
from gpu_recovery.core.logs.noise import ADVICE, FINE
from gpu_recovery.core.logs.signature import Counter, Signature, first
from gpu_recovery.core.logs.signatures.collectives import SIGNATURES as OF_NETWORKS
from gpu_recovery.core.logs.signatures.external_services import SIGNATURES as OF_OUTSIDE
from gpu_recovery.core.logs.signatures.fabric import SIGNATURES as OF_FABRICS
from gpu_recovery.core.logs.signatures.gpu import SIGNATURES as OF_GPUS
from gpu_recovery.core.logs.signatures.host import SIGNATURES as OF_HOSTS
from gpu_recovery.core.logs.signatures.platform import SIGNATURES as OF_PLATFORMS
from gpu_recovery.core.logs.signatures.process_exit import SIGNATURES as OF_ENDS
from gpu_recovery.core.logs.signatures.program import SIGNATURES as OF_PROGRAMS
from gpu_recovery.core.logs.xids import of_xid

SIGNATURES: tuple[Signature, ...] = (
    *OF_GPUS,
    *OF_FABRICS,
    *OF_HOSTS,
    *OF_PLATFORMS,
    *OF_OUTSIDE,
    *OF_NETWORKS,
    *OF_PROGRAMS,
    *OF_ENDS,
)
"""In order: the first that fits a line is what it tells of."""
_TRACEBACK = "traceback (most recent call last)"
_FRAME = re.compile(r"\s{1,16}file \"[^\"]{1,400}\", line \d+")
_CODE = re.compile(r"\s+(?:raise |return |assert |if |self\.|for |with |\^{2,}|~{2,})")
_CHAINED = ("during handling of the above exception", "the above exception was the direct cause")


@dataclass(frozen=True, slots=True)
class ClassifiedLine:
    """A line that tells of something. number: of the line, from 1; line: as it was written, at most `LINE_MAX`.

    generic: it knows no more than that something went wrong.
    """

    number: int
    line: str
    kind: LineKind
    role: LineRole
    generic: bool = False


@dataclass(frozen=True, slots=True)
class Classified:
    """What a log tells, in its order, and the line that is the cause; None where nothing is wrong.

    searches: how many patterns were tried on it.
    """

    findings: tuple[ClassifiedLine, ...]
    verdict: ClassifiedLine | None
    searches: int

    @property
    def kind(self) -> LineKind:
        """The kind of the cause."""
        return self.verdict.kind if self.verdict else LineKind.BENIGN


@dataclass(slots=True)
class _Traceback:
    """Where one writer is in a traceback: `open` until its exception came; `chained` while one follows another."""

    open: bool = False
    chained: bool = False
    code_follows: bool = False
    exceptions: list[int] = field(default_factory=list)
    """Where the exceptions of this chain are among the findings."""


def classify(lines: Iterable[str | bytes]) -> Classified:
    """Each line that tells of something, and the cause: the first root, else a confirmation, else a cascade."""
    found: list[ClassifiedLine] = []
    writers: dict[str, _Traceback] = {}
    counter = Counter()
    for number, raw in enumerate(lines, start=1):
        line = read(raw)
        writer = writers.setdefault(line.tag, _Traceback())
        if _is_of_a_traceback(line, writer):
            continue
        one = _finding(number, line, counter)
        if writer.open and line.raw:
            writer.open = False
            if one is not None:
                found.append(one)
                writer.exceptions.append(len(found) - 1)
                _the_specific_one_counts(found, writer.exceptions)
            continue
        if one is not None:
            found.append(one)
    return Classified(tuple(found), verdict_of(found), counter.searches)


def verdict_of(findings: Iterable[ClassifiedLine]) -> ClassifiedLine | None:
    """The first root; where there is none, the first confirmation, then the first cascade. Advice is never one."""
    order = (LineRole.ROOT, LineRole.CONFIRMATION, LineRole.CASCADE)
    firsts: dict[LineRole, ClassifiedLine] = {}
    for one in findings:
        firsts.setdefault(one.role, one)
    return next((firsts[role] for role in order if role in firsts), None)


def first_cause(ranks: Mapping[int, Classified]) -> tuple[int, ClassifiedLine] | None:
    """The rank that has the cause, and its line: a cascade counts only where no rank has a root."""
    verdicts = [(rank, one.verdict) for rank, one in sorted(ranks.items()) if one.verdict is not None]
    for role in (LineRole.ROOT, LineRole.CONFIRMATION, LineRole.CASCADE):
        for rank, verdict in verdicts:
            if verdict.role is role:
                return rank, verdict
    return None


def _is_of_a_traceback(line: LogLine, writer: _Traceback) -> bool:
    """Whether the line is a traceback's heading, frame or code: they quote messages, they do not say them."""
    text = line.whole
    if _TRACEBACK in text:
        if not writer.chained:
            writer.exceptions.clear()
        writer.open, writer.chained, writer.code_follows = True, False, False
        return True
    if any(words in text for words in _CHAINED):
        writer.chained = True
        return False
    if _FRAME.match(text) is not None:
        writer.code_follows = True
        return True
    if line.is_indented and (writer.open or writer.code_follows or _CODE.match(text) is not None):
        return True
    writer.code_follows = False
    return False


def _the_specific_one_counts(found: list[ClassifiedLine], chain: list[int]) -> None:
    """In a chain of exceptions a generic one is the consequence of one that says what went wrong, before or after."""
    if all(found[at].generic for at in chain):
        chain = chain[:-1]  # the last exception of the chain is the one that ended the program
    for at in chain:
        one = found[at]
        if one.generic and one.role is LineRole.ROOT:
            found[at] = ClassifiedLine(one.number, one.line, one.kind, LineRole.CASCADE, generic=True)


def _finding(number: int, line: LogLine, counter: Counter) -> ClassifiedLine | None:
    if not line.whole.strip():
        return None
    if first(FINE, line.whole, line.whole, counter, level=LineLevel.NONE) is not None:
        return None
    xid = of_xid(line.definite)
    if xid is not None:
        kind, role = xid
        return ClassifiedLine(number, line.raw, kind, role)
    row = first(SIGNATURES, line.definite, line.whole, counter, level=line.level)
    if row is None:
        advises = first(ADVICE, line.whole, line.whole, counter, level=LineLevel.NONE) is not None
        advises = advises or (
            line.level is not LineLevel.INFORMS and line.definite != line.whole and _would_be(line, counter)
        )
        return ClassifiedLine(number, line.raw, LineKind.BENIGN, LineRole.ADVICE) if advises else None
    return ClassifiedLine(number, line.raw, row.kind, row.role, row.generic)


def _would_be(line: LogLine, counter: Counter) -> bool:
    """Whether a line that only thinks something possible would tell of something if it said so."""
    return first(SIGNATURES, line.whole, line.whole, counter, level=LineLevel.NONE) is not None
