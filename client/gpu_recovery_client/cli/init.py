"""The verb init: ask the AWS account, and write the settings file of one deployment."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpu_recovery_client.account import survey
from gpu_recovery_client.account.access import Account
from gpu_recovery_client.account.deployment import Deployment, deployments
from gpu_recovery_client.account.findings import DEFAULTS
from gpu_recovery_client.account.names import NAMES, existing, suffixed
from gpu_recovery_client.account.settings_file import (
    NAME,
    changed,
    document_of,
    folder_of,
    names,
    read_settings,
    shown,
    toml,
)
from gpu_recovery_client.cli.confirmation import ask, is_interactive
from gpu_recovery_client.cli.options import Yes
from gpu_recovery_client.cli.output import FAILED, AsJson, print_document, say
from gpu_recovery_client.render.text import printable
from gpu_recovery_client.texts import tr

DEFAULT_NAME = "prod"
PREFIX = "gpu-recovery:"
COMMENTS = {
    "account": "The account and region of the deployment. Other credentials are refused.",
    "cluster_name": "The ECS cluster with the GPU instances.",
    "training_task_families": "Task definition families of training jobs.",
    "training_role_arns": "Every task role and execution role of these families.",
    "training_log_groups": "Log groups of these families.",
    "alert_emails": "Who is notified. AWS sends each address an e-mail, which must be confirmed.",
    "adopt": "Tasks that users start without the queue: off, observe or recover.",
    "profile": "prod keeps the data when a stack is deleted, and protects it; dev does not.",
    "stack_name": "Names that no other deployment of the account and region has.",
}
"""Comments of a new file, above their settings."""


def init(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Name of the deployment.")] = DEFAULT_NAME,
    cluster: Annotated[str, typer.Option(help="ECS cluster with the GPU instances.")] = "",
    family: Annotated[
        list[str] | None, typer.Option(help="Task definition family of training jobs; may be repeated.")
    ] = None,
    email: Annotated[list[str] | None, typer.Option(help="Address to notify; may be repeated.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any other setting; may be repeated.")
    ] = None,
    region: Annotated[str, typer.Option(help="AWS region; else that of the file or of AWS_REGION.")] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Ask the AWS account, and write the settings file of one deployment.

    The account is only read. A terminal asks for each setting and proposes what the account has. A script gives
    options; what it leaves out is taken from the account. An existing file keeps its lines and comments: only changed
    settings are replaced, after the difference is shown and confirmed (--yes in a script).
    """
    if not NAME.fullmatch(name):
        raise typer.BadParameter(tr("has 1 to 40 letters, digits, dashes and underscores"), param_hint="NAME")
    given = _given(set_ or ())
    path = folder_of(Path.cwd()) / f"{name}.toml"
    present = document_of(path) if path.is_file() else {}
    account = Account(region or present.get("region"))
    say(tr("Reading account {account} in {region}", account=account.account_id, region=account.region))
    values = _Answers(account, path, present, given, yes).collect(cluster, family, email)
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    different = {key: value for key, value in values.items() if present.get(key) != value}
    text = changed(before, different) if before else _new(name, values)
    is_written = _write(path, before, text, yes)
    if as_json:
        print_document({"file": shown(path), "written": is_written, "settings": values})
    elif is_written:
        typer.echo(tr("Wrote {file}. Commit it. Next:", file=shown(path)))
        typer.echo(f"  gpu-recovery doctor {name}")
        typer.echo(f"  make deploy NAME={name}")
    else:
        typer.echo(tr("{file} is up to date", file=shown(path)))


