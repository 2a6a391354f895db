"""Lambda function for a Ray cluster, with its queue trigger and its schedule.

Only deployments with a Ray cluster have the function. It is a container image, because Ray's client libraries exceed
the size limit of a Lambda package. It runs in a VPC, because the ports of the cluster are open only inside the VPC. No
other function of the stack has an image or a VPC. The deployment builds the image (`infra/image_build.py`), or the
settings name one.
"""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as event_sources
from constructs import Construct

from infra.function_properties import allow_loops, function_name, function_properties, log_as_json, resource_of
from infra.image_build import ImageBuilder
from infra.image_reference import ecr_image
from infra.lambda_functions import function_arn
from infra.permissions import Permission as P
from infra.permissions import Reach
from infra.queues import Queues
from infra.setting_readers import BUILD
from infra.settings import DeploymentSettings

NAME = "ray_runner"
"""Name of the function in this repository."""
IN_THE_IMAGE = ["*", "!ray_runner", "!lambdas", "lambdas/*.py", "**/__pycache__"]
"""Exclusion patterns of the image's build context, in the syntax of .dockerignore.

The context holds the folders `ray_runner` and `lambdas`, without the handlers of the other functions.
"""
PERMISSIONS = frozenset({P.WRITE_JOBS, P.NOTIFY_OPERATORS, P.PUBLISH_EVENTS, P.WAKE_SCHEDULER, P.RECORD_ATTEMPTS})
"""Permissions of the function: it writes jobs and sends notifications. It has no access to instances or ECS tasks."""
TIMEOUT_S, MEMORY_MIB, BATCH = 110, 1_024, 10
"""Timeout in seconds, memory in MiB, and the largest number of messages of one run."""
MESSAGE_GROUP = "ray"
"""The only message group of the queue, so that one run is active at a time. `gpu_recovery.aws` uses the same group."""
NETWORK_INTERFACES = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
]
"""Actions that Lambda needs from the role of a function in a VPC, on the resource `*`.

A narrower resource is impossible, because Lambda itself creates and deletes the network interfaces under generated
names. Lambda uses the role before and after runs of the function. The code of the function has no use for the
actions, so they are denied to it. Source: Lambda Developer Guide, "Giving Lambda functions access to resources in an
Amazon VPC".
"""


def ray_function_name(settings: DeploymentSettings) -> str:
    """Return the name of the function in the account. The job API invokes it by this name to read logs."""
    return function_name(settings, NAME)


class RayRunner(Construct):
    """The function (`function`) with its role and its schedule (`rule`).

    Args:
        reach: the ARNs that the permissions apply to.
        environment: variables that every function gets.
        queues: the queue of the Ray runner, and the dead-letter queue of the schedule.
        images: what builds the image if the settings ask for that.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        reach: Reach,
        environment: Mapping[str, str],
        queues: Queues,
        images: ImageBuilder | None,
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
        properties["role"].add_to_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=NETWORK_INTERFACES,
                resources=["*"],
                # Lambda sets the key in calls with the credentials that the function's code has, and in no others.
                conditions={"ArnEquals": {"lambda:SourceFunctionArn": function_arn(ray_function_name(settings))}},
            )
        )
        # A build of CodeBuild is for x86_64: in China and in GovCloud CodeBuild has no ARM.
        properties["architecture"] = lambda_.Architecture.X86_64
        self.function = lambda_.DockerImageFunction(self, "Function", **properties, code=_code(self, settings, images))
        log_as_json(self.function, settings)
        allow_loops(self.function)
        resource_of(self.function).vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(settings.ray_subnet_ids), security_group_ids=list(settings.ray_security_group_ids)
        )
        self.function.add_event_source(event_sources.SqsEventSource(queues.ray, batch_size=BATCH))
        # The body is the event itself. A constant body would have the same de-duplication id each time, and SQS would
        # drop the message as a duplicate.
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


def _code(scope: Construct, settings: DeploymentSettings, images: ImageBuilder | None) -> lambda_.DockerImageCode:
    """Return the image of the function, by its digest. Lambda may pull from the repository of a built image."""
    if settings.ray_image == BUILD:
        assert images is not None
        built = images.build(
            "RayRunner", dockerfile="ray_runner/Dockerfile", exclude=IN_THE_IMAGE, base_image=settings.ray_base_image
        )
        return lambda_.DockerImageCode.from_ecr(built.repository, tag_or_digest=f"sha256:{built.sha256}")
    image = ecr_image(settings.ray_image)
    assert image is not None
    repository = ecr.Repository.from_repository_attributes(
        scope, "Repository", repository_arn=image.arn, repository_name=image.name
    )
    return lambda_.DockerImageCode.from_ecr(repository, tag_or_digest=image.version)
