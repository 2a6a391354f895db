"""Arguments and options that several verbs share, with their parsing and completion."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpu_recovery_client.errors import ClientError
from gpu_recovery_client.settings import find_settings
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
"""Seconds of each unit."""
COMPLETING_S = 2.0
"""Longest time in seconds that a completion waits for ids."""
COMPLETED_MAX = 100
"""Largest number of completions."""
PAGE_MAX = 200
"""Largest page of the API."""


def examples(*lines: str) -> str:
    """Return the end of a verb's help. Because of the mark, click leaves the lines unchanged."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def seconds(text: str) -> int:
    """Return `90d`, `12h`, `30m` or `3600` in seconds. Raises typer.BadParameter for anything else."""
    spelt = re.fullmatch(r"([1-9][0-9]{0,9})([smhd]?)", text)
    if spelt is None:
        raise typer.BadParameter(tr("must be a time such as 90d, 12h, 30m or 3600s"))
    return int(spelt[1]) * UNITS_S[spelt[2]]


def moment_of(text: str, now: datetime) -> str:
    """Return the time that `text` means, in the format of the API.

    `text` is how long ago (`2h`), or a date with or without a time, in UTC unless it names an offset. Raises
    typer.BadParameter for anything else.
    """
    if re.fullmatch(r"[0-9]+[smhd]", text):
        try:
            return _rfc3339(now - timedelta(seconds=seconds(text)))
        except (OverflowError, typer.BadParameter) as error:
            raise typer.BadParameter(tr("is too long ago"), param_hint="--since") from error
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        message = tr("must be how long ago, such as 2h, or a time such as 2026-11-21T09:00Z")
        raise typer.BadParameter(message, param_hint="--since") from error
    return _rfc3339(at if at.tzinfo else at.replace(tzinfo=UTC))


def _rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- completion --------------------------------------------------------------------------------------------------------


def jobs_like(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids and the names of jobs that begin with `incomplete`, from one page."""
    return _ids(context, incomplete, _ids_and_names)


def _ids_and_names(client: RecoveryClient) -> Iterator[str]:
    jobs = client.jobs_page(limit=PAGE_MAX)["jobs"]
    yield from (job["job_id"] for job in jobs)
    yield from dict.fromkeys(job["name"] for job in jobs if job.get("name"))


def instances_like(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of instances that begin with `incomplete`."""
    return _ids(context, incomplete, lambda client: (instance["instance_id"] for instance in client.instances([])))


def statuses_like(incomplete: str) -> list[str]:
    """Return the statuses of jobs that begin with `incomplete`."""
    statuses: Any = import_module("gpu_recovery.core.job.status").JobStatus
    return [status.value for status in statuses if status.value.startswith(incomplete.upper())]


def priorities_like(incomplete: str) -> list[str]:
    """Return the names of priorities that begin with `incomplete`, the most urgent first."""
    priorities: Any = import_module("gpu_recovery.core.queue.priority").Priority
    return [name for name in priorities.__members__ if name.startswith(incomplete.upper())]


def _ids(context: typer.Context, incomplete: str, ask: Callable[[RecoveryClient], Iterable[str]]) -> list[str]:
    """Return ids that begin with `incomplete`; none if the API does not respond at once.

    A completion shows no error.
    """
    root = context.find_root()
    connection: Any = import_module("gpu_recovery_client.connection")
    transport = root.obj if isinstance(root.obj, connection.httpx.BaseTransport) else None
    try:
        options = root.params
        url, token, auth, profile = (options.get(name) for name in ("api_url", "token", "auth", "profile"))
        settings = find_settings(url, token, os.environ, Path.cwd(), auth, profile)
        with connection.client_of(settings, transport, timeout_s=COMPLETING_S, pause=_never) as client:
            return list(islice((name for name in ask(client) if name.startswith(incomplete)), COMPLETED_MAX))
    except (ClientError, KeyError, TypeError):
        return []


def _never(_: float) -> None:
    raise ClientError("a completion does not wait")


# -- arguments ---------------------------------------------------------------------------------------------------------

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id or name of the job.", autocompletion=jobs_like)]
JobIds = Annotated[
    list[str] | None, typer.Argument(metavar="JOB", help="Ids or names of jobs.", autocompletion=jobs_like)
]
InstanceIds = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids of instances.", autocompletion=instances_like)
]
User = Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this user.")]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="Only jobs of this group of instances.")]
Because = Annotated[str, typer.Option(help="The reason, which status and e-mails show.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
