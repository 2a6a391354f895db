"""Dumps of PyTorch's flight recorder: requested before a command is ended, and sent to the agent when it has failed.

PyTorch writes a dump for each process when a collective times out, to `<prefix><rank>`. The prefix is in
TORCH_FR_DUMP_TEMP_FILE or, as older releases call it, TORCH_NCCL_DEBUG_INFO_TEMP_FILE. A hang may be ended before that:
for lack of progress, or by SIGTERM because the gang is stopped. If TORCH_NCCL_DEBUG_INFO_PIPE_FILE names a pipe,
PyTorch listens at `<name><rank>.pipe` and writes a dump once a byte arrives. So the wrapper asks for the dumps first,
and SIGTERM waits for them a little.

Only dumps that have changed since the command began are read. A dump is data of the user, so it is read as plain values
within bounds, and an unreadable dump costs only itself.

The folder of the dumps may be on a shared file system that hangs. So only a thread in the background touches it. The
loop that delivers signals reads the last result of this thread and never waits for it.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import clock
from ..flight_recorder.dump import Dump, read_dump
from ..flight_recorder.dump_files import dump_files, read_file
from ..flight_recorder.pickled import Unreadable
from ..flight_recorder.reports import reports
from .background import Background
from .files import RankIdentity, whole
from .process import POLL_S, SignalPolicy
from .shared_folder import is_shared

PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Variables of the prefix of the dumps, the newer name first, as PyTorch reads them."""
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
OLD_DEFAULT, DEFAULT = "/tmp/nccl_trace_rank_", "torch/comm_lib_trace_rank_"
"""Prefix without a variable: of older releases, and of newer ones below the folder of caches."""
HOLD_S = 3.0
"""Seconds that SIGTERM waits for requested dumps. PyTorch looks at its pipe once a second
(TORCH_NCCL_COORD_CHECK_MILSEC)."""
HELD_POLL_S = 0.2
"""Seconds between two looks for the requested dumps. SIGTERM goes out at the third look that finds them."""
WATCH_S = 5.0
"""Seconds between two looks at the folders of the dumps. So accurate are the age of a dump and the wait in it: the time
of the file may be that of a file server."""
DUMPS_MAX, DUMP_BYTES_MAX, READ_WITHIN_S = 64, 16 * 1024 * 1024, 5.0
"""Dumps of an instance that are read, the largest of them, and the seconds after which no further one is begun."""
TOO_MANY = "warning: there are too many dumps of the flight recorder: the others are not read"
BEGIN_WITHIN_S, END_WITHIN_S = 5.0, 15.0
"""Seconds that the begin of the command waits for the first look, and that its end waits for the dumps."""
REPORTS_MAX = 96
"""Reports of an instance, of the 128 that the server stores for an attempt."""
Version = tuple[int, int]


@dataclass(frozen=True)
class _Seen:
    """A new dump as it was found: its version, and the time of the look that found it.

    at_s: monotonic time in seconds.
    wall_ns: time by the clock of the instance, by which PyTorch writes its records. The time of the file may be that of
        a file server.
    """

    version: Version
    at_s: float
    wall_ns: int


