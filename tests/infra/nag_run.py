"""`python -m tests.infra.nag_run FOLDER`: the stacks of every set of settings, validated and read by cdk-nag's packs.

FOLDER/contexts.json maps names to contexts. Each leaves its cloud assembly in FOLDER/<name>, with what the CDK's own
template rules and cdk-nag's two rule packs find in validation-report.json. All sets are synthesised in one process,
because the CDK takes longer to load its rules than to apply them. The set called PLANTED gets a topic without
encryption and TLS, and with a property that CloudFormation does not know.
"""

import json
import sys
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_sns as sns
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

from app import build
from tests.infra.contexts import PLANTED


def main(folder: Path) -> None:
    contexts = json.loads((folder / "contexts.json").read_text())
    for name, context in contexts.items():
        outdir = folder / name
        app = build(cdk.App(context=context, outdir=str(outdir)))
        if name == PLANTED:
            (stack,) = (each for each in app.node.children if each.node.id == "GpuRecoveryState")
            topic = sns.Topic(stack, "Planted").node.default_child
            assert isinstance(topic, sns.CfnTopic)
            topic.add_property_override("Unknown", "value")
        cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
        try:
            app.synth()
        except RuntimeError as failed:  # jsii gives every error of the CDK this type
            if not str(failed).startswith("ValidationFailed"):
                raise


if __name__ == "__main__":
    main(Path(sys.argv[1]))
