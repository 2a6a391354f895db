"""The last lines that the command of a rank wrote, for a diagnosis where no log service keeps them.

What it writes to its standard output and error goes on to where it went before, unchanged, and on its way the end of it
is kept. At a terminal nothing stands in between: programs write there in another way. Where the rank has failed the
lines go to the node agent, through the socket by which trainings tell; without an agent they are gone, and only they.
"""

from __future__ import annotations

import errno
import json
import os
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_recovery_agent import clock
from gpu_recovery_agent.files import socket_address
from gpu_recovery_agent.rank.files import RankIdentity

SWITCH = "GPU_RECOVERY_LAST_WORDS"
CHUNK_BYTES = 65_536
LINES_MAX, LINE_CHARACTERS_MAX = 96, 400
PART_LINES_MAX, PART_BYTES_MAX, PARTS_MAX = 32, 3_800, 4
"""What one report holds, and how many there are: within what the socket takes (docs/protocol.md)."""
READER_GONE = (errno.EPIPE, errno.ECONNRESET)
FORWARDED_WITHIN_S = 5.0
"""How long the end of a rank waits for whoever takes its output."""


@dataclass(frozen=True)
class _Pipe:
    """A pipe in the place of the descriptors `numbers`, which lead to the same file."""

    numbers: tuple[int, ...]
    read_end: int
    write_end: int


class OutputTail:
    """Stands between a command and the place of its output, from `begin` to `end`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self._pipes = [] if environment.get(SWITCH) == "off" else [_pipe(numbers) for numbers in _outputs()]
        self._threads: list[threading.Thread] = []
        self._over, self._ends = os.pipe()

    @property
    def ends(self) -> Mapping[int, int]:
        """The descriptor that the command has in the place of its standard output, or error."""
        return {number: way.write_end for way in self._pipes for number in way.numbers}

    def begin(self) -> None:
        """Passes on what comes. Called once the command has its ends, where the signals that matter are blocked."""
        for way in self._pipes:
            os.close(way.write_end)
            thread = threading.Thread(target=self._forward, args=(way,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self) -> list[str]:
        """Passes on what is still under way; the last lines, the oldest first. Called when the command has ended.

        What it left behind may hold the output open, and is not waited for.
        """
        os.close(self._ends)
        deadline = clock.monotonic_s() + FORWARDED_WITHIN_S
        for thread in self._threads:
            thread.join(max(deadline - clock.monotonic_s(), 0.0))
        return list(self._lines)

    def _forward(self, way: _Pipe) -> None:
        come = select.poll()
        come.register(way.read_end, select.POLLIN)
        come.register(self._over, 0)  # its end is told unasked
        rest = b""
        with suppress(OSError):
            while way.read_end in (ready := dict(come.poll())) or self._over not in ready:
                chunk = os.read(way.read_end, CHUNK_BYTES)
                if not chunk:
                    break
                _write(way.numbers[0], chunk)
                rest = self._keep(rest + chunk)
        self._keep(rest + b"\n")
        os.close(way.read_end)  # where nobody takes the output any more the command is told so, as without us

    def _keep(self, written: bytes) -> bytes:
        """Keep its last lines; what has no end yet."""
        *lines, rest = written.rsplit(b"\n", LINES_MAX)
        for line in lines[-LINES_MAX:]:
            text = line[line.rfind(b"\n") + 1 :].rstrip(b"\r").rpartition(b"\r")[2]  # of a progress bar, its end
            if text.strip():
                self._lines.append(_shortened(text.decode("utf-8", errors="replace")))
        return rest[-CHUNK_BYTES:]


def send(lines: Sequence[str], rank: RankIdentity, path: Path) -> None:
    """Tells the agent that listens at `path`; nobody may, and nothing follows of that."""
    reports = [
        {
            "type": "written",
            "id": f"written-{rank.rank}-{rank.attempt}-{os.getpid()}-{part}",
            "job": rank.job,
            "attempt": rank.attempt,
            "rank": rank.rank,
            "part": part,
            "lines": told,
            "urgent": True,
        }
        for part, told in enumerate(_parts(lines))
    ]
    if not reports:
        return
    datagram = b"\n".join(_encoded(one) for one in reports)
    how = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with suppress(OSError), socket.socket(socket.AF_UNIX, how) as way, socket_address(path) as address:
        way.sendto(datagram, address)


def _parts(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines from the end, as many in each part as it holds, in their order there."""
    left, parts = list(lines), 0
    while left and parts < PARTS_MAX:
        part: list[str] = []
        room = PART_BYTES_MAX
        while left and len(part) < PART_LINES_MAX and (room := room - len(_encoded(left[-1])) - 1) >= 0:
            part.insert(0, left.pop())
        yield part
        parts += 1


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", errors="replace")


def _outputs() -> list[tuple[int, ...]]:
    """Standard output and error, together where they lead to the same file: what is written stays in its order."""
    try:
        out, error = os.fstat(1), os.fstat(2)
    except OSError:
        return []
    together = (out.st_dev, out.st_ino) == (error.st_dev, error.st_ino)
    return [one for one in ([(1, 2)] if together else [(1,), (2,)]) if not os.isatty(one[0])]


def _pipe(numbers: tuple[int, ...]) -> _Pipe:
    read_end, write_end = os.pipe()
    return _Pipe(numbers, read_end, write_end)


def _write(number: int, chunk: bytes) -> None:
    """All of it, however long nobody reads. Raises OSError where nobody ever will.

    What has no room, on a full disk say, is lost: that must not stop a training.
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
    """A line from both of its ends: what went wrong stands at one of them."""
    half = LINE_CHARACTERS_MAX // 2
    return text if len(text) <= LINE_CHARACTERS_MAX else f"{text[: half - 3]} ... {text[2 - half :]}"
