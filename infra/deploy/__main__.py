"""`python -m infra.deploy [--name NAME] [OPTION...]`: run `cdk deploy` for one deployment, then print the next steps.

Without a name the settings are those of cdk.json and of the options, which are passed to the CDK. With a name they are
those of `settings/<name>.toml`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from infra.bytecode import MISSING, interpreter
from infra.settings import DeploymentSettings
from infra.settings_error import NAMESPACE, DeploymentSettingsError
from infra.settings_file import FILE_KEY, FOLDER, names, path_of, read, settings_of

ROOT = Path(__file__).parents[2]
OUTPUTS = ROOT / ".make"
"""Folder of the files into which the CDK writes the outputs of the stacks."""
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
CLUSTER_KEY = f"{NAMESPACE}cluster_name"
"""Context key of the cluster. Its default is for templates and tests, so a deployment must name the cluster."""
USAGE = 2


def command_of(name: str, options: Sequence[str], outputs: Path) -> list[str]:
    """Return the command line of the CDK."""
    selected = ["-c", f"{FILE_KEY}={name}"] if name else []
    written = [] if "--outputs-file" in options else ["--outputs-file", str(outputs)]
    return ["npx", "--no-install", "cdk", "deploy", "--all", *selected, *written, *options]


def context_files(root: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files with values of the CDK context, and whether the values are in their part `context`.

    A value of a later file replaces that of an earlier file, as in the CDK (`loadConfigFiles` of aws-cdk 2.1148).
    """
    yield Path.home() / ".cdk.json", True
    yield root / "cdk.context.json", False
    yield root / "cdk.json", True


def context_of(name: str, options: Sequence[str], root: Path) -> dict[str, Any]:
    """Return the CDK context of a deployment: that of the files that the CDK reads, and of the options."""
    context: dict[str, Any] = {}
    for path, has_part in context_files(root):
        document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        context |= document.get("context", {}) if has_part else document
    for option, value in pairwise([*options, ""]):
        flag, _, written = option.partition("=")
        if flag in ("-c", "--context"):
            key, _, text = (written or value).partition("=")
            context[key] = text
    return context | ({FILE_KEY: name} if name else {})


def next_steps(name: str, settings: DeploymentSettings, outputs: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that say what to do after a deployment.

    Args:
        name: name of the deployment; "" if it has none.
        settings: its settings.
        outputs: the outputs of its stacks.
    """
    deployment = Path(name).stem or "default"
    region = outputs["TopicArn"].split(":")[3]
    login = f"gpu-recovery login {deployment} --api-url {outputs['ApiUrl']}"
    if settings.signs_requests:
        login += " --auth iam"
    else:
        secret = outputs["OperatorTokenSecretArn"]
        read_token = "--query SecretString --output text"
        login = f"aws secretsmanager get-secret-value --region {region} --secret-id {secret} {read_token} | {login}"
    yield f"Deployed {settings.stack_name} in {region}. Next:"
    if settings.alert_emails:
        addresses = ", ".join(settings.alert_emails)
        yield f"- Confirm the subscription in the e-mail that AWS sent to {addresses}. Until then no message arrives."
    else:
        yield f"- No e-mail is sent: alert_emails is empty. Set it in {_place(name)}, and deploy again."
    yield "- Save the deployment for the command line:"
    yield f"    {login}"
    yield "- Check it, after a minute:"
    yield f"    {_doctor(name, deployment)}"
    if "ConsoleUrl" in outputs:
        yield f"- Web console: {outputs['ConsoleUrl']}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Deploy. Return the exit status of the CDK, or 2 if the settings cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m infra.deploy", allow_abbrev=False)
    parser.add_argument("--name", default="")
    known, options = parser.parse_known_args(arguments)
    environment = dict(os.environ)
    try:
        has_settings = any(NAMESPACE in option for option in options)
        if not known.name and not has_settings and (deployments := names(root)):
            sentence = (
                f"there are settings files ({', '.join(deployments)}): give NAME=..., as in make deploy "
                f"NAME={deployments[0]}, or settings in CONTEXT=... for a deployment without a file"
            )
            raise DeploymentSettingsError([("", sentence)])
        if known.name:
            region = read(path_of(known.name, root), root).target.get("region")
            if region and not any(environment.get(variable) for variable in REGION_VARIABLES):
                environment["AWS_REGION"] = region
        context = context_of(known.name, options, root)
        if not context.get(FILE_KEY) and not context.get(CLUSTER_KEY):
            sentence = (
                "no cluster is named. Write a settings file: gpu-recovery init NAME; then make deploy NAME=NAME. Or "
                f'name the cluster without a file: make deploy CONTEXT="-c {CLUSTER_KEY}=..."'
            )
            raise DeploymentSettingsError([("", sentence)])
        settings, _ = settings_of(context, root, {})
    except DeploymentSettingsError as error:
        print(error, file=sys.stderr)
        return USAGE
    if interpreter() is None:
        print(MISSING, file=sys.stderr)
    OUTPUTS.mkdir(exist_ok=True)
    outputs = OUTPUTS / f"outputs-{Path(known.name).stem or 'default'}.json"
    outputs.unlink(missing_ok=True)
    status = subprocess.run(command_of(known.name, options, outputs), cwd=root, env=environment, check=False).returncode
    if status == 0 and outputs.exists():
        stacks = json.loads(outputs.read_text(encoding="utf-8"))
        found = {key: value for stack in stacks.values() for key, value in stack.items()}
        if {"ApiUrl", "TopicArn", "OperatorTokenSecretArn"} <= found.keys():
            print("", *next_steps(known.name, settings, found), sep="\n")
    return status


def _place(name: str) -> str:
    if not name:
        return f"cdk.json ({NAMESPACE}alert_emails)"
    return name if name.endswith(".toml") else f"{FOLDER}/{name}.toml"


def _doctor(name: str, deployment: str) -> str:
    """Return the command that checks the deployment. The verb finds files of the folder of settings files only."""
    if name.endswith(".toml") and Path(name).parent != Path(FOLDER):
        return f"gpu-recovery --profile {deployment} doctor"
    return f"gpu-recovery doctor {deployment}" if name else "gpu-recovery doctor"


if __name__ == "__main__":
    sys.exit(main())
