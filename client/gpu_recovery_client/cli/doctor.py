"""The verb doctor: what would fail in the AWS account or in the running deployment, and how to fix it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpu_recovery_client.account.access import Account, Refused
from gpu_recovery_client.account.deployment import Deployment, deployed, of_address
from gpu_recovery_client.account.evidence import check_evidence
from gpu_recovery_client.account.examination import (
    CHECKS,
    Examination,
    examine_account,
    examine_deployment,
    examine_instances,
)
from gpu_recovery_client.account.findings import Finding, Settings
from gpu_recovery_client.account.instances import check_registered, container_instances, read_fleet
from gpu_recovery_client.account.names import check_names
from gpu_recovery_client.account.node_agents import GONE, View, check_tokens, run_health_check
from gpu_recovery_client.account.settings_file import folder_of, read_settings
from gpu_recovery_client.cli.confirmation import ask, is_interactive
from gpu_recovery_client.cli.options import Yes
from gpu_recovery_client.cli.output import FAILED, AsJson, is_complete, now, pause, print_view, say
from gpu_recovery_client.errors import RequestRefused, ServiceUnreachable, SettingsMissing
from gpu_recovery_client.profiles import read_profiles
from gpu_recovery_client.render.text import line
from gpu_recovery_client.request_signer import region_of
from gpu_recovery_client.texts import tr

if TYPE_CHECKING:
    from gpu_recovery_client.api import RecoveryClient

HEALTH_CHECK_TIMEOUT_S = 3600


def doctor(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Deployment with the settings file settings/NAME.toml.")
    ] = "",
    cluster: Annotated[str, typer.Option(help="ECS cluster, if no settings file and no stack names it.")] = "",
    region: Annotated[str, typer.Option(help="AWS region; else that of the settings file or of AWS_REGION.")] = "",
    skip: Annotated[list[str] | None, typer.Option(metavar="CHECK", help="Leave out a check; may be repeated.")] = None,
    health_check: Annotated[
        str, typer.Option(metavar="INSTANCE", help="Also run one health check on this idle instance, and wait for it.")
    ] = "",
    timeout: Annotated[int, typer.Option(min=1, help="Longest wait for the health check, in seconds.")] = (
        HEALTH_CHECK_TIMEOUT_S
    ),
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Say what would fail in the account or the deployment, and how to fix it.

    With NAME the settings are those of its file, before and after the deployment. Without NAME they are those of the
    deployment that is selected. AWS is read with your own credentials, and nothing is changed. Only --health-check
    takes the instance out of use while the check runs. Exit code 0: nothing would fail, and every check was made.
    """
    if unknown := [one for one in skip or () if one not in CHECKS]:
        message = tr("{name} is no check; the checks are {known}", name=unknown[0], known=", ".join(CHECKS))
        raise typer.BadParameter(message, param_hint="--skip")
    examination = Examination(skip or ())
    if name:
        settings = read_settings(folder_of(Path.cwd()), name)
        account = Account(region or settings.target.get("region"))
        examine_account(examination, account, settings)
        deployment = deployed(account, settings["stack_name"])
        if deployment is None:
            examination.check("names", lambda: check_names(account, settings))
            say(tr("{stack} is not deployed yet, so only the account was checked", stack=settings["stack_name"]))
        else:
            examine_deployment(examination, deployment, settings)
        client = _client_of(context, name, deployment)
        if client is None and deployment is not None and "tokens" not in examination.skip:
            steps = f"gpu-recovery login {name} --api-url {deployment.outputs.get('ApiUrl', '')}"
            examination.not_checked.append(tr("tokens: no token of the API is saved: {steps}", steps=steps))
        missed: list[str] = []
        if client is not None:
            with client:
                read = partial(client.instances, missed)
                _by_api(examination, client, settings, read, health_check, timeout, yes)
        complete = is_complete(missed)
    else:
        with context.obj.client() as client:
            account = Account(region or region_of(client.api_url))
            complete = _selected(examination, client, account, cluster, health_check, timeout, yes)
    if health_check and "health-check" not in examination.checked:
        examination.not_checked.append(tr("health-check: the deployment cannot be reached"))
    view = {
        "region": account.region,
        "checked": examination.checked,
        "findings": [_view(finding) for finding in examination.findings if not finding.is_note],
        "notes": [_view(finding) for finding in examination.findings if finding.is_note],
        "not_checked": examination.not_checked,
    }
    print_view(view, lambda: _text(view), as_json)
    if view["findings"] or examination.not_checked or not complete:
        raise typer.Exit(FAILED)


