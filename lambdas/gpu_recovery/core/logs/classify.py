"""Log classifier: finds the lines that report an error, and the line that is the cause.

The time is linear in the length of the text: a line is cut to `line_normalization.LINE_MAX`, and no pattern reads a
line more often than its gaps are wide.
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
"""All signatures in order of precedence: the first that fits a line classifies the line."""
_TRACEBACK = "traceback (most recent call last)"
_FRAME = re.compile(r"\s{1,16}file \"[^\"]{1,400}\", line \d+")
_CODE = re.compile(r"\s+(?:raise |return |assert |if |self\.|for |with |\^{2,}|~{2,})")
_CHAINED = ("during handling of the above exception", "the above exception was the direct cause")


@dataclass(frozen=True, slots=True)
class ClassifiedLine:
    """A line that the signatures classify.

    number:  line number, from 1.
    line:    the line as it was written, at most `LINE_MAX` characters.
    generic: the line only says that something went wrong.
    """

    number: int
    line: str
    kind: LineKind
    role: LineRole
    generic: bool = False


@dataclass(frozen=True, slots=True)
class Classified:
    """The findings of a log in log order, and the line that is the cause; None if the log shows no error.

    searches: the number of patterns that were tried.
    """

    findings: tuple[ClassifiedLine, ...]
    verdict: ClassifiedLine | None
    searches: int

    @property
    def kind(self) -> LineKind:
        """Return the kind of the cause."""
        return self.verdict.kind if self.verdict else LineKind.BENIGN


@dataclass(slots=True)
class _Traceback:
    """The traceback state of one writer.

    open:     a traceback has begun and its exception has not come yet.
    chained:  the next traceback belongs to the same chain of exceptions.
    """

    open: bool = False
    chained: bool = False
    code_follows: bool = False
    exceptions: list[int] = field(default_factory=list)
    """Indices of the exceptions of this chain in the findings."""


def classify(lines: Iterable[str | bytes]) -> Classified:
    """Classify the lines of a log.

    The cause is the first root; without a root the first confirmation, and without both the first cascade.
    """
    findings: list[ClassifiedLine] = []
    writers: dict[str, _Traceback] = {}
    counter = Counter()
    for number, raw in enumerate(lines, start=1):
        line = read(raw)
        writer = writers.setdefault(line.tag, _Traceback())
        if _is_traceback_line(line, writer):
            continue
        finding = _finding(number, line, counter)
        if writer.open and line.raw:
            writer.open = False
            if finding is not None:
                findings.append(finding)
                writer.exceptions.append(len(findings) - 1)
                _demote_generic(findings, writer.exceptions)
            continue
        if finding is not None:
            findings.append(finding)
    return Classified(tuple(findings), cause_line_of(findings), counter.searches)


def cause_line_of(findings: Iterable[ClassifiedLine]) -> ClassifiedLine | None:
    """Return the first root, else the first confirmation, else the first cascade. Advice is never the cause."""
    order = (LineRole.ROOT, LineRole.CONFIRMATION, LineRole.CASCADE)
    firsts: dict[LineRole, ClassifiedLine] = {}
    for finding in findings:
        firsts.setdefault(finding.role, finding)
    return next((firsts[role] for role in order if role in firsts), None)


def first_cause(ranks: Mapping[int, Classified]) -> tuple[int, ClassifiedLine] | None:
    """Return the rank with the cause and the line. A cascade counts only if no rank has a root.

    Args:
        ranks: the classified log of each rank.
    """
    verdicts = [
        (rank, classified.verdict) for rank, classified in sorted(ranks.items()) if classified.verdict is not None
    ]
    for role in (LineRole.ROOT, LineRole.CONFIRMATION, LineRole.CASCADE):
        for rank, verdict in verdicts:
            if verdict.role is role:
                return rank, verdict
    return None


def _is_traceback_line(line: LogLine, writer: _Traceback) -> bool:
    """Return whether the line is the heading, a frame or code of a traceback. Such lines only quote messages."""
    text = line.whole
    if _TRACEBACK in text:
        if not writer.chained:
            writer.exceptions.clear()
        writer.open, writer.chained, writer.code_follows = True, False, False
        return True
    if any(phrase in text for phrase in _CHAINED):
        writer.chained = True
        return False
    if _FRAME.match(text) is not None:
        writer.code_follows = True
        return True
    if line.is_indented and (writer.open or writer.code_follows or _CODE.match(text) is not None):
        return True
    writer.code_follows = False
    return False


def _demote_generic(findings: list[ClassifiedLine], chain: list[int]) -> None:
    """Turn generic roots of a chain of exceptions into cascades: the specific exception of the chain is the cause.

    The specific exception may come before or after them. If all are generic, the last exception remains a root.
    """
    if all(findings[at].generic for at in chain):
        chain = chain[:-1]  # the last exception of the chain ended the program
    for at in chain:
        finding = findings[at]
        if finding.generic and finding.role is LineRole.ROOT:
            findings[at] = ClassifiedLine(finding.number, finding.line, finding.kind, LineRole.CASCADE, generic=True)


def _finding(number: int, line: LogLine, counter: Counter) -> ClassifiedLine | None:
    """Classify one line; None if the line reports nothing."""
    if not line.whole.strip():
        return None
    if first(FINE, line.whole, line.whole, counter, level=LineLevel.NONE) is not None:
        return None
    xid = of_xid(line.definite)
    if xid is not None:
        kind, role = xid
        return ClassifiedLine(number, line.raw, kind, role)
    signature = first(SIGNATURES, line.definite, line.whole, counter, level=line.level)
    if signature is None:
        is_advice = first(ADVICE, line.whole, line.whole, counter, level=LineLevel.NONE) is not None
        is_advice = is_advice or (
            line.level is not LineLevel.INFORMS and line.definite != line.whole and _fits_any_signature(line, counter)
        )
        return ClassifiedLine(number, line.raw, LineKind.BENIGN, LineRole.ADVICE) if is_advice else None
    return ClassifiedLine(number, line.raw, signature.kind, signature.role, signature.generic)


def _fits_any_signature(line: LogLine, counter: Counter) -> bool:
    """Return whether the line would be classified if its conditional sentences were statements."""
    return first(SIGNATURES, line.whole, line.whole, counter, level=LineLevel.NONE) is not None
