"""Options of `gpu-recovery submit`: fields of the job specification, and ways to submit it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.options import priorities_like
from gpu_recovery_client.texts import tr

Documents = Annotated[
    list[str] | None, typer.Argument(metavar="FILE", help="The job as JSON or YAML; - reads standard input.")
]
File = Annotated[str | None, typer.Option("--file", "-f", help="The same as FILE.")]


def node_count(text: str | int) -> int | dict[str, int]:
    """Return the field `nnodes` of `4`, or of the range `2..4`. The API checks the numbers.

    Raises:
        typer.BadParameter: the text is neither.
    """
    least, dots, most = str(text).partition("..")
    try:
        return {"min": int(least), "max": int(most)} if dots else int(least)
    except ValueError:
        message = tr("must be a whole number or MIN..MAX, not {value}", value=repr(text))
        raise typer.BadParameter(message) from None


# -- fields of the job specification -----------------------------------------------------------------------------------

Workload = Annotated[str | None, typer.Option(help="Name of the kind of work; the id of the job begins with it.")]
Name = Annotated[
    str | None, typer.Option(help="Name of the job. Commands take it in place of the id; several jobs may have it.")
]
Nnodes = Annotated[
    Any, typer.Option(parser=node_count, metavar="NUMBER", help="Number of instances, or MIN..MAX of an elastic job.")
]
GpusPerNode = Annotated[int | None, typer.Option(help="Number of GPUs on each instance.")]
TaskDefinition = Annotated[str | None, typer.Option(help="ECS family, or family:revision.")]
Container = Annotated[str | None, typer.Option(help="Container whose exit code decides.")]
Env = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Variable of every rank; may repeat.")]
JobUser = Annotated[str | None, typer.Option(help="User of the job; only an operator may name another user.")]
JobPriority = Annotated[
    str | None,
    typer.Option(help="LOW to EXTREME_HIGH; NORMAL if not given.", autocompletion=priorities_like),
]
JobGroup = Annotated[str | None, typer.Option(help="Group of instances that the job may run on.")]
AttemptsMax = Annotated[int | None, typer.Option(help="Largest number of counted attempts.")]
MaxRuntimeS = Annotated[
    int | None,
    typer.Option(help="Seconds that an attempt may run. With a limit, the job may start before larger jobs."),
]
ProgressTimeoutS = Annotated[
    int | None,
    typer.Option(
        help="Seconds without progress after which the job counts as hung. The deployment decides without it."
    ),
]
MaxDownMinutes = Annotated[
    int | None,
    typer.Option(
        help="Recovery contract: largest number of minutes from a failure to the next training step. "
        "Operators are notified if it is exceeded."
    ),
]
MaxLostMinutes = Annotated[
    int | None,
    typer.Option(
        help="Recovery contract: largest number of minutes that an incident may cost: downtime plus repeated work."
    ),
]
CheckpointEveryS = Annotated[
    int | None,
    typer.Option(help="Seconds between two checkpoints of the program, for what the recovery contract expects."),
]
ReportsProgress = Annotated[
    bool | None,
    typer.Option("--reports-progress", help="The program reports progress, for what the recovery contract expects."),
]
SuspendGraceS = Annotated[
    int | None, typer.Option(help="Seconds that rank 0 has to save its state when the job is suspended.")
]
CheckpointDir = Annotated[str | None, typer.Option(help="Folder of the checkpoints, as the ranks see it.")]
Backend = Annotated[str | None, typer.Option(help="ecs or ray.")]
Entrypoint = Annotated[str | None, typer.Option(help="On Ray: shell command of the driver.")]

# -- how the job is submitted ------------------------------------------------------------------------------------------

IdempotencyKey = Annotated[
    str | None,
    typer.Option(help="For a day the same key creates no second job. Without the option each call has a new key."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say whether the job would start, where, and if not, why not.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")]
Follow = Annotated[bool, typer.Option("--follow", help="Wait, and print the log of rank 0, across attempts.")]
Example = Annotated[
    bool, typer.Option("--example", help="Only print an example of FILE, with comments; with --backend ray for Ray.")
]
KEY_CHARACTERS_MAX = 255
"""Largest number of characters of an idempotency key."""


def checked_key(key: str | None) -> str | None:
    """Return the idempotency key if the API accepts such keys.

    Raises:
        typer.BadParameter: it is too long, or has characters that a header cannot carry.
    """
    if key is not None and not (1 <= len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()):
        message = tr("must be 1 to {number} printable ASCII characters", number=KEY_CHARACTERS_MAX)
        raise typer.BadParameter(message, param_hint="--idempotency-key")
    return key
