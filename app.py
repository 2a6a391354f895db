"""Settings from the CDK context, two stacks from the settings. Needs no credentials, no network and no Docker."""

import aws_cdk as cdk

from infra.recovery_stack import RecoveryStack
from infra.settings import DeploymentSettings
from infra.state_stack import StateStack

app = cdk.App()
settings = DeploymentSettings.from_context(app.node.get_all_context())
state = StateStack(app, f"{settings.stack_name}State", settings)
RecoveryStack(app, settings.stack_name, settings, state)
app.synth()