class _Answers:
    """The settings of a deployment: of options, of the present file, of a terminal, and of the account."""

    def __init__(
        self, account: Account, path: Path, present: Mapping[str, Any], given: Mapping[str, Any], yes: bool
    ) -> None:
        self.account, self.path, self.given = account, path, given
        self.asks = is_interactive() and not yes
        self.is_new = not present
        self.known: dict[str, Any] = dict(present) or _of_context(path.parent.parent)
        self.running = deployments(account)

    def collect(self, cluster: str, family: Sequence[str] | None, email: Sequence[str] | None) -> dict[str, Any]:
        """Return the settings to write."""
        self.known["cluster_name"] = cluster or self._cluster()
        running = self._running(self.known["cluster_name"]) if self.is_new else None
        if running is not None:
            say(tr("{stack} is deployed for this cluster: the file is for it", stack=running.name))
            keys = ", ".join(survey.NOT_SHOWN)
            say(tr("Its stacks do not show these settings: set them in the file if yours differ: {keys}", keys=keys))
            self.known = {**survey.settings_of(running), **self.known}
        lines, architectures = survey.instances_of(self.account, self.known["cluster_name"])
        for line in lines or [tr("no GPU instance has registered in the cluster")]:
            say(f"  {line}")
        if "arm64" in architectures and "health_check_image" not in {**self.known, **self.given}:
            say(tr("Instances are arm64: build images for them, and set health_check_image (docs/deploy.md#images)."))
        values = {
            "account": self.account.account_id,
            "region": self.account.region,
            **self.known,
            **self._families(family),
            "alert_emails": list(email) if email is not None else self._list("alert_emails"),
            # What runs, or has a file, keeps what it has. `observe` and `prod` are proposed for a new deployment.
            "adopt": self._one("adopt", "observe" if self.is_new and running is None else DEFAULTS["adopt"]),
            "profile": self._one("profile", "prod" if self.is_new and running is None else DEFAULTS["profile"]),
        }
        if self.is_new and running is None:
            values |= self._names()
        return {**values, **self.given}

    def _cluster(self) -> str:
        found = survey.clusters(self.account)
        default = self.given.get("cluster_name") or self.known.get("cluster_name")
        if not default:
            default = next(iter(found)) if len(found) == 1 or (self.asks and found) else ""
        if self.asks:
            for name, number in found.items():
                say(tr("cluster {name}: {number} instances", name=name, number=number))
            return str(typer.prompt(tr("ECS cluster"), default=default or None, err=True))
        if not default:
            known = ", ".join(found) or "-"
            raise typer.BadParameter(tr("give one of the clusters: {known}", known=known), param_hint="--cluster")
        return str(default)

    def _running(self, cluster: str) -> Deployment | None:
        """Return the first deployment of a cluster that no other settings file is for."""
        others = {other["stack_name"] for other in self._others()}
        free = (one for one in self.running if one.name not in others)
        return next((one for one in free if one.outputs["ClusterName"] == cluster), None)

    def _others(self) -> list[Any]:
        folder = self.path.parent
        others = [read_settings(folder, name) for name in names(folder) if name != self.path.stem]
        here = {"account": self.account.account_id, "region": self.account.region}
        return [one for one in others if all(one.target.get(key, value) == value for key, value in here.items())]

    def _families(self, asked: Sequence[str] | None) -> dict[str, Any]:
        """Return the families with their roles and log groups. Roles and groups of the present file stay."""
        own = {DEFAULTS["check_family"], self.known.get("check_family")}
        own |= {f"{one.outputs['JobApiFunctionName'].removesuffix('job_api')}agent" for one in self.running}
        found = survey.families(self.account, own.__contains__)
        for one in found:
            say(tr("family {name}: network mode {mode}", name=one.name, mode=one.network_mode))
        chosen = list(asked or self.given.get("training_task_families", ()))
        if not chosen:
            default = self.known.get("training_task_families") or survey.default_families(found)
            chosen = self._list("training_task_families", list(default))
        members = [one for one in found if one.name in chosen]
        roles = [role for one in members for role in one.roles]
        groups = [group for one in members for group in one.log_groups]
        return {
            "training_task_families": chosen,
            "training_role_arns": list(dict.fromkeys((*self.known.get("training_role_arns", ()), *roles))),
            "training_log_groups": list(dict.fromkeys((*self.known.get("training_log_groups", ()), *groups))),
        }

    def _names(self) -> dict[str, str]:
        """Return names other than the defaults, if a default is taken by another deployment or in the account."""
        default = {name: str(DEFAULTS[name]) for name in NAMES}
        taken = existing(self.account, default)
        shared = any(other[name] == default[name] for other in self._others() for name in NAMES)
        if not taken and not shared:
            return {}
        return {name: self.known.get(name) or suffixed(name, self.path.stem) for name in NAMES}

    def _one(self, key: str, default: str) -> str:
        value = str(self.given.get(key) or self.known.get(key) or default)
        if not self.asks or key in self.given:
            return value
        return str(typer.prompt(key, default=value, err=True))

    def _list(self, key: str, default: Sequence[str] = ()) -> list[str]:
        values = list(self.given.get(key) or self.known.get(key) or default)
        if not self.asks or key in self.given:
            return values
        text = typer.prompt(tr("{key} (with commas)", key=key), default=",".join(values), err=True)
        return [part.strip() for part in str(text).split(",") if part.strip()]


