"""Log classifier: finds the lines that report an error, and the line that is the cause.

The time is linear in the length of the text: a line is cut to `line_normalization.LINE_MAX`, and no pattern reads a
line more often than its gaps are wide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.logs.cause_line import cause_line_of
from gpu_recovery.core.logs.classified_line import ClassifiedLine
from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_normalization import LineLevel, LogLine, read
from gpu_recovery.core.logs.line_time import line_time
from gpu_recovery.core.logs.noise import ADVICE, FINE
from gpu_recovery.core.logs.signature import Counter, Signature, first, fits_any
from gpu_recovery.core.logs.signatures.aws import SIGNATURES as OF_AWS
from gpu_recovery.core.logs.signatures.checkpoints import SIGNATURES as OF_CHECKPOINTS
from gpu_recovery.core.logs.signatures.collectives import SIGNATURES as OF_NETWORKS
from gpu_recovery.core.logs.signatures.crashes import SIGNATURES as OF_CRASHES
from gpu_recovery.core.logs.signatures.dependencies import SIGNATURES as OF_DEPENDENCIES
from gpu_recovery.core.logs.signatures.driver import SIGNATURES as OF_DRIVERS
from gpu_recovery.core.logs.signatures.external_services import SIGNATURES as OF_OUTSIDE
from gpu_recovery.core.logs.signatures.fabric import SIGNATURES as OF_FABRICS
from gpu_recovery.core.logs.signatures.gpu import SIGNATURES as OF_GPUS
from gpu_recovery.core.logs.signatures.host import SIGNATURES as OF_HOSTS
from gpu_recovery.core.logs.signatures.images import SIGNATURES as OF_IMAGES
from gpu_recovery.core.logs.signatures.kernel import SIGNATURES as OF_KERNELS
from gpu_recovery.core.logs.signatures.kubernetes import SIGNATURES as OF_KUBERNETES
from gpu_recovery.core.logs.signatures.numerics import SIGNATURES as OF_NUMERICS
from gpu_recovery.core.logs.signatures.peers import SIGNATURES as OF_PEERS
from gpu_recovery.core.logs.signatures.platform import SIGNATURES as OF_PLATFORMS
from gpu_recovery.core.logs.signatures.process_exit import SIGNATURES as OF_ENDS
from gpu_recovery.core.logs.signatures.program import SIGNATURES as OF_PROGRAMS
from gpu_recovery.core.logs.signatures.runtimes import SIGNATURES as OF_RUNTIMES
from gpu_recovery.core.logs.signatures.slurm import SIGNATURES as OF_SLURM
from gpu_recovery.core.logs.signatures.storage import SIGNATURES as OF_STORAGE
from gpu_recovery.core.logs.signatures.thermal import SIGNATURES as OF_HEAT
from gpu_recovery.core.logs.xids import of_xid

SIGNATURES: tuple[Signature, ...] = (
    *OF_SLURM,
    *OF_KUBERNETES,
    *OF_AWS,
    *OF_DRIVERS,
    *OF_HEAT,
    *OF_GPUS,
    *OF_RUNTIMES,
    *OF_PEERS,
    *OF_FABRICS,
    *OF_HOSTS,
    *OF_STORAGE,
    *OF_KERNELS,
    *OF_IMAGES,
    *OF_PLATFORMS,
    *OF_OUTSIDE,
    *OF_NETWORKS,
    *OF_NUMERICS,
    *OF_CHECKPOINTS,
    *OF_DEPENDENCIES,
    *OF_PROGRAMS,
    *OF_CRASHES,
    *OF_ENDS,
)
"""All signatures in order of precedence: the first that fits a line classifies the line."""
_TRACEBACK = "traceback (most recent call last)"
_FRAME = re.compile(r"\s{1,16}file \"[^\"]{1,400}\", line \d+")
_NAMED = re.compile(r"[A-Za-z_][\w.]{0,160}(?::|\s*$)")
"""Form of the line that ends a traceback: the class of the exception, and its text."""
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,160}(?:Error|Exception|Exit|Interrupt|Group|Iteration)(?::|\s*$)")
_IGNORED = "exception ignored in"
"""Beginning of a traceback of the interpreter's own clean-up, after which the program goes on."""
_CODE = re.compile(r"\s+(?:raise |return |assert |if |self\.|for |with |\^{2,}|~{2,})")
_CHAINED = ("during handling of the above exception", "the above exception was the direct cause")


