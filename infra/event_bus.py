"""Event bus for the events of gpu-recovery (source `gpu.recovery`), for other systems."""

from aws_cdk import aws_events as events
from constructs import Construct

from infra.settings import DeploymentSettings


class RecoveryBus(Construct):
    """The custom event bus."""

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        self.bus = events.EventBus(
            self,
            "Bus",
            event_bus_name=settings.bus_name,
            description="State changes of jobs and instances, decided by gpu-recovery",
        )