def _given(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the settings of --set. A value is JSON, or else text. A list of text may be given with commas."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, is_pair, text = pair.partition("=")
        if not is_pair or not key:
            raise typer.BadParameter(tr("is KEY=VALUE"), param_hint="--set")
        key = key.removeprefix(PREFIX)
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        is_list = isinstance(DEFAULTS.get(key), tuple)
        found[key] = [part.strip() for part in text.split(",")] if is_list and isinstance(value, str) else value
    return found


def _of_context(root: Path) -> dict[str, Any]:
    """Return the settings of the files of the CDK context: they belong into the file, or else they would replace it.

    The CDK takes a value of cdk.json first, then that of cdk.context.json, which is no object in an object, then that
    of ~/.cdk.json.
    """
    found: dict[str, Any] = {}
    home = Path.home() / ".cdk.json"
    for path, has_part in ((home, True), (root / "cdk.context.json", False), (root / "cdk.json", True)):
        document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        context = document.get("context", {}) if has_part else document
        settings = {key.removeprefix(PREFIX): value for key, value in context.items() if key.startswith(PREFIX)}
        if settings:
            shown_path, keys = "~/.cdk.json" if path == home else path.name, ", ".join(sorted(settings))
            say(tr("The settings of {file} are copied. Remove them there: {keys}", file=shown_path, keys=keys))
        found |= settings
    return found


def _new(name: str, values: Mapping[str, Any]) -> str:
    """Return the text of a new file."""
    lines = [
        f"# Settings of the deployment {name}: make deploy NAME={name}. Commit this file.",
        "# Every setting: docs/deploy.md#settings, without the prefix gpu-recovery:",
    ]
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    for key, value in values.items():
        if key in COMMENTS:
            lines += ["", f"# {COMMENTS[key]}"]
        if key not in tables:
            lines.append(f"{key} = {toml(value)}")
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(f"{toml(item)} = {toml(value)}" for item, value in table.items())]
    return "\n".join(lines) + "\n"


def _write(path: Path, before: str, text: str, yes: bool) -> bool:
    """Write the file, if it changes. A change is shown and must be confirmed.

    Raises:
        typer.Exit: nobody can be asked, and --yes is missing.
        typer.Abort: the answer is no.
    """
    if before == text:
        return False
    if before:
        for line in difflib.unified_diff(before.splitlines(), text.splitlines(), shown(path), shown(path), lineterm=""):
            typer.echo(printable(line), err=True)
        if not yes:
            if not is_interactive():
                say(tr("Nothing was written: give --yes to change {file}", file=shown(path)))
                raise typer.Exit(FAILED)
            ask(tr("Change {file}?", file=shown(path)))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
    return True
