"""Log line normalization: removes colours, time stamps and marks of ranks and hosts.

Progress bars are removed as well.
"""

from __future__ import annotations

import re
from enum import Enum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

LINE_MAX = 4_096
"""Upper bound of characters of a line that are read. Of a longer line, the first and the last half of that are"
" read."""
PREFIXES_MAX = 8
"""Upper bound of the prefixes that log carriers may have added to a line."""

_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\^_])")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\ufeff\ufffd]+")
_WHO = re.compile(
    r"\[(?:rank|default|node)?\d{1,6}\]:? ?"  # torchrun, Megatron
    r"|\[\d+,\d+\]<\w+>: ?"  # mpirun
    r"|\d{1,5}: "  # srun --label
    r"|(?:\d{1,3}\.){3}\d{1,3}: |[a-z][a-z-]{0,40}\d[\w.-]{0,60}: (?=[ \[T]|[\w.]{1,120}(?:Error"
    r"|Exception)\b)"  # pdsh
    r"|\((?:[\w.:<>/ -]{1,80} )?pid=\d+(?:, ip=[\w.:-]+)?\) ?"  # Ray
    r"|\(raylet(?:, ip=[\w.:-]+)?\) ?"
    r"|(?!(?:nfs|error|warning|info|python|kernel)\b)[\w.-]{1,64} {1,20}\| "  # docker compose
)
_WHEN = re.compile(
    r"\[ {0,12}\d+\.\d+\] ?"  # the kernel's clock
    r"|\[\w{3} \w{3} {1,2}\d{1,2} [\d:.]{8,16} \d{4}\] ?"  # dmesg -T
    r"|\[\w{3} \d{2} \d{4} [\d:.]{8,16}\] ?"  # the fabric manager
    r"|kern {0,4}:\w{1,8} {0,4}: ?|<\d{1,3}>(?=\S)|\d,\d{1,9},\d{1,16},-;"  # dmesg -x, /dev/kmsg
    r"|\[?\(?\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?:Z| ?[+-]\d{2}:?\d{2})?"
    r"(?: [TDPE]P\d{1,4}){0,4}\]?\)?(?: std(?:out|err) [FP])?:? ?"  # the ranks are SGLang's
    r"|\[?\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?\]? "
    r"|\w{3} {1,2}\d{1,2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})? [\w.:-]{1,128} (?=[\w./-]{1,64}(?:\[\d+\])?: )"  # journald
    r"|[\w.-]{1,128} (?=kernel: )|kernel: ?"
)
_LEVEL = re.compile(
    r"(?<!=)\b(INFO|DEBUG|TRACE|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b|\b(\w{2,30}Warning):"
    r"|\[([EWIFVD])\d{3,4} |^([EWIF])\d{4} |(?:^| )([EWIF]) (?=tensorflow|external|xla)"
    r"|\b(?:level|severity)[\"']?[=:] ?[\"']?(\w{1,12})|<(info|debug|trace|warn)>"
    r"|^(info|debug|trace)\b(?=[: ])"
    r"|,\d{3} ([EWIFD]) \d{1,8}\b"  # Ray
    r"|\[([EWIF]) \w{2,40}\.(?:cpp|cc|h):\d"  # PyTorch before 2.3
)
_INFORMATION = frozenset({"info", "debug", "trace", "notice", "i", "v", "d"})
_KERNEL_INFO = re.compile(r"INFO: (?:task|rcu)")
_WARN_IS_ERROR = re.compile(r"NCCL WARN|NET/OFI|libfabric:|_\w+\(\):\d+<warn>")
"""NCCL and libfabric print their errors at the level WARN."""
_LEVEL_WITHIN = 200
_SENTENCES = re.compile(r"(?<=[.?!;])\s+|\\n|,\s+(?=(?:please|you can|you may|try|consider|perhaps|possibly)\b)")
_CONDITIONAL = re.compile(
    r"\b(?:might|may|could) (?!not\b)(?:also |either |then )?(?:be|been|have|indicate|mean|cause|fail|lead|result"
    r"|run|need|happen|want|suggest|degrade)\b"
    r"|\b(?:possibly|perhaps|probably|maybe)\b|\bit is possible\b"
    r"|\b(?:most |very )?likely (?:caused|due|because|that|a)\b"
    r"|\b(?:potential|possible|common) (?:root )?(?:cause|reason)s?\b|\bpossible application crash\b"
    r"|\bplease (?:try|check|make|see|consider|refer|set|use|ensure|verify|note|report|update|increase|reduce)\b"
    r"|\byou (?:can|could|may|might|should|will need|want)\b|\bconsider(?: \w+ing|:)|\btry (?:\w+ing|to)\b"
    r"|\bif (?:you|this|the|your|reserved|it|there|an?|any|that|not|so)\b"
    r"|\bif [a-z]+ (?:is|are|was|runs?|fails?)\b|\bin case\b|\bunless\b"
    r"|(?<!failed )(?<!unable )\bto (?:avoid|prevent|fix|debug|resolve|suppress|silence) \w|\bfor debugging\b"
    r"|\bwould (?:be|have)\b"
)
_EXCEPTION_OR_ERROR = re.compile(
    r"^\s{0,8}(?:[\w.]{1,160}\.)?[a-z_]\w{0,80}(?:error|exception|exit|interrupt)\b"
    r"|(?<![\w-])[\w.]{0,160}(?:error|exception)(?:\(s\))?\]? ?[:(]|\bwhat\(\): |\bfatal\b|^\s{0,8}(?:value )?error\b"
    r"|\bnccl warn\b|\bnvrm: "
)
_ERROR_LEVEL = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b|(?:^|\[)[EF]\d{3,4} |,\d{3} [EF] \d{1,8}\b|\blevel=(?:error|fatal)\b"
)
_LED_BY_AN_ERROR = re.compile(
    r"\s*(?:what\(\): |nvrm: |.{0,160}\bnccl warn |[a-z_][\w.]{0,120}(?:error|exception|interrupt|exit|refused): )",
    re.IGNORECASE,
)


