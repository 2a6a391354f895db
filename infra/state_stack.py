"""State stack: tables, topics, event bus, verdict bucket, operator token and signing keys.

The state has a stack of its own, so that the recovery stack can be deleted and deployed again without loss of jobs.
Functions, API and alarms share the recovery stack. In separate stacks every function would be an export, and
CloudFormation refuses to change an export that another stack imports.
"""

from aws_cdk import Stack, Tags
from constructs import Construct

from infra.event_bus import RecoveryBus
from infra.generated_secret import GeneratedSecret
from infra.settings import DeploymentSettings
from infra.tables import Tables
from infra.topic import OperatorTopic
from infra.verdict_bucket import VerdictBucket


class StateStack(Stack):
    """The stack with all stored data. In production it is protected against termination."""

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
        self.token = GeneratedSecret(self, "OperatorToken", settings, "Bearer token of the gpu-recovery job API")
        self.node_token_key = GeneratedSecret(
            self, "NodeTokenKey", settings, "Issuer key of gpu-recovery's node tokens; a new value revokes all of them"
        )
        self.signing_key = GeneratedSecret(
            self, "SigningKey", settings, "Issuer key of gpu-recovery's user tokens; a new value revokes all of them"
        )
        Tags.of(self).add("Project", "gpu-recovery")
