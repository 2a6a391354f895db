"""CDK app: reads the settings from the settings file and the CDK context, and adds two stacks.

Synthesis needs no credentials, no network and no Docker.
"""

import os
from pathlib import Path

import aws_cdk as cdk

from infra.recovery_stack import RecoveryStack
from infra.settings_error import NAMESPACE
from infra.settings_file import settings_of
from infra.state_stack import StateStack


def build(app: cdk.App) -> cdk.App:
    """Add the state stack and the recovery stack to `app`, with the settings that its context names. Return `app`."""
    settings, replaced = settings_of(app.node.get_all_context(), Path(__file__).parent, os.environ)
    state = StateStack(app, f"{settings.stack_name}State", settings)
    stack = RecoveryStack(app, settings.stack_name, settings, state)
    for name, message in {**settings.warnings, **replaced}.items():
        cdk.Annotations.of(stack).add_warning_v2(f"{NAMESPACE}{name}", message)
    return app


if __name__ == "__main__":
    build(cdk.App()).synth()
