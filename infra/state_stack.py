"""What must outlive the code: tables, topic, bus, verdicts, token.

Two stacks, not one and not four. State has a stack of its own so that the other can be deleted and deployed anew
without a job being forgotten. Functions, API and alarms share theirs: apart, every function would be an export that
CloudFormation refuses to change while another stack imports it.
"""

from aws_cdk import Stack, Tags
from constructs import Construct

from infra.event_bus import RecoveryBus
from infra.operator_token import OperatorToken
from infra.settings import DeploymentSettings
from infra.tables import Tables
from infra.topic import OperatorTopic
from infra.verdict_bucket import VerdictBucket


class StateStack(Stack):
    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(
            scope,
            construct_id,
            description="gpu-recovery: what it remembers and whom it tells",
            termination_protection=settings.is_prod,
        )
        self.tables = Tables(self, "Tables", settings)
        self.topic = OperatorTopic(self, "Operators", settings)
        self.bus = RecoveryBus(self, "Events", settings)
        self.verdicts = VerdictBucket(self, "Verdicts", settings)
        self.token = OperatorToken(self, "OperatorToken", settings)
        Tags.of(self).add("Project", "gpu-recovery")
