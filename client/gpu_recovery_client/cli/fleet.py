"""`gpu-recovery fleet` and `gpu-recovery redrive`: fleet limits and dead-letter queues."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.confirmation import confirm
from gpu_recovery_client.cli.options import Because, Yes, examples
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, now, print_view, terminal_width
from gpu_recovery_client.cli.what_if import EXAMPLES as WHAT_IF_EXAMPLES
from gpu_recovery_client.cli.what_if import what_if
from gpu_recovery_client.render import fleet
from gpu_recovery_client.texts import tr

app = typer.Typer(
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Show the fleet limits: repair budget, circuit breaker, pause.\n\nShows the instances under repair, the held "
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
        if not _print_fleet(client.fleet(), as_json):
            raise typer.Exit(FAILED)


@app.command(epilog=examples('gpu-recovery fleet pause --because "new driver on half of the hosts"'))
def pause(
    context: typer.Context,
    because: Because,
    as_json: AsJson = False,
) -> None:
    """Let no repair begin until `unpause`. Repairs that EC2 has begun continue."""
    with context.obj.client() as client:
        _print_fleet(client.pause(because), as_json)


@app.command(epilog=examples("gpu-recovery fleet unpause"))
def unpause(context: typer.Context, as_json: AsJson = False) -> None:
    """Let repairs begin again."""
    with context.obj.client() as client:
        _print_fleet(client.unpause(), as_json)


@app.command("reset-breaker", epilog=examples("gpu-recovery fleet reset-breaker"))
def reset_breaker(context: typer.Context, yes: Yes = False, as_json: AsJson = False) -> None:
    """Close the circuit breaker. Held repairs may begin. Old evidence is checked again first.

    A terminal asks for confirmation, a script does not.
    """
    confirm(tr("Close the circuit breaker, so that held repairs begin?"), yes)
    with context.obj.client() as client:
        _print_fleet(client.reset_breaker(), as_json)


app.command("what-if", epilog=examples(*WHAT_IF_EXAMPLES))(what_if)


def redrive(
    context: typer.Context,
    queue: Annotated[Queue | None, typer.Option(help="Only this queue.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="Largest number of messages.")] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what the queues hold.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters to their functions again. Remove the cause first.

    The exit code is 1 if any message stays in its queue, or if not all could be tried. A terminal asks for
    confirmation, a script does not.
    """
    if not dry_run:
        confirm(tr("Send the dead letters to their functions again?"), yes)
    with context.obj.client() as client:
        view = client.dead_letters() if dry_run else client.redrive(queue.value if queue else None, limit)
    if dry_run and queue:
        view = {**view, "queues": [entry for entry in view["queues"] if entry["queue"] == queue.value]}
    print_view(view, lambda: _letters(view, dry_run), as_json)
    if not dry_run and (view.get("stopped_because") or any(letter["kept_because"] for letter in view["letters"])):
        raise typer.Exit(FAILED)


def _letters(view: dict[str, Any], is_list: bool) -> str:
    return (fleet.dead_letters if is_list else fleet.redriven)(view, terminal_width())


def _print_fleet(view: dict[str, Any], as_json: bool) -> bool:
    """Print the fleet limits. Return whether every held instance could be read."""
    print_view(view, lambda: fleet.fleet(view, now(), terminal_width()), as_json)
    return is_complete(view.get("unreadable") or ())
