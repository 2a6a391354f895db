"""Identity of this process (job, attempt, rank, worker), and its observation reporter."""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from .sender import Sender, log

SOCKET, FOLDER, NAME = "GPU_RECOVERY_SOCKET", "GPUTASKER_RUNNING_TASKS_DIR", ".diagnosis.sock"
"""Environment variables of the socket and of its folder, and the default file name."""
TEXT_MAX, LINE_MAX = 200, 1_000
"""Largest number of characters of a text, and of a line."""
LINES = frozenset({"error", "line"})
"""Fields that hold a line."""


@dataclass(frozen=True)
class ProcessIdentity:
    """The identity of this process. `job` is "" outside a job; no observation is reported then.

    `worker` is its name among the others, "" if the rank is enough. `role` is the owner of its GPU memory, such as
    "train", or "aggregator" for a process that passes calls on to the workers of its instance.
    """

    job: str = ""
    attempt: int = 0
    rank: int | None = None
    worker: str = ""
    role: str = ""
    process: str = ""
    path: str | None = None


def of_environment(environment: Mapping[str, str]) -> ProcessIdentity:
    """Return the identity of a process with this environment. An invalid number counts as missing."""
    rank = next(
        (found for name in ("NODE_RANK", "GROUP_RANK", "RANK") if (found := _whole(environment, name)) is not None),
        None,
    )
    local = environment.get("LOCAL_RANK", "")
    worker = environment.get("GPU_RECOVERY_WORKER", "") or (f"{rank}.{local}" if local and rank is not None else "")
    path = environment.get(SOCKET) or os.path.join(
        environment.get(FOLDER) or os.path.expanduser("~/.gputasker/running_tasks"), NAME
    )
    return ProcessIdentity(
        environment.get("JOB_ID", ""),
        _whole(environment, "ATTEMPT") or 0,
        rank,
        worker,
        environment.get("GPU_RECOVERY_ROLE", ""),
        os.urandom(4).hex(),
        None if path == "off" else path,
    )


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


class ObservationReporter:
    """Reports the observations of this process through a sender."""

    def __init__(self, identity: ProcessIdentity, sender: Sender | None = None) -> None:
        self.identity = identity
        self.sender = sender or Sender(identity.path if identity.job else None)
        self._numbers = count(1)

    def send(self, kind: str, *, worker: str = "", urgent: bool = False, **fields: Any) -> None:
        """Report one observation. If `worker` is not this process, it is about a process elsewhere."""
        self.sender.put(self.report(kind, worker, fields), urgent=urgent)

    def send_latest(
        self, kind: str, gap_s: float, key: object, *, worker: str = "", at: float | None = None, **fields: Any
    ) -> None:
        """Report one observation, of which the sender sends at most one per `key` in `gap_s` seconds.

        `at` is the time of the observation if it is not now.
        """
        self.sender.put_latest((kind, worker, key), self.report(kind, worker, fields), gap_s, at)

    def report(self, kind: str, worker: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the observation as docs/protocol.md specifies it, without its age."""
        identity = self.identity
        observation: dict[str, Any] = {
            "type": kind,
            "id": f"{identity.process}-{next(self._numbers)}",
            "job": identity.job,
            "attempt": identity.attempt,
        }
        if worker and worker != identity.worker:
            observation |= {"worker": worker[:TEXT_MAX], "elsewhere": True}
        else:
            observation |= {"worker": identity.worker} if identity.worker else {}
            observation |= {"rank": identity.rank} if identity.rank is not None else {}
            observation |= {"worker_role": identity.role} if identity.role else {}
        return observation | {name: _as_json_value(name, value) for name, value in fields.items() if _has_value(value)}


def _has_value(value: Any) -> bool:
    return value is not None and value != "" and not (isinstance(value, float) and not math.isfinite(value))


def _as_json_value(name: str, value: Any) -> Any:
    return one_line(value, LINE_MAX if name in LINES else TEXT_MAX) if isinstance(value, str) else value


def one_line(text: str, most: int = LINE_MAX) -> str:
    """Return a text on one line, cut to `most` characters."""
    return " ".join(text[: 2 * most].split())[:most]


def sentence(error: BaseException) -> str:
    """Return an exception on one line."""
    text = one_line(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_reporter: list[ObservationReporter] = []


def reporter() -> ObservationReporter:
    """Return the reporter of this process; the first call creates it."""
    if not _reporter:
        _reporter.append(ObservationReporter(of_environment(os.environ)))
    return _reporter[0]


def configure(*, worker: str | None = None, role: str | None = None, socket: str | None = None) -> None:
    """Set the identity of this process where its environment does not say it. Call before the first observation.

    Args:
        worker: its name among all workers of the job.
        role: "train", "rollout", or another owner of GPU memory.
        socket: the socket on which its agent listens.
    """
    identity = reporter().identity
    set_reporter(
        ObservationReporter(
            replace(
                identity,
                worker=identity.worker if worker is None else worker,
                role=identity.role if role is None else role,
                path=identity.path if socket is None else socket,
            )
        )
    )


def set_reporter(new: ObservationReporter | None) -> None:
    """Replace the reporter; with None, the next observation creates one from the environment."""
    if _reporter:
        _reporter[0].sender.finish()
    _reporter[:] = [new] if new is not None else []


def _forked() -> None:
    _reporter.clear()  # a child has no sender thread and another identity


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
