"""`gpu-recovery fleet` and `gpu-recovery redrive`: fleet limits and dead-letter queues."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.options import examples
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, now, print_view, terminal_width
from gpu_recovery_client.render import fleet

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Show the fleet limits: repair budget, circuit breaker, pause. Shows the instances under repair, the held "
    "repairs, and every other instance that gets no job, with their reasons.",
    epilog=examples("gpu-recovery fleet", "gpu-recovery fleet --json"),
)


class Queue(StrEnum):
    """The dead-letter queues."""

    FAILED = "failed"
    UNDELIVERED = "undelivered"
    SCHEDULER = "scheduler"


@app.callback()
def show(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the fleet limits, and the instances that get no job with their reasons."""
    if context.invoked_subcommand is not None:
        return
    with context.obj.client() as client:
        if not _print_fleet(context, client.fleet(), as_json):
            raise typer.Exit(FAILED)


@app.command(epilog=examples('gpu-recovery fleet pause --because "new driver on half of the hosts"'))
def pause(
    context: typer.Context,
    because: Annotated[str, typer.Option(help="Why, for whoever finds it so.")],
    as_json: AsJson = False,
) -> None:
    """Let no repair begin until `unpause`. Repairs that EC2 has begun continue."""
    with context.obj.client() as client:
        _print_fleet(context, client.pause(because), as_json)


@app.command(epilog=examples("gpu-recovery fleet unpause"))
def unpause(context: typer.Context, as_json: AsJson = False) -> None:
    """Let repairs begin again."""
    with context.obj.client() as client:
        _print_fleet(context, client.unpause(), as_json)


@app.command("reset-breaker", epilog=examples("gpu-recovery fleet reset-breaker"))
def reset_breaker(context: typer.Context, as_json: AsJson = False) -> None:
    """Close the circuit breaker. Held repairs may begin. Old evidence is checked again first."""
    with context.obj.client() as client:
        _print_fleet(context, client.reset_breaker(), as_json)


def redrive(
    context: typer.Context,
    queue: Annotated[Queue | None, typer.Option(help="Only this queue.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many messages at most.")] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what the queues hold.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters to their functions again. Remove the cause first.

    Exit code 1 if any of them stayed for a reason, or if not all could be tried.
    """
    with context.obj.client() as client:
        view = client.dead_letters() if dry_run else client.redrive(queue.value if queue else None, limit)
    if dry_run and queue:
        view = {**view, "queues": [entry for entry in view["queues"] if entry["queue"] == queue.value]}
    print_view(view, lambda: fleet.dead_letters(view) if dry_run else fleet.redriven(view), as_json)
    if not dry_run and (view.get("stopped_because") or any(letter["kept_because"] for letter in view["letters"])):
        raise typer.Exit(FAILED)


def _print_fleet(context: typer.Context, view: dict[str, Any], as_json: bool) -> bool:
    """Print the fleet limits. Return whether every held instance could be read.

    `fleet --json pause` prints JSON too.
    """
    asked_before = context.parent is not None and context.parent.params.get("as_json", False)
    print_view(view, lambda: fleet.fleet(view, now(), terminal_width()), as_json or asked_before)
    return is_complete(view.get("unreadable") or ())
