"""The verb doctor: checks of the AWS account around the instances of the deployment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from gpu_recovery_client.account import account_findings
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, print_view
from gpu_recovery_client.render.text import line
from gpu_recovery_client.request_signer import region_of
from gpu_recovery_client.texts import tr

GONE = "GONE"
"""Status of an instance that has left the cluster."""


def doctor(
    context: typer.Context,
    cluster: Annotated[str, typer.Option(help="ECS cluster, to check the settings of its agents, too.")] = "",
    as_json: AsJson = False,
) -> None:
    """Check metadata service and Auto Scaling of the instances.

    The API names the instances. AWS is read with your own credentials, and nothing is changed.
    """
    missed: list[str] = []
    with context.obj.client() as client:
        present = [instance["instance_id"] for instance in client.instances(missed) if instance["status"] != GONE]
        region = region_of(client.api_url)
    listed = [name for name in present if name.startswith("i-")]  # EC2 does not know instances of ECS Anywhere
    found = account_findings(listed, region, cluster) if listed else []
    view = {"instances": len(listed), "region": region, "findings": [asdict(finding) for finding in found]}
    print_view(view, lambda: _text(view), as_json)
    if found or not is_complete(missed):
        raise typer.Exit(FAILED)


def _text(view: dict[str, Any]) -> str:
    lines = [line(f"{one['subject']}: {one['sentence']}") + line(f"  {one['command']}") for one in view["findings"]]
    checked = {"region": view["region"], "number": view["instances"]}
    return "".join(lines) or line(tr("instances checked in {region}: {number}; nothing to change", **checked))
