"""Who tells: the job, attempt, rank and worker of this process, and the one sender that it has."""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from gpu_recovery_client.diagnosis.sender import Sender, log

SOCKET, FOLDER, NAME = "GPU_RECOVERY_SOCKET", "GPUTASKER_RUNNING_TASKS_DIR", ".diagnosis.sock"
TEXT_MAX, LINE_MAX = 200, 1_000
LINES = frozenset({"error", "line"})


@dataclass(frozen=True)
class ProcessIdentity:
    """This process. `job` is "" outside of a job, and nothing is told then.

    worker: its name among the others, "" if the rank says enough; role: whose GPU memory it is, such as "train".
    """

    job: str = ""
    attempt: int = 0
    rank: int | None = None
    worker: str = ""
    role: str = ""
    process: str = ""
    path: str | None = None


def of_environment(environment: Mapping[str, str]) -> ProcessIdentity:
    """Who a process with this environment is. A number that is none is one that was not told."""
    rank = next(
        (found for name in ("NODE_RANK", "GROUP_RANK", "RANK") if (found := _whole(environment, name)) is not None),
        None,
    )
    local = environment.get("LOCAL_RANK", "")
    worker = environment.get("GPU_RECOVERY_WORKER", "") or (f"{rank}.{local}" if local and rank is not None else "")
    given = environment.get(SOCKET) or os.path.join(
        environment.get(FOLDER) or os.path.expanduser("~/.gputasker/running_tasks"), NAME
    )
    return ProcessIdentity(
        environment.get("JOB_ID", ""),
        _whole(environment, "ATTEMPT") or 0,
        rank,
        worker,
        environment.get("GPU_RECOVERY_ROLE", ""),
        os.urandom(4).hex(),
        None if given == "off" else given,
    )


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


class ObservationReporter:
    """What this process tells, and through which sender."""

    def __init__(self, teller: ProcessIdentity, sender: Sender | None = None) -> None:
        self.identity = teller
        self.sender = sender or Sender(teller.path if teller.job else None)
        self._numbers = count(1)

    def send(self, kind: str, *, worker: str = "", urgent: bool = False, **fields: Any) -> None:
        """One report. `worker` other than this process: it is about one elsewhere."""
        self.sender.put(self.report(kind, worker, fields), urgent=urgent)

    def send_latest(
        self, kind: str, gap_s: float, key: object, *, worker: str = "", at: float | None = None, **fields: Any
    ) -> None:
        """One report, of which the sender sends no more than one for `key` in `gap_s`; observed `at`, if not now."""
        self.sender.put_latest((kind, worker, key), self.report(kind, worker, fields), gap_s, at)

    def report(self, kind: str, worker: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """As docs/protocol.md has it, without its age."""
        me = self.identity
        found: dict[str, Any] = {
            "type": kind,
            "id": f"{me.process}-{next(self._numbers)}",
            "job": me.job,
            "attempt": me.attempt,
        }
        if worker and worker != me.worker:
            found |= {"worker": worker[:TEXT_MAX], "elsewhere": True}
        else:
            found |= {"worker": me.worker} if me.worker else {}
            found |= {"rank": me.rank} if me.rank is not None else {}
        return found | {name: _as_json_value(name, value) for name, value in fields.items() if _says(value)}


def _says(value: Any) -> bool:
    return value is not None and value != "" and not (isinstance(value, float) and not math.isfinite(value))


def _as_json_value(name: str, value: Any) -> Any:
    return one_line(value, LINE_MAX if name in LINES else TEXT_MAX) if isinstance(value, str) else value


def one_line(text: str, most: int = LINE_MAX) -> str:
    """A text on one line, cut."""
    return " ".join(text[: 2 * most].split())[:most]


def sentence(error: BaseException) -> str:
    """An exception on one line."""
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_reporter: list[ObservationReporter] = []


def reporter() -> ObservationReporter:
    """The voice of this process; made at its first word."""
    if not _reporter:
        _reporter.append(ObservationReporter(of_environment(os.environ)))
    return _reporter[0]


def configure(*, worker: str | None = None, role: str | None = None, socket: str | None = None) -> None:
    """Say who this process is, before anything else is told, where its environment does not.

    worker: its name among all workers of the job; role: "train", "rollout", or what it holds GPU memory as; socket:
    where its agent listens.
    """
    now = reporter().identity
    set_reporter(
        ObservationReporter(
            replace(
                now,
                worker=now.worker if worker is None else worker,
                role=now.role if role is None else role,
                path=now.path if socket is None else socket,
            )
        )
    )


def set_reporter(new: ObservationReporter | None) -> None:
    """Put another voice in its place; None: the next word makes one of the environment."""
    if _reporter:
        _reporter[0].sender.finish()
    _reporter[:] = [new] if new is not None else []


def _forked() -> None:
    _reporter.clear()  # a child has no thread, and is another process


def _ends() -> None:
    if _reporter:
        _reporter[0].sender.finish()


os.register_at_fork(after_in_child=_forked)
atexit.register(_ends)
__all__ = [
    "ObservationReporter",
    "ProcessIdentity",
    "configure",
    "log",
    "of_environment",
    "one_line",
    "reporter",
    "sentence",
    "set_reporter",
]
