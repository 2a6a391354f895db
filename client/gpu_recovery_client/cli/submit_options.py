"""Options of `gpu-recovery submit`: fields of the job specification, and ways to submit it."""

from __future__ import annotations

from typing import Annotated

import typer

from gpu_recovery_client.cli.options import priorities_like

Documents = Annotated[
    list[str] | None, typer.Argument(metavar="FILE", help="The job as JSON or YAML; '-' reads stdin.")
]
File = Annotated[str | None, typer.Option("--file", "-f", help="The same as FILE.")]

# -- fields of the job specification -----------------------------------------------------------------------------------

Workload = Annotated[str | None, typer.Option(help="What kind of work; the job's id begins with it.")]
Nnodes = Annotated[int | None, typer.Option(help="How many instances.")]
GpusPerNode = Annotated[int | None, typer.Option(help="How many GPUs on each.")]
TaskDefinition = Annotated[str | None, typer.Option(help="ECS family, or family:revision.")]
Container = Annotated[str | None, typer.Option(help="The container whose exit decides.")]
Env = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="For every rank; may repeat.")]
JobUser = Annotated[str | None, typer.Option(help="Who asks; an operator may name anybody.")]
JobPriority = Annotated[
    str | None,
    typer.Option(help="LOW to EXTREME_HIGH; NORMAL if not given.", autocompletion=priorities_like),
]
JobGroup = Annotated[str | None, typer.Option(help="The group of instances it may run on.")]
AttemptsMax = Annotated[int | None, typer.Option(help="How many counted attempts it may have.")]
MaxRuntimeS = Annotated[
    int | None, typer.Option(help="Seconds one attempt may run; lets it be fitted in before larger jobs.")
]
SuspendGraceS = Annotated[int | None, typer.Option(help="Seconds rank 0 has to save its state when it must make room.")]
CheckpointDir = Annotated[str | None, typer.Option(help="Where its ranks keep checkpoints, as they see it.")]
Backend = Annotated[str | None, typer.Option(help="ecs, or ray.")]
Entrypoint = Annotated[str | None, typer.Option(help="On ray: the shell command of the driver.")]

# -- how the job is submitted ------------------------------------------------------------------------------------------

IdempotencyKey = Annotated[
    str | None,
    typer.Option(help="The same key never makes a second job, for a day; else one is made up for this call."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only tell whether it would start, where, and if not, why not.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Stay until it has ended; 0 only if it SUCCEEDED.")]
