"""Repair record: the line that says who ordered a reboot or a replacement of this machine, and why.

The server sends the line in its answer to a report. The agent appends it to a file below /var/log, and sends it to the
journal. After a boot the agent finds the last line in the file again and reports it. A line that cannot be written is
logged once; a repair never waits for it.
"""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.responses import RepairLine

TAIL_BYTES, FILE_BYTES_MAX = 65_536, 1_048_576
"""Bytes of the file that are read for the last line, and the size from which it is moved to `<name>.1`."""
_LINE = re.compile(r"boot=([0-9a-f-]{36}) repair=(\d{1,15}) (.{1,500})")


@dataclass(frozen=True)
class WrittenLine:
    """A line in the file: the repair, the text, and the boot under which it was written."""

    epoch: int
    text: str
    boot_id: str


class RepairRecord:
    """The lines on this machine, in `file` and in the journal with this socket; None: not there."""

    def __init__(self, file: Path | None, journal: Path | None, boot_id: str, log: AgentLog) -> None:
        self._file, self._journal, self._boot_id, self._log = file, journal, boot_id, log
        self._last: WrittenLine | None = None
        self._is_reported = True

    def restore(self) -> None:
        """Find the last line in the file. It is reported with the next report."""
        if self._file is None:
            return
        try:
            with self._file.open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - TAIL_BYTES, 0))
                text = file.read(TAIL_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return  # usually there is no file, because nothing was ever ordered
        found = [match for match in map(_LINE.search, text.splitlines()) if match is not None]
        if found:
            self._last = WrittenLine(int(found[-1][2]), found[-1][3].strip(), found[-1][1])
            self._is_reported = False

    def add(self, lines: tuple[RepairLine, ...]) -> bool:
        """Write the lines of an answer that the machine does not have. Return whether there is something to report."""
        for line in lines if self._file is not None else ():
            if self._last is None or self._last.epoch != line.epoch:
                self._write(line)
            else:
                self._is_reported = False  # the server asks again, so it does not know that the machine has the line
        return not self._is_reported

    @property
    def unreported(self) -> WrittenLine | None:
        """The last line, if the server has not confirmed the report of it."""
        return None if self._is_reported else self._last

    def acknowledge(self, reported: WrittenLine | None) -> None:
        """Note that the server has received the report of this line."""
        if reported is not None and reported == self._last:
            self._is_reported = True

    def _write(self, line: RepairLine) -> None:
        """Write the line: to the journal first, which needs no room on a disk."""
        self._send_to_journal(line.text)
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            if self._file.exists() and self._file.stat().st_size > FILE_BYTES_MAX:
                self._file.replace(self._file.with_name(f"{self._file.name}.1"))
            with self._file.open("a", encoding="utf-8") as file:
                file.write(f"boot={self._boot_id} repair={line.epoch} {line.text}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._log.once("repair record", f"{self._file} cannot be written: {error.strerror}")
            return
        self._log.write(f"repair {line.epoch} of this machine was ordered: {self._file} has the reason")
        self._last, self._is_reported = WrittenLine(line.epoch, line.text, self._boot_id), False

    def _send_to_journal(self, text: str) -> None:
        """Send the line to the journal of the machine, in its native protocol. Never waits."""
        if self._journal is None:
            return
        entry = f"MESSAGE={text}\nPRIORITY=4\nSYSLOG_IDENTIFIER=gpu-recovery\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(entry.encode("utf-8", errors="replace"), str(self._journal))
        except OSError as error:
            self._log.once("journal", f"{self._journal} does not take the line: {error.strerror}")