class FlightDumps:
    """The dumps of one run of a command. Create it before the command begins.

    Args:
        environment: the environment of the command.
        say: writes one line to the log of the rank.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        now: Callable[[], float] = clock.monotonic_s,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._environment, self._say, self._now, self._wall_ns = environment, say, now, wall_ns
        self._prefixes = _prefixes(environment)
        self._before: dict[tuple[str, int], Version] = {}
        self._latest = self._at_request = self._before
        self._requested: frozenset[int] | None = None
        self._whole: frozenset[int] = frozenset()
        self._seen: dict[tuple[str, int], _Seen] = {}
        self._looked_at = now()
        self._background = Background()
        self._background.begin(self._look_before)
        if not self.settle(BEGIN_WITHIN_S):
            say("warning: the folder of the flight recorder's dumps does not answer")

    def watch(self) -> None:
        """Look in the background which dumps are new, every WATCH_S seconds. Call it several times a second."""
        if self._now() >= self._looked_at + WATCH_S:
            self._begin_look()

    def request(self) -> bool:
        """Ask the processes of this instance for dumps, in the background. False if no pipe is named."""
        if not self._environment.get(PIPE):
            return False
        self._background.begin(self._ask)
        return True

    def answered(self) -> bool:
        """Return whether each process that listens has written its dump, by the last look. Begin the next look.

        Call it several times: a dump that grows does not count. Older dumps, and dumps of other instances in a folder
        that all share, answer no request.
        """
        answer = self._requested is not None and self._requested <= self._whole
        self._begin_look()
        return answer

    def settle(self, within_s: float) -> bool:
        """Wait for the looks that have begun, at most `within_s` seconds. Return whether they have ended."""
        return self._background.wait(within_s)

    def reports(self, rank: RankIdentity) -> list[dict[str, Any]]:
        """Return the reports of the new dumps of this instance, those of waiting groups first. Never raises.

        If the folder does not answer within END_WITHIN_S, there are none. A part of the dumps would make the
        other ranks look faulty.
        """
        found: list[dict[str, Any]] = []
        said: list[str] = []
        self._background.begin(lambda: found.extend(self._read(rank, said)))
        if not self.settle(END_WITHIN_S):
            self._say("warning: the folder of the flight recorder's dumps does not answer: none is read")
            return []
        for line in said:
            self._say(line)
        return found

    def _read(self, rank: RankIdentity, said: list[str]) -> list[dict[str, Any]]:
        self._look()
        files = _Files(said, self._now, self._now() + READ_WITHIN_S)
        keys = sorted(self._seen, key=lambda key: (key[1], key[0]))
        local = _local_world(next(files.worlds(keys), 0), self._environment)
        found = []
        own = _of_this_instance(keys, local, rank.rank, said)
        read = 0
        for path, number in own:
            if read == DUMPS_MAX:
                said.append(TOO_MANY)
                break
            dump, seen = files.dump(path), self._seen[path, number]
            if dump is None:
                continue
            read += 1
            made = reports(dump, number, local, seen.wall_ns)
            age_s = round(self._now() - seen.at_s, 1)
            # Groups that wait come first. Of a process that waits nowhere each group counts: it may be missing there.
            waits = any("waits_s" in fields for fields in made)
            for order, fields in enumerate(made):
                found.append((waits and "waits_s" not in fields, order, {**fields, "age_s": age_s}))
        found.sort(key=lambda item: item[0])
        return [
            {
                "type": "flight",
                "id": f"flight-{fields['rank']}-{rank.attempt}-{os.getpid()}-{order}",
                "job": rank.job,
                "attempt": rank.attempt,
                "urgent": True,
                **fields,
            }
            for _, order, fields in found[:REPORTS_MAX]
        ]

    def _begin_look(self) -> None:
        if self._background.is_idle:
            self._looked_at = self._now()
            self._background.begin(self._look)

    def _look_before(self) -> None:
        self._before = self._latest = self._at_request = self._versions()

    def _look(self) -> None:
        at_s, wall_ns = self._now(), self._wall_ns()
        earlier, latest = self._latest, self._versions()
        for key, version in latest.items():
            known = self._seen[key].version if key in self._seen else self._before.get(key)
            if version != known:
                self._seen[key] = _Seen(version, at_s, wall_ns)
        self._latest = latest
        self._whole = frozenset(
            key[1]
            for key, version in latest.items()
            if version[1] > 0 and version == earlier.get(key) and version != self._at_request.get(key)
        )

    def _ask(self) -> None:
        asked = set()
        self._at_request = self._versions()
        folder, stem = os.path.split(self._environment[PIPE])
        with suppress(OSError):
            for entry in sorted(os.listdir(folder or ".")):
                rank = entry[len(stem) : -len(".pipe")] if entry.startswith(stem) and entry.endswith(".pipe") else ""
                if rank.isascii() and rank.isdigit() and _poke(os.path.join(folder, entry)):
                    asked.add(int(rank))
        self._whole, self._requested = frozenset(), frozenset(asked)

    def _versions(self) -> dict[tuple[str, int], Version]:
        """Return the time and the size of each dump, by its path and its rank."""
        found = {}
        for prefix in self._prefixes:
            folder, stem = os.path.split(prefix)
            with suppress(OSError):
                for rank, paths in dump_files(Path(folder or "."), stem).items():
                    for path in paths:
                        with suppress(OSError):
                            status = os.lstat(path)
                            if stat.S_ISREG(status.st_mode):
                                found[str(path), rank] = (status.st_mtime_ns, status.st_size)
        return found


class _Files:
    """Reads each file of dumps once, and none after the time `until`.

    said: gets a warning for each file that is not read.
    """

    def __init__(self, said: list[str], now: Callable[[], float], until: float) -> None:
        self._said, self._now, self._until = said, now, until
        self._read: dict[str, Dump | None] = {}

    def dump(self, path: str) -> Dump | None:
        """Return the dump in a file; None if it cannot be read, or the time is over."""
        if path in self._read:
            return self._read[path]
        self._read[path] = None
        if self._now() >= self._until:
            if TOO_MANY not in self._said:
                self._said.append(TOO_MANY)
            return None
        try:
            self._read[path] = read_dump(read_file(Path(path), DUMP_BYTES_MAX))
        except (OSError, Unreadable) as error:
            self._said.append(f"warning: the dump {path} is not read: {error}")
        return self._read[path]

    def worlds(self, keys: Sequence[tuple[str, int]]) -> Iterator[int]:
        """Yield the number of processes of the job by each of the first dumps that tells it."""
        for path, _ in keys[:DUMPS_MAX]:
            dump = self.dump(path)
            if dump is not None and dump.world:
                yield dump.world


class DumpsFirst:
    """A signal policy that asks for dumps before the first SIGTERM, and delays that signal until they are written.

    SIGKILL, and any second signal, goes through at once.

    Args:
        inner: decides the signals.
        dumps: the dumps of the command.
        hold_s: largest delay of the signal in seconds; 0 for a command that must get each signal at once.
        now: monotonic time in seconds.
    """

    def __init__(
        self,
        inner: SignalPolicy,
        dumps: FlightDumps,
        hold_s: float = HOLD_S,
        now: Callable[[], float] = clock.monotonic_s,
    ) -> None:
        self._inner, self._dumps, self._hold_s, self._now = inner, dumps, hold_s, now
        self._until = 0.0
        self._begun = self._held = False

    def on_signal(self, number: int) -> int:
        """Return the signal for the command after the wrapper received `number`."""
        return self._after_dumps(self._inner.on_signal(number))

    def due(self) -> int:
        """Return the signal that is due now."""
        self._dumps.watch()
        number = self._after_dumps(self._inner.due())
        if number == 0 and self._held and (self._dumps.answered() or self._now() >= self._until):
            self._held = False
            return signal.SIGTERM
        return number

    def poll_s(self) -> float:
        """Return the seconds until `due` should be called again."""
        return HELD_POLL_S if self._held else POLL_S

    def _after_dumps(self, number: int) -> int:
        if number == signal.SIGTERM and not self._begun:
            self._begun = True
            asks = self._dumps.request()
            self._held, self._until = asks and self._hold_s > 0, self._now() + self._hold_s
            return 0 if self._held else number
        if number:
            self._held = False
        return number


def _prefixes(environment: Mapping[str, str]) -> tuple[str, ...]:
    named = next((environment[name] for name in PREFIXES if environment.get(name)), "")
    if named:
        return (named,)
    caches = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/tmp", ".cache")
    return (OLD_DEFAULT, os.path.join(caches, DEFAULT))


def _poke(path: str) -> bool:
    """Write a byte to a pipe at which a process listens. Never waits; False if no process listens."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return error.errno == errno.EAGAIN
    try:
        return stat.S_ISFIFO(os.fstat(descriptor).st_mode) and os.write(descriptor, b"1") == 1
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _local_world(world: int, environment: Mapping[str, str]) -> int:
    """Return the number of processes on each instance: those of the job, divided by its instances. 0 if unknown."""
    instances = whole(environment.get("NNODES"), least=1) or whole(environment.get("WORLD_SIZE"), least=1)
    return world // instances if instances and world % instances == 0 else 0


def _of_this_instance(keys: list[tuple[str, int]], local: int, instance: int, said: list[str]) -> list[tuple[str, int]]:
    """Return the dumps of this instance, by path and rank. A folder that instances share has those of others, too."""
    shared = any(is_shared(Path(folder)) for folder in {os.path.dirname(path) for path, _ in keys})
    if not local:
        if shared:
            said.append(
                "warning: the dumps of this instance cannot be told apart in a shared folder: they are not read"
            )
        return [] if shared else keys
    if not shared and len({rank // local for _, rank in keys}) <= 1:
        return keys
    return [key for key in keys if key[1] // local == instance]
