"""`gpu-recovery logs`: what a rank wrote, the end of it or all that comes, across the attempts of its job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from gpu_recovery.core.job.record import TERMINAL
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.cli.options import JobId
from gpu_recovery_client.cli.output import AsJson, pause, print_json, say
from gpu_recovery_client.errors import RequestRefused
from gpu_recovery_client.render.table import printable

POLL_S = 2.0
EMPTY_MAX = 100
"""How many empty pages of a log that is over are turned, as long as each says that there is a next one."""
TAIL, NOT_FOUND = 200, 404
View = dict[str, Any]


def logs(
    context: typer.Context,
    job: JobId,
    rank: Annotated[int, typer.Option(min=0, help="Whose; 0 is the one that learns of suspensions.")] = 0,
    attempt: Annotated[int | None, typer.Option(min=1, help="Of which attempt; else of the latest.")] = None,
    tail: Annotated[int, typer.Option(min=1, help="How many lines from the end.")] = TAIL,
    cursor: Annotated[str | None, typer.Option(help="Go on where the page before this one ended.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until the job ends.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what a rank wrote to its log.

    With --follow it goes on into the next attempts, unless one is named, and ends when the job has ended. Ctrl-C ends
    the printing, not the job.
    """
    if follow and as_json:
        raise typer.BadParameter("follows no log; ask for page after page with --cursor", param_hint="--json")
    with context.obj.client() as client:
        if follow:
            try:
                Following(client, job, rank, tail, pause).run(attempt, cursor)
            except KeyboardInterrupt:
                say(f"{job} goes on; `gpu-recovery logs {job} -f` shows its log again")
            return
        page = client.logs(job, rank, attempt, None if cursor else tail, cursor)
    if as_json:
        print_json(page)
        return
    _print(page["lines"])
    if not page["lines"]:
        say(f"attempt {page.get('attempt')} of {job}: rank {rank} has written nothing {'more' if cursor else 'yet'}")


class Following:
    """The log of one rank as it grows. `pause` waits so many seconds between looks."""

    def __init__(
        self, client: RecoveryClient, job_id: str, rank: int, tail: int, pause: Callable[[float], None]
    ) -> None:
        self._client, self._job_id, self._rank, self._tail, self._pause = client, job_id, rank, tail, pause
        self._shown = 0
        """How many lines of the page at the present cursor are printed already."""

    def run(self, attempt: int | None, cursor: str | None) -> None:
        """Print until the job has ended and its log is read to the end, or the `attempt` that is named is over."""
        only = attempt
        told, empty = False, 0
        while True:
            job = self._client.job(self._job_id)  # looked at first: what was written before its end is then read after
            over = job["status"] in TERMINAL or (only is not None and (job.get("attempt") or 0) > only)
            page = self._page(attempt, cursor, waits=not over)
            if page is None:
                if not told:
                    say(f"{self._job_id} is {job['status']}: rank {self._rank} has no log yet")
                told = True
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
                continue  # CloudWatch has empty pages before the end, which is where the cursor stays
            if only is None and attempt is not None and newer > attempt:
                say(f"attempt {newer}")
                attempt, cursor, self._shown = newer, None, 0
                continue
            if over:
                return
            self._pause(POLL_S)

    def _page(self, attempt: int | None, cursor: str | None, *, waits: bool) -> View | None:
        """The page at the cursor; None while there is no log yet, if it is worth waiting for one."""
        tail = None if cursor else self._tail
        try:
            return self._client.logs(self._job_id, self._rank, attempt, tail, cursor)
        except RequestRefused as refusal:
            if refusal.status == NOT_FOUND and waits:
                return None
            raise

    def _next(self, cursor: str | None, page: View) -> str | None:
        """Where to go on. A page that does not say so is asked for again, without what is printed of it already."""
        following = page.get("next_cursor")
        self._shown = 0 if following not in (None, cursor) else len(page["lines"])
        return cursor if following is None else str(following)


def _print(lines: list[Mapping[str, Any]]) -> None:
    for one in lines:
        typer.echo(printable(str(one["text"]).rstrip("\r\n")))
