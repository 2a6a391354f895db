"""`python -m tests.infra.nag_run FOLDER`: the stacks of every set of settings, read by cdk-nag's two rule packs.

FOLDER/contexts.json maps names to contexts. Each leaves FOLDER/<name>/validation-report.json. The set called PLANTED
gets a topic without encryption and TLS beside the stacks' own resources.
"""

import json
import sys
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_sns as sns
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from app import build

PLANTED = "planted"


def main(folder: Path) -> None:
    contexts = json.loads((folder / "contexts.json").read_text())
    for name, context in contexts.items():
        outdir = folder / name
        app = build(cdk.App(context=context, outdir=str(outdir)))
        if name == PLANTED:
            (stack,) = (each for each in app.node.children if each.node.id == "GpuRecoveryState")
            sns.Topic(stack, "Planted")
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
        try:
            app.synth()
        except RuntimeError as failed:  # jsii gives every error of the CDK this type
            if not str(failed).startswith("ValidationFailed"):
                raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