def _client_of(context: typer.Context, name: str, deployment: Deployment | None) -> RecoveryClient | None:
    """Return a client of the deployment: of its saved profile, or of the selected deployment if it is the same."""
    if deployment is None:
        return None
    connection, address = context.obj, deployment.outputs.get("ApiId", "")
    if name in read_profiles(os.environ)[0] and not (connection.api_url or connection.profile):
        connection.profile = name
    try:
        settings = connection.settings()
    except SettingsMissing:
        return None
    client: RecoveryClient = connection.client(settings)
    return client if address and address in settings.api_url else None


def _selected(
    examination: Examination,
    client: RecoveryClient,
    account: Account,
    cluster: str,
    health_check: str,
    timeout: int,
    yes: bool,
) -> bool:
    """Check the deployment that is selected. Return whether the API could read every instance."""
    missed: list[str] = []
    instances = list(client.instances(missed))
    present = [one["instance_id"] for one in instances if one["status"] != GONE and one["instance_id"].startswith("i-")]
    try:
        deployment = of_address(account, client.api_url)
    except Refused as error:
        deployment = None
        examination.not_checked.append(tr("deployment: {sentence}", sentence=error))
    if deployment is None:
        say(tr("no stack of this account has the address of the API, so only its instances were checked"))
        settings = Settings({"cluster_name": cluster} if cluster else {}, known=False)
        registered = container_instances(account, cluster) if cluster else []
        of_api = [one for one in registered if one.get("ec2InstanceId") in present]
        fleet = read_fleet(account, present, of_api)
        examine_instances(examination, account, settings, fleet)
        if cluster:
            examination.check("cluster", lambda: check_registered(fleet, cluster))
        if "tokens" not in examination.skip:
            sentence = tr("tokens: no stack shows whether agents need tokens (--skip tokens leaves the check out)")
            examination.not_checked.append(sentence)
    else:
        settings = deployment.settings
        examine_account(examination, account, settings, present)
        examine_deployment(examination, deployment, settings)
        _by_api(examination, client, settings, lambda: instances, health_check, timeout, yes)
    return is_complete(missed)


def _by_api(
    examination: Examination,
    client: RecoveryClient,
    settings: Settings,
    read: Callable[[], Iterable[View]],
    health_check: str,
    timeout: int,
    yes: bool,
) -> None:
    """Make the checks that need the API. `read` returns the instances.

    An error of the API does not hide what the account has shown: it may be the consequence of that.
    """
    try:
        instances = list(read())
        examination.check("tokens", lambda: check_tokens(client, settings, instances, now()))
        examination.check("evidence", lambda: check_evidence(settings, instances))
        if health_check:
            _ask(health_check, yes)
            examination.check(
                "health-check",
                lambda: run_health_check(client, health_check, timeout_s=timeout, pause=pause, report=say),
            )
    except (RequestRefused, ServiceUnreachable) as error:
        examination.not_checked.append(tr("deployment: {sentence}", sentence=error))


def _ask(instance: str, yes: bool) -> None:
    if yes:
        return
    if not is_interactive():
        raise typer.BadParameter(tr("needs --yes, because the input is not a terminal"), param_hint="--health-check")
    question = tr(
        "Take {instance} out of use until its health check has passed? It takes some minutes.", instance=instance
    )
    ask(question)


def _view(finding: Finding) -> dict[str, str]:
    return {name: value for name, value in asdict(finding).items() if name != "is_note"}


def _text(view: dict[str, Any]) -> str:
    lines = []
    for one in view["findings"]:
        lines.append(line(f"{one['check']}: {one['subject']}: {one['sentence']}"))
        lines.append("  " + line(tr("why: {why}", why=one["why"])))
        lines.append("  " + line(tr("fix: {command}", command=one["command"])))
    lines += [line(tr("not checked: {sentence}", sentence=sentence)) for sentence in view["not_checked"]]
    checked = {"region": view["region"], "checks": ", ".join(view["checked"])}
    lines = lines or [line(tr("checked in {region}: {checks}; nothing to change", **checked))]
    for one in view["notes"]:
        note = tr("note: {sentence}", sentence=f"{one['check']}: {one['subject']}: {one['sentence']}")
        lines += [line(note), "  " + line(tr("why: {why}", why=one["why"]))]
        lines.append("  " + line(tr("to change it: {command}", command=one["command"])))
    return "".join(lines)