class LineLevel(Enum):
    """The level that a line states."""

    NONE = "none"  # none, or an error
    INFORMS = "informs"
    WARNS = "warns"


@frozen_dataclass()
class LogLine:
    """A normalized line.

    raw:      the line as it was written, cut to `LINE_MAX`.
    tag:      the writer, if several write into one log ("[rank0]:"); "" if the line does not name it.
    text:     the line without prefixes; leading blanks stay.
    whole:    `text` in lower case.
    definite: `whole` without conditional sentences.
    level:    the level that the line states.
    stamp:    the time stamp that was removed, as it was written; "" if the line has none.
    """

    raw: str
    tag: str
    text: str
    whole: str
    definite: str
    level: LineLevel
    stamp: str = ""

    @property
    def states_error(self) -> bool:
        """True if the line is an exception or states an error, by its words or by its level."""
        if self.level is not LineLevel.NONE:
            return False
        return (
            _EXCEPTION_OR_ERROR.search(self.whole) is not None
            or _ERROR_LEVEL.search(self.raw, 0, _LEVEL_WITHIN) is not None
        )

    @property
    def is_indented(self) -> bool:
        """True if the line continues the line before it."""
        return self.text[:1] in (" ", "\t")


def read(raw: str | bytes) -> LogLine:
    """Normalize a line. Any text and any bytes are accepted, including invalid UTF-8."""
    text = raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw
    raw = text = _capped(text.rstrip("\r\n"))
    text = _UNPRINTABLE.sub(" ", _COLOURS.sub("", text)) if not text.isprintable() else text
    level = _level(text)
    tag, stamp, text = _without_prefixes(text)
    whole = text.lower()
    return LogLine(raw, tag, text, whole, definite(whole), level, stamp)


def _capped(text: str) -> str:
    return text if len(text) <= LINE_MAX else f"{text[: LINE_MAX // 2]} {text[-LINE_MAX // 2 :]}"


def _level(text: str) -> LineLevel:
    """Return the level that the beginning of the line states."""
    match = _LEVEL.search(text, 0, _LEVEL_WITHIN)
    if match is None or _KERNEL_INFO.match(text, match.start()):
        return LineLevel.NONE
    level = next((group for group in match.groups() if group), "").lower()
    if level.endswith("warning") or (level.startswith("w") and _WARN_IS_ERROR.search(text) is None):
        return LineLevel.WARNS
    return LineLevel.INFORMS if level in _INFORMATION else LineLevel.NONE


def _without_prefixes(text: str) -> tuple[str, str, str]:
    """Return the marks of ranks, joined, the first time stamp, and the rest of the text without marks and stamps."""
    at, tag, first = 0, "", ""
    for _ in range(PREFIXES_MAX):
        if (mark := _WHO.match(text, at)) is not None and mark.end() > at:
            tag, at = tag + mark.group().strip(), mark.end()
        elif (stamp := _WHEN.match(text, at)) is not None and stamp.end() > at:
            first, at = first or stamp.group(), stamp.end()
        else:
            break
    return tag, first, text[at:]


def definite(text: str) -> str:
    """Return the sentences of a line in lower case that state facts, without suggestions and assumptions.

    The first sentence of an exception, of a warning of NCCL and of the driver is always a fact: the error happened,
    even if the text only assumes its reason. A line break that JSON escapes also ends a sentence.
    """
    if _CONDITIONAL.search(text) is None:
        return text
    sentences = _SENTENCES.split(text)
    kept = [sentence for sentence in sentences[1:] if _CONDITIONAL.search(sentence) is None]
    led = _LED_BY_AN_ERROR.match(sentences[0]) is not None
    if led or _CONDITIONAL.search(sentences[0]) is None:
        kept.insert(0, sentences[0])
    return " ".join(kept)
