"""The verbs about instances: instances, quarantine, release."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.options import InstanceId, instances_like
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, now, print_view, terminal_width
from gpu_recovery_client.render import instances as render_instances


def instances(
    context: typer.Context,
    instance: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One instance, with its history.", autocompletion=instances_like),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the instances, or show one."""
    with context.obj.client() as client:
        if instance is None:
            missed: list[str] = []
            every = list(client.instances(missed))
            listed: dict[str, Any] = {"instances": every, "next_cursor": None, "unreadable": missed}
            text = render_instances.instance_list(listed["instances"], now(), terminal_width())
        else:
            listed = client.instance(instance)
            text = render_instances.instance_details(listed, now(), terminal_width())
    print_view(listed, lambda: text, as_json)
    if not is_complete(listed.get("unreadable") or ()):
        raise typer.Exit(FAILED)


def release(context: typer.Context, instance: InstanceId, as_json: AsJson = False) -> None:
    """Give a repaired instance back: it must pass a health check."""
    with context.obj.client() as client:
        _print_instance(client.release(instance), as_json)


def quarantine(
    context: typer.Context,
    instance: InstanceId,
    because: Annotated[str, typer.Option(help="Why, for whoever finds it so.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take an instance out of use until it is released. Running jobs continue; no new job is placed on the
    instance.
    """
    with context.obj.client() as client:
        _print_instance(client.quarantine(instance, because), as_json)


def _print_instance(view: dict[str, Any], as_json: bool) -> None:
    print_view(view, lambda: render_instances.instance_details(view, now(), terminal_width()), as_json)
