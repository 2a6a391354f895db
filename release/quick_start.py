"""`python -m release.quick_start`: the quick start, one CloudFormation template and the files that it needs.

The template has the resources of both stacks, and parameters in place of the settings that people set first. The code
of its functions is read from a bucket of the user, so neither a checkout nor the CDK is needed to deploy it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from infra.recovery_stack import RecoveryStack
from infra.settings import DeploymentSettings
from infra.settings_error import NAMESPACE
from infra.state_stack import StateStack
from release import ROOT, version
from release.archives import archive, write_checksums
from release.quick_start_template import PLACEHOLDER, TEMPLATE, quick_start_template

SETTINGS: Mapping[str, Any] = {
    "cluster_name": PLACEHOLDER["ClusterName"],
    "managed_tag_value": PLACEHOLDER["ManagedTagValue"],
    "alert_emails": [PLACEHOLDER["AlertEmail"]],
    "training_task_families": [placeholder for name, placeholder in PLACEHOLDER.items() if "Family" in name],
    "training_role_arns": [placeholder for name, placeholder in PLACEHOLDER.items() if "Role" in name],
    "training_log_groups": [PLACEHOLDER["TrainingLogGroup"]],
    "observe_only": True,
}
"""The settings that the parameters give. Every other setting has its default."""


def synthesise(folder: Path, settings: Mapping[str, Any]) -> list[Path]:
    """Synthesise both stacks with placeholders into a folder. Return the files of the cloud assembly by stack.

    Args:
        folder: folder of the cloud assembly.
        settings: further deployment settings by name, without the prefix of the context.
    """
    flags = {
        key: value
        for key, value in json.loads((ROOT / "cdk.json").read_text())["context"].items()
        if not key.startswith(NAMESPACE)
    }
    synthesizer = cdk.DefaultStackSynthesizer(
        file_assets_bucket_name=PLACEHOLDER["ReleaseBucket"],
        bucket_prefix=PLACEHOLDER["ReleasePrefix"],
        generate_bootstrap_version_rule=False,
    )
    app = cdk.App(outdir=str(folder), context=flags, default_stack_synthesizer=synthesizer)
    deployment = DeploymentSettings(**{**SETTINGS, **settings})
    state = StateStack(app, f"{deployment.stack_name}State", deployment)
    RecoveryStack(app, deployment.stack_name, deployment, state)
    app.synth()
    return [folder / f"{state.stack_name}.template.json", folder / f"{deployment.stack_name}.template.json"]


def write(folder: Path, settings: Mapping[str, Any] | None = None) -> None:
    """Write the template, an archive for each file that it needs, and their checksums into an empty folder.

    Args:
        folder: folder, which is emptied first.
        settings: deployment settings in place of the defaults, by name. A parameter's setting cannot be given.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        assembly = Path(name)
        state, recovery = (json.loads(path.read_text()) for path in synthesise(assembly, settings or {}))
        template = quick_start_template(state, recovery)
        for key, source in _assets(assembly):
            archive(source, folder / key)
    (folder / TEMPLATE).write_text(json.dumps(template, indent=1) + "\n")
    write_checksums(folder)


def _assets(assembly: Path) -> Iterator[tuple[str, Path]]:
    """The key of each folder that the templates need, without the prefix, and the folder."""
    found = {}
    for path in assembly.glob("*.assets.json"):
        for asset in json.loads(path.read_text())["files"].values():
            if asset["source"]["packaging"] == "zip":
                (destination,) = asset["destinations"].values()
                key = destination["objectKey"].removeprefix(PLACEHOLDER["ReleasePrefix"])
                found[key] = assembly / asset["source"]["path"]
    yield from sorted(found.items())


def main() -> int:
    """Write the quick start into a folder, and on request the folder into an archive of the release."""
    parser = argparse.ArgumentParser(prog="python -m release.quick_start", description="Write the quick start.")
    parser.add_argument("--into", type=Path, required=True, help="folder of the template and its files")
    parser.add_argument("--archive", action="store_true", help="write an archive of the folder beside it, too")
    given = parser.parse_args()
    write(given.into)
    print(given.into / TEMPLATE)
    if given.archive:
        target = given.into.parent / f"gpu-recovery-quick-start-{version()}.zip"
        archive(given.into, target)
        print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