@frozen_dataclass()
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
    ignored:  the program ignores the exception of this traceback and goes on.
    """

    open: bool = False
    chained: bool = False
    ignored: bool = False
    code_follows: bool = False
    exceptions: list[int] = field(default_factory=list)
    """Indices of the exceptions of this chain in the findings."""


def classify(lines: Iterable[str | bytes]) -> Classified:
    """Classify the lines of a log, and find the line that is the cause (`cause_line_of`)."""
    findings: list[ClassifiedLine] = []
    writers: dict[str, _Traceback] = {}
    counter = Counter()
    stamp = ""
    for number, raw in enumerate(lines, start=1):
        line = read(raw)
        stamp = line.stamp or stamp
        writer = writers.setdefault(line.tag, _Traceback())
        if _is_traceback_line(line, writer):
            finding = _before_heading(number, line, counter)
            if finding is not None:
                findings.append(finding)
            continue
        is_exception = writer.open and _NAMED.match(line.text) is not None
        finding = _finding(number, line, counter, is_exception=is_exception)
        ends = _ends_traceback(line, finding)
        if finding is not None:
            finding = replace(finding, time=line_time(line.raw) or line_time(stamp))
            if writer.ignored and ends:
                finding = replace(finding, kind=LineKind.BENIGN, role=LineRole.ADVICE)
            findings.append(finding)
        if writer.open and ends and finding is not None:
            writer.exceptions.append(len(findings) - 1)
            _demote_generic(findings, writer.exceptions)
        if ends:
            writer.open = writer.ignored = False
    return Classified(tuple(findings), cause_line_of(findings), counter.searches)


def _before_heading(number: int, line: LogLine, counter: Counter) -> ClassifiedLine | None:
    """Return the finding of a sentence that a program wrote before the heading of a traceback, in the same line."""
    sentence, heading, _ = line.text.lower().partition(_TRACEBACK)
    if not heading or not sentence.strip():
        return None
    return _finding(number, line, counter, is_exception=False)


def _ends_traceback(line: LogLine, finding: ClassifiedLine | None) -> bool:
    """Return whether the line is an exception, or another failure, with which an open traceback ends.

    Other programs of the same log may write lines between the frames, and these do not end it.
    """
    is_failure = finding is not None and finding.role not in (LineRole.ADVICE, LineRole.WARNING)
    return is_failure or _EXCEPTION.match(line.text) is not None


def first_cause(ranks: Mapping[int, Classified]) -> tuple[int, ClassifiedLine] | None:
    """Return the rank with the cause and the line. A cascade counts only if no rank has a root.

    Args:
        ranks: the classified log of each rank.
    """
    verdicts = [
        (rank, classified.verdict) for rank, classified in sorted(ranks.items()) if classified.verdict is not None
    ]
    for role in (LineRole.ROOT, LineRole.CONFIRMATION, LineRole.CASCADE, LineRole.WARNING):
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
    if text.startswith(_IGNORED):
        writer.ignored = True
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
            findings[at] = replace(finding, role=LineRole.CASCADE)


def _finding(number: int, line: LogLine, counter: Counter, *, is_exception: bool) -> ClassifiedLine | None:
    """Classify one line; None if the line reports nothing."""
    if not line.whole.strip() or fits_any(FINE, line.whole, counter):
        return None
    xid = of_xid(line.definite)
    if xid is not None:
        kind, role = xid
        return ClassifiedLine(number, line.raw, kind, _role_at_level(kind, role, line))
    signature = first(SIGNATURES, line, counter, is_exception=is_exception)
    if signature is None:
        is_advice = fits_any(ADVICE, line.whole, counter) or (
            line.level is not LineLevel.INFORMS
            and line.definite != line.whole
            and fits_any(SIGNATURES, line.whole, counter)
        )
        return ClassifiedLine(number, line.raw, LineKind.BENIGN, LineRole.ADVICE) if is_advice else None
    role = _role_at_level(signature.kind, signature.role, line)
    return ClassifiedLine(number, line.raw, signature.kind, role, signature.generic)


def _role_at_level(kind: LineKind, role: LineRole, line: LogLine) -> LineRole:
    """Return the role of a finding at the level of its line.

    A program goes on after a warning or an information, so these are no roots. Controllers log as information whom
    they preempt.
    """
    goes_on = line.level is not LineLevel.NONE and kind is not LineKind.SCHEDULER_PREEMPT and "nvrm" not in line.whole
    return LineRole.WARNING if goes_on and role is LineRole.ROOT else role
