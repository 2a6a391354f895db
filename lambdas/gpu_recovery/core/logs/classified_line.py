"""Classified line: a log line with its kind, its role and its time."""

from __future__ import annotations

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.line_time import LineTime


@frozen_dataclass()
class ClassifiedLine:
    """A line that the signatures classify.

    number:  line number, from 1.
    line:    the line as it was written, at most `LINE_MAX` characters.
    generic: the line only says that something went wrong.
    time:    the time of the line, or of the last line before it that has a time; None if no line has a time.
    """

    number: int
    line: str
    kind: LineKind
    role: LineRole
    generic: bool = False
    time: LineTime | None = None

    @property
    def gives_reason(self) -> bool:
        """True if the line says why something failed, and not only that it failed."""
        return not self.generic and self.kind is not LineKind.PROCESS_KILLED_UNKNOWN
