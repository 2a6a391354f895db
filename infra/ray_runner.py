"""The function that reaches a Ray cluster, and what wakes it. Made only where a deployment names a cluster.

It is the one function with an image of its own, for Ray's clients are larger than a package may be, and the one in a
VPC: the cluster's ports are open to nobody else. Synthesis needs no Docker; `cdk deploy` builds the image.
"""

from collections.abc import Mapping
from pathlib import Path

from aws_cdk import Duration, IgnoreMode
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as event_sources
from constructs import Construct

from infra.function_properties import function_name, function_properties
from infra.permissions import Permission as P
from infra.permissions import Reach
from infra.queues import Queues
from infra.settings import DeploymentSettings

ROOT = Path(__file__).parent.parent
NAME = "ray_runner"
IN_THE_IMAGE = ["*", "!ray_runner", "!lambdas", "lambdas/*.py", "**/__pycache__"]
"""As .dockerignore has it: everything, but for these."""
PERMISSIONS = frozenset({P.WRITE_JOBS, P.NOTIFY_OPERATORS, P.PUBLISH_EVENTS, P.WAKE_SCHEDULER, P.RECORD_ATTEMPTS})
"""It moves jobs on Ray and tells of it. It has no business with instances, tasks or machines."""
TIMEOUT_S, MEMORY_MIB, BATCH = 110, 1_024, 10
MESSAGE_GROUP = "ray"  # as in gpu_recovery.aws.ray_client: one group, so one run at a time
NETWORK_INTERFACES = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
]
"""What Lambda needs of a function's role to bring it into a VPC. It allows no narrower resource: the interfaces are
made and deleted by Lambda itself, under names of its own."""


def ray_function_name(settings: DeploymentSettings) -> str:
    """The function's name, by which the API asks it for logs."""
    return function_name(settings, NAME)


class RayRunner(Construct):
    """The function, its role, its schedule. `environment` is that of every function."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        reach: Reach,
        environment: Mapping[str, str],
        queues: Queues,
    ) -> None:
        super().__init__(scope, construct_id)
        assert queues.ray is not None
        properties = function_properties(
            self,
            settings,
            name=NAME,
            permissions=PERMISSIONS,
            reach=reach,
            timeout_s=TIMEOUT_S,
            memory_mib=MEMORY_MIB,
            environment={
                **environment,
                "RAY_DASHBOARD": settings.ray_dashboard,
                "RAY_CONTROL_STORE": settings.ray_control_store,
            },
        )
        properties["role"].add_to_policy(iam.PolicyStatement(actions=NETWORK_INTERFACES, resources=["*"]))
        self.function = lambda_.DockerImageFunction(
            self,
            "Function",
            **properties,
            code=lambda_.DockerImageCode.from_image_asset(
                str(ROOT),
                file="ray_runner/Dockerfile",
                platform=ecr_assets.Platform.LINUX_ARM64,
                exclude=IN_THE_IMAGE,
                ignore_mode=IgnoreMode.DOCKER,
            ),
        )
        resource = self.function.node.default_child
        assert isinstance(resource, lambda_.CfnFunction)
        resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(settings.ray_subnet_ids), security_group_ids=list(settings.ray_security_group_ids)
        )
        self.function.add_event_source(event_sources.SqsEventSource(queues.ray, batch_size=BATCH))
        # No input of our own: a constant body would be taken for a duplicate of the one before and dropped.
        tick = targets.SqsQueue(
            queues.ray,
            message_group_id=MESSAGE_GROUP,
            dead_letter_queue=queues.undelivered,
            retry_attempts=24,
            max_event_age=Duration.hours(1),
        )
        self.rule = events.Rule(
            self,
            "Schedule",
            schedule=events.Schedule.rate(Duration.minutes(settings.schedule_every_minutes)),
            targets=[tick],
        )
