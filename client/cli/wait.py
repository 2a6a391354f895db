"""Waiting for a job: asking again until it has ended, through short absences of the API, and telling what changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol

from gpu_recovery.core.job.record import TERMINAL, WAITING
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli.output import say
from gpu_recovery_client.errors import RequestRefused, ServiceUnreachable
from gpu_recovery_client.render.formats import clock, since
from gpu_recovery_client.render.queue import queue_status
from gpu_recovery_client.render.table import cleaned
from rich.console import Console
from rich.text import Text

View = Mapping[str, Any]
POLL_S = 5.0
"""A job's moves take seconds at the least; a hundred people who wait cost the API twenty requests a second."""
ABSENCES_MAX = 12
"""How many times in a row the API may be away, a minute in all, before waiting is given up. The job does not mind."""
SERVER_ERROR = 500


class ProgressDisplay(Protocol):
    """Where progress is shown."""

    def event(self, text: str) -> None:
        """Something that stays to be read."""

    def status(self, text: str) -> None:
        """How things are for now, in place of what was said so before."""


def until_ended(
    client: RecoveryClient,
    job_id: str,
    display: ProgressDisplay,
    now: Callable[[], datetime],
    pause: Callable[[float], None],
) -> dict[str, Any]:
    """The view of the job once it has ended. `teller` hears of every change, and of its place while it is in line."""
    last = ""
    absences = 0
    while True:
        try:
            view = client.job(job_id)
            line = _queue_status(client, view, now())
        except (ServiceUnreachable, RequestRefused) as error:
            absences += 1
            if absences > ABSENCES_MAX or not _passes(error):
                raise
            display.status(f"no answer, asking again: {error}")
            pause(POLL_S)
            continue
        absences = 0
        sentence = ": ".join(part for part in (view["status"], view.get("reason") or "") if part)
        if sentence != last:
            display.event(f"{clock(view.get('status_at'))}  {sentence}")
            last = sentence
        if view["status"] in TERMINAL:
            return view
        lasted = f"{view['status']} for {since(view.get('status_at'), now())}"
        display.status("; ".join(part for part in (lasted, line) if part))
        pause(POLL_S)


def _queue_status(client: RecoveryClient, view: View, now: datetime) -> str:
    if view["status"] not in WAITING:
        return ""
    why = client.explain(view["job_id"]).get("pending")
    return queue_status(why, now) if why else ""


def _passes(error: Exception) -> bool:
    """Whether it may be over by the next time: no answer, or a trouble of the server's own."""
    return isinstance(error, ServiceUnreachable) or (isinstance(error, RequestRefused) and error.status >= SERVER_ERROR)


@contextmanager
def progress_display(console: Console | None = None) -> Iterator[ProgressDisplay]:
    """Progress on stderr: on a terminal with a line that moves, in colour unless NO_COLOR is set; else plain lines."""
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield PlainDisplay()
        return
    with console.status("") as shown:
        yield LiveDisplay(console, shown.update)


class PlainDisplay:
    """Lines for a file or another program: nothing is told twice, and nothing moves."""

    def event(self, text: str) -> None:
        """One line."""
        say(text)

    def status(self, text: str) -> None:
        """Nothing: how long something lasts is no news."""


class LiveDisplay:
    """Lines that stay, and below them one that is always the newest."""

    def __init__(self, console: Console, update: Callable[[Text], None]) -> None:
        self._console, self._update = console, update

    def event(self, text: str) -> None:
        """A line above the one that moves."""
        self._console.print(Text(cleaned(text)))

    def status(self, text: str) -> None:
        """The line that moves, cut to the terminal's width: it is there to be glanced at."""
        words = Text(cleaned(text), no_wrap=True, overflow="ellipsis")
        words.truncate(max(1, self._console.width - len("x ")), overflow="ellipsis")
        self._update(words)
