"""The output tail: the last lines that the command of a rank wrote.

A diagnosis uses it where no log service stores them. The wrapper forwards standard output and standard error unchanged
and stores the last lines. It does not do so for a terminal, because programs write to a terminal in another way. If
the rank fails, the lines go to the node agent through the socket for observations. Without an agent only these lines
are lost. With GPU_RECOVERY_LAST_WORDS=off no line is stored. The output still goes through the wrapper, because a rank
that writes lines does not hang.
"""

from __future__ import annotations

import errno
import json
import os
import select
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .. import clock
from .files import RankIdentity

SWITCH = "GPU_RECOVERY_LAST_WORDS"
CHUNK_BYTES = 65_536
LINES_MAX, LINE_CHARACTERS_MAX = 96, 400
PART_LINES_MAX, PART_BYTES_MAX, PARTS_MAX = 32, 3_800, 4
"""Largest size of one observation, and how many there are. They fit into what the socket accepts (docs/protocol.md)."""
READER_GONE = (errno.EPIPE, errno.ECONNRESET)
"""Errors of a write to a pipe without a reader."""
FORWARDED_WITHIN_S = 5.0
"""Seconds that the end of a rank waits until its remaining output is forwarded."""
LINE_EVERY_S = 5.0
"""Shortest time in seconds between two lines that are told."""


@dataclass(frozen=True)
class _Pipe:
    """A pipe that replaces the descriptors `numbers`, which lead to the same file."""

    numbers: tuple[int, ...]
    read_end: int
    write_end: int


class OutputTail:
    """Forwards the output of a command, from `begin` to `end`, and stores its last lines.

    It calls `on_line` when the command writes a line, at most once in `LINE_EVERY_S`.
    """

    def __init__(self, environment: Mapping[str, str], on_line: Callable[[], None] = lambda: None) -> None:
        self.on_line, self._line_due_s = on_line, 0.0
        self._lines: deque[str] = deque(maxlen=0 if environment.get(SWITCH) == "off" else LINES_MAX)
        self._pipes = [_pipe(numbers) for numbers in _outputs()]
        self._threads: list[threading.Thread] = []
        self._over, self._ends = os.pipe()

    @property
    def ends(self) -> Mapping[int, int]:
        """Return the descriptors that replace standard output and standard error in the command, by their number."""
        return {number: pipe.write_end for pipe in self._pipes for number in pipe.numbers}

    def begin(self) -> None:
        """Start to forward. Call it once the command has its descriptors, with the forwarded signals blocked."""
        for pipe in self._pipes:
            os.close(pipe.write_end)
            thread = threading.Thread(target=self._forward, args=(pipe,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self) -> list[str]:
        """Forward the rest and return the last lines, the oldest first. Call it when the command has ended.

        A process that the command left behind may hold the output open; `end` does not wait for it.
        """
        os.close(self._ends)
        deadline = clock.monotonic_s() + FORWARDED_WITHIN_S
        for thread in self._threads:
            thread.join(max(deadline - clock.monotonic_s(), 0.0))
        return list(self._lines)

    def _forward(self, pipe: _Pipe) -> None:
        ready_poll = select.poll()
        ready_poll.register(pipe.read_end, select.POLLIN)
        ready_poll.register(self._over, 0)  # poll() reports a hang-up without a request
        rest = b""
        with suppress(OSError):
            while pipe.read_end in (ready := dict(ready_poll.poll())) or self._over not in ready:
                chunk = os.read(pipe.read_end, CHUNK_BYTES)
                if not chunk:
                    break
                _write(pipe.numbers[0], chunk)
                rest = self._append(rest + chunk)
        self._append(rest + b"\n")
        os.close(pipe.read_end)  # the command then gets the same error as without the wrapper

    def _append(self, written: bytes) -> bytes:
        """Store the complete lines and return the incomplete rest."""
        *lines, rest = written.rsplit(b"\n", LINES_MAX)
        for line in lines[-LINES_MAX:]:
            text = line[line.rfind(b"\n") + 1 :].rstrip(b"\r").rpartition(b"\r")[2]  # the last state of a progress bar
            if text.strip():
                self._lines.append(_shortened(text.decode("utf-8", errors="replace")))
        if lines and (now := clock.monotonic_s()) >= self._line_due_s:
            self._line_due_s = now + LINE_EVERY_S
            self.on_line()
        return rest[-CHUNK_BYTES:]


def reports(lines: Sequence[str], rank: RankIdentity) -> list[dict[str, Any]]:
    """Return the observations of the output tail, the last part first."""
    return [
        {
            "type": "written",
            "id": f"written-{rank.rank}-{rank.attempt}-{os.getpid()}-{part}",
            "job": rank.job,
            "attempt": rank.attempt,
            "rank": rank.rank,
            "part": part,
            "lines": part_lines,
            "urgent": True,
        }
        for part, part_lines in enumerate(_parts(lines))
    ]


def _parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield parts of the lines, from the last part to the first. The lines of each part are in their order."""
    left, parts = list(lines), 0
    while left and parts < PARTS_MAX:
        part: list[str] = []
        room = PART_BYTES_MAX
        while left and len(part) < PART_LINES_MAX and (room := room - len(encoded(left[-1])) - 1) >= 0:
            part.insert(0, left.pop())
        yield part
        parts += 1


def encoded(value: Any) -> bytes:
    """Return one line of a datagram."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", errors="replace")


def _outputs() -> list[tuple[int, ...]]:
    """Return the descriptors of standard output and error.

    Both form one group if they lead to the same file, so that their lines stay in order.
    """
    try:
        out, error = os.fstat(1), os.fstat(2)
    except OSError:
        return []
    together = (out.st_dev, out.st_ino) == (error.st_dev, error.st_ino)
    return [numbers for numbers in ([(1, 2)] if together else [(1,), (2,)]) if not os.isatty(numbers[0])]


def _pipe(numbers: tuple[int, ...]) -> _Pipe:
    read_end, write_end = os.pipe()
    return _Pipe(numbers, read_end, write_end)


def _write(number: int, chunk: bytes) -> None:
    """Write all of `chunk`, and block while the reader is slow. Raises OSError if the reader is gone.

    Other errors, such as a full disk, lose the output: they must not stop a training.
    """
    left = memoryview(chunk)
    while left:
        try:
            left = left[os.write(number, left) :]
        except BlockingIOError:
            room = select.poll()
            room.register(number, select.POLLOUT)
            room.poll()
        except OSError as error:
            if error.errno in READER_GONE:
                raise
            return


def _shortened(text: str) -> str:
    """Return the beginning and the end of a long line: an error message stands at either."""
    half = LINE_CHARACTERS_MAX // 2
    return text if len(text) <= LINE_CHARACTERS_MAX else f"{text[: half - 3]} ... {text[2 - half :]}"
