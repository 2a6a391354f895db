"""Waits for a job: polls until it has ended, through short outages of the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from gpu_recovery.core.job.status import TERMINAL, WAITING
from rich.console import Console
from rich.text import Text

from gpu_recovery_client.cli.colours import coloured
from gpu_recovery_client.cli.outage import patiently
from gpu_recovery_client.cli.output import say
from gpu_recovery_client.render.formats import clock, since
from gpu_recovery_client.render.queue import queue_status
from gpu_recovery_client.render.text import cleaned
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

View = Mapping[str, Any]
POLL_S = 5.0
"""Seconds between two polls. Changes of a job take seconds; a hundred waiting users cost the API twenty requests a
second.
"""


class ProgressDisplay(Protocol):
    """Where progress is shown."""

    def event(self, text: str) -> None:
        """Show a line that stays."""

    def status(self, text: str) -> None:
        """Show the current state, in place of the state before."""


def until_ended(
    client: RecoveryClient,
    job_id: str,
    display: ProgressDisplay,
    now: Callable[[], datetime],
    pause: Callable[[float], None],
) -> dict[str, Any]:
    """Return the view of the job once it has ended.

    `display` gets every change, and the place while the job is queued.
    """
    last = ""

    def look() -> tuple[dict[str, Any], str]:
        view = client.job(job_id)
        return view, _queue_status(client, view, now())

    def report(error: Exception) -> None:
        display.status(tr("no answer, asking again: {error}", error=error))

    while True:
        view, line = patiently(look, report, pause)
        sentence = ": ".join(part for part in (view["status"], view.get("reason") or "") if part)
        if sentence != last:
            display.event(f"{clock(view.get('status_at'))}  {sentence}")
            last = sentence
        if view["status"] in TERMINAL:
            return view
        lasted = tr("{status} for {time}", status=view["status"], time=since(view.get("status_at"), now()))
        display.status("; ".join(part for part in (lasted, line) if part))
        pause(POLL_S)


def _queue_status(client: RecoveryClient, view: View, now: datetime) -> str:
    if view["status"] not in WAITING:
        return ""
    why = client.explain(view["job_id"]).get("pending")
    return queue_status(why, now) if why else ""


@contextmanager
def progress_display(console: Console | None = None) -> Iterator[ProgressDisplay]:
    """Yield a display on stderr: on a terminal with a status line, in colour unless NO_COLOR is set.

    Without a terminal it prints plain lines.
    """
    console = console or Console(stderr=True, highlight=False)
    if not console.is_terminal:
        yield PlainDisplay()
        return
    with console.status("") as shown:
        yield LiveDisplay(console, shown.update)


class PlainDisplay:
    """Lines for a file or another program: no line is repeated or overwritten."""

    def event(self, text: str) -> None:
        """Print one line."""
        say(text)

    def status(self, text: str) -> None:
        """Do nothing: the state is not an event."""


class LiveDisplay:
    """Lines that stay, and below them a status line."""

    def __init__(self, console: Console, update: Callable[[Text], None]) -> None:
        self._console, self._update = console, update

    def event(self, text: str) -> None:
        """Print a line above the status line."""
        self._console.print(coloured(cleaned(text)))

    def status(self, text: str) -> None:
        """Replace the status line, cut to the terminal's width."""
        words = coloured(cleaned(text))
        words.no_wrap, words.overflow = True, "ellipsis"
        words.truncate(max(1, self._console.width - len("x ")), overflow="ellipsis")
        self._update(words)
