"""`gpu-recovery logs`: the log of a rank, also as it grows and across attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer
from gpu_recovery.core.job.status import TERMINAL

from gpu_recovery_client.cli.job_names import job_id_of
from gpu_recovery_client.cli.options import JobId
from gpu_recovery_client.cli.outage import patiently
from gpu_recovery_client.cli.output import AsJson, pause, print_document, say
from gpu_recovery_client.errors import RequestRefused
from gpu_recovery_client.render.text import printable
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

POLL_S = 2.0
"""Seconds between two polls of a log."""
EMPTY_MAX = 100
"""Largest number of empty pages of an ended log that are read, as long as each names a next page."""
TAIL = 200
"""Default number of lines from the end."""
View = dict[str, Any]


def logs(
    context: typer.Context,
    job: JobId,
    rank: Annotated[
        int, typer.Option(min=0, help="Rank whose log is printed. Rank 0 receives the notices of suspension.")
    ] = 0,
    attempt: Annotated[int | None, typer.Option(min=1, help="Number of the attempt; else the latest.")] = None,
    tail: Annotated[int, typer.Option(min=1, help="Number of lines from the end.")] = TAIL,
    cursor: Annotated[str | None, typer.Option(help="Continue after the page that showed this cursor.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the job ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the log of a rank.

    With --follow, the logs of later attempts follow, unless --attempt is given. The command ends when the job has
    ended. Ctrl-C stops the printing, not the job.
    """
    if follow and as_json:
        raise typer.BadParameter(
            tr("does not go with --follow; read page by page with --cursor"), param_hint="--output"
        )
    with context.obj.client() as client:
        job = job_id_of(client, job)
        if follow:
            try:
                Following(client, job, rank, tail, pause).run(attempt, cursor)
            except KeyboardInterrupt:
                say(tr("{job} continues; `gpu-recovery logs {job} -f` shows its log again", job=job))
            return
        page = client.logs(job, rank, attempt, None if cursor else tail, cursor)
    if as_json:
        print_document(page)
        return
    _print(page["lines"])
    if not page["lines"]:
        values = {"attempt": page.get("attempt"), "job": job, "rank": rank}
        if cursor:
            say(tr("attempt {attempt} of {job}: rank {rank} has written nothing more", **values))
        else:
            say(tr("attempt {attempt} of {job}: rank {rank} has written nothing yet", **values))


class Following:
    """Follows the log of one rank. `pause` waits this many seconds between polls."""

    def __init__(
        self, client: RecoveryClient, job_id: str, rank: int, tail: int, pause: Callable[[float], None]
    ) -> None:
        self._client, self._job_id, self._rank, self._tail, self._pause = client, job_id, rank, tail, pause
        self._shown = 0
        """Number of lines of the page at the current cursor that are already printed."""

    def run(self, attempt: int | None, cursor: str | None) -> None:
        """Print until the job has ended and its log is read to the end, or until the named `attempt` is over."""
        only = attempt
        has_said, empty = False, 0
        while True:
            job = self._patiently(
                lambda: self._client.job(self._job_id)
            )  # read it before the log, so that no line before its end is missed
            over = job["status"] in TERMINAL or (only is not None and (job.get("attempt") or 0) > only)
            page = self._page(attempt, cursor, waits=not over)
            if page is None:
                if not has_said:
                    values = {"job": self._job_id, "status": job["status"], "rank": self._rank}
                    say(tr("{job} is {status}: rank {rank} has no log yet", **values))
                has_said = True
                self._pause(POLL_S)
                continue
            if attempt is None:
                attempt = page["attempt"]
            new = page["lines"][self._shown :]
            _print(new)
            before, cursor = cursor, self._next(cursor, page)
            newer = job.get("attempt") or 0
            ended = over or newer > (attempt or 0)
            empty = 0 if new else empty + 1
            if new or (ended and cursor != before and empty < EMPTY_MAX):
                continue  # CloudWatch returns empty pages before the end; at the end the cursor stays the same
            if only is None and attempt is not None and newer > attempt:
                say(tr("attempt {number}", number=newer))
                attempt, cursor, self._shown = newer, None, 0
                continue
            if over:
                return
            self._pause(POLL_S)

    def _page(self, attempt: int | None, cursor: str | None, *, waits: bool) -> View | None:
        """Return the page at the cursor; None while there is no log yet, if `waits`."""
        tail = None if cursor else self._tail
        try:
            return self._patiently(lambda: self._client.logs(self._job_id, self._rank, attempt, tail, cursor))
        except RequestRefused as refusal:
            if refusal.status == HTTPStatus.NOT_FOUND and waits:
                return None
            raise

    def _patiently(self, ask: Callable[[], View]) -> View:
        """Return the answer of `ask`, also after a short outage of the API."""
        return patiently(ask, lambda error: say(tr("no answer, asking again: {error}", error=error)), self._pause)

    def _next(self, cursor: str | None, page: View) -> str | None:
        """Return the next cursor. If the page names none, it is read again, without its printed lines."""
        following = page.get("next_cursor")
        self._shown = 0 if following not in (None, cursor) else len(page["lines"])
        return cursor if following is None else str(following)


def _print(lines: list[Mapping[str, Any]]) -> None:
    for entry in lines:
        typer.echo(printable(str(entry["text"]).rstrip("\r\n")))
