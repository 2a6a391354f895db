"""The verbs about instances: instances, quarantine, release."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from gpu_recovery_client.cli.confirmation import confirm
from gpu_recovery_client.cli.job_names import job_id_of
from gpu_recovery_client.cli.options import Because, InstanceIds, Yes, instances_like
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, is_wide, now, print_view, terminal_width
from gpu_recovery_client.cli.record_filter import Filters, filters_of
from gpu_recovery_client.cli.several import for_each
from gpu_recovery_client.render import instances as render_instances
from gpu_recovery_client.texts import tr


class Order(StrEnum):
    """Orders of the list."""

    ID = "id"
    SINCE = "since"
    LEMON = "lemon"


def instances(
    context: typer.Context,
    instance: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One instance, with its history.", autocompletion=instances_like),
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Only instances of this status, such as AVAILABLE; several with commas.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Only instances of the job with this id or name.")] = None,
    filters: Filters = None,
    sort: Annotated[
        Order | None,
        typer.Option(help="By id; since: the latest change of status first; lemon: the least reliable first."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the instances, or show one."""
    accepts = filters_of(filters)
    if instance is not None and (status or job or filters or sort):
        raise typer.BadParameter(tr("a single instance takes no options of the list"), param_hint="ID")
    with context.obj.client() as client:
        job_id = None if job is None else job_id_of(client, job)
        query = {"status": status.upper() if status else None, "job": job_id, "order": sort.value if sort else None}
        if instance is None:
            missed: list[str] = []
            every = list(filter(accepts, client.instances(missed, **query)))
            listed: dict[str, Any] = {"instances": every, "next_cursor": None, "unreadable": missed}
        else:
            listed = client.instance(instance)
    print_view(listed, lambda: _text(listed, instance is None), as_json)
    if not is_complete(listed.get("unreadable") or ()):
        raise typer.Exit(FAILED)


def _text(view: dict[str, Any], is_list: bool) -> str:
    if is_list:
        return render_instances.instance_list(view["instances"], now(), terminal_width(), wide=is_wide())
    return render_instances.instance_details(view, now(), terminal_width())


def release(context: typer.Context, instances: InstanceIds, as_json: AsJson = False) -> None:
    """Return instances to use: each must pass a health check."""
    with context.obj.client() as client:
        for_each(instances, client.release, _details, "instances", as_json)


def quarantine(
    context: typer.Context,
    instances: InstanceIds,
    because: Because = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take instances out of use until they are released.

    Running jobs continue; no new job is placed on the instances. A terminal asks for confirmation, a script does not.
    """
    confirm(tr("Take {instances} out of use?", instances=", ".join(instances)), yes)
    with context.obj.client() as client:
        for_each(instances, lambda name: client.quarantine(name, because), _details, "instances", as_json)


def _details(view: dict[str, Any]) -> str:
    return render_instances.instance_details(view, now(), terminal_width())
