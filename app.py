"""Settings from the CDK context, two stacks from the settings. Needs no credentials, no network and no Docker."""

import aws_cdk as cdk

from infra.recovery_stack import RecoveryStack
from infra.settings import DeploymentSettings
from infra.state_stack import StateStack


def build(app: cdk.App) -> cdk.App:
    """Put both stacks that the context of `app` asks for into it."""
    settings = DeploymentSettings.from_context(app.node.get_all_context())
    state = StateStack(app, f"{settings.stack_name}State", settings)
    RecoveryStack(app, settings.stack_name, settings, state)
    return app


if __name__ == "__main__":
    build(cdk.App()).synth()
