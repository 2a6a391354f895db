"""Recovery stack: functions with their triggers, API, health check, alarms and dashboard.

Data flow, as in the diagram of docs/architecture.md: events and schedules -> functions -> ECS, EC2 and notifications.
"""

from aws_cdk import Stack, Tags
from constructs import Construct

from infra.alarms import Alarms
from infra.api import JobApi
from infra.cluster import ClusterArns
from infra.console import Console
from infra.dashboard import Dashboard
from infra.environment import api_environment, console_environment, function_environment
from infra.event_rules import EventRules
from infra.functions import FUNCTIONS, Trigger
from infra.health_check_task import HealthCheckTask
from infra.image_build import BuiltImage, ImageBuilder
from infra.lambda_functions import LambdaFunctions, event_function_arns, executor_name, function_arn
from infra.metrics import MonitoredResources
from infra.node_agent import NodeAgent
from infra.outputs import Outputs
from infra.permissions import Reach
from infra.queues import Queues
from infra.ray_runner import RayRunner, ray_function_name
from infra.settings import DeploymentSettings
from infra.state_stack import StateStack

AGENT_FILES = [
    *("*", "!agent", "agent/ecs-daemon.json", "agent/run", "**/build"),
    *("!health_check", "health_check/*", "!health_check/*.py", "**/__pycache__", "**/*.egg-info"),
]
"""Exclusion patterns of the build context of the node agent's image, in the syntax of .dockerignore."""


class RecoveryStack(Stack):
    """The stack without stored data. It can be deleted and deployed again; `state` holds the data."""

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings, state: StateStack) -> None:
        super().__init__(scope, construct_id, description="gpu-recovery: heals GPU faults of training jobs on ECS")
        cluster = ClusterArns(settings)
        queues = Queues(self, "Queues", with_ray=settings.has_ray)
        images = ImageBuilder(self, "Images", settings) if settings.builds_images else None
        check = HealthCheckTask(self, "HealthCheck", settings, verdicts=state.verdicts, images=images)
        reach = _reach(settings, cluster, state, queues, check)
        environment = function_environment(settings, state, queues, check)
        agent_image = _agent_image(settings, images)
        agent = None
        if settings.runs_agent:
            assert agent_image is not None
            agent = NodeAgent(self, "NodeAgent", settings, cluster=cluster, image=agent_image)
        functions = LambdaFunctions(
            self,
            "Functions",
            settings,
            reach=reach,
            environment=environment,
            extra_environment=api_environment(settings, state, queues, agent),
            queues=queues,
        )
        rules = EventRules(
            self, "Rules", settings, cluster=cluster, functions=functions, queues=queues, bus=state.bus.bus
        )
        console = Console(self, "Console", settings, reach=reach) if settings.serves_console else None
        api = JobApi(
            self,
            "JobApi",
            settings,
            function=functions.served,
            nodes=functions.of(Trigger.NODE_HTTP),
            console=console,
        )
        link = console_environment(settings, api.url)
        functions.add_to_notifiers(link)
        if agent is not None:
            agent.run(api.http_api.api_id, api.url, rules.by_name[Trigger.TRAINING_TASKS.value])
        ray = (
            RayRunner(self, "Ray", settings, reach=reach, environment=environment | link, queues=queues, images=images)
            if settings.has_ray
            else None
        )
        watched = _watched(state, functions, queues, rules, api, console, ray)
        alarms = Alarms(self, "Alarms", topic=state.topic.topic, watched=watched)
        Dashboard(self, "Dashboard", watched=watched, alarms=alarms)
        Outputs(
            self,
            "Outputs",
            {
                **_addresses(settings, state),
                "ApiUrl": api.url,
                "ApiId": api.http_api.api_id,
                **({"ConsoleUrl": f"{api.url}/console"} if console is not None else {}),
                "HealthCheckTaskDefinitionArn": check.definition.task_definition_arn,
                "HealthCheckLogGroupName": check.logs.log_group_name,
                **({"AgentImageUri": agent_image.uri} if agent_image is not None else {}),
                **({"AgentLogGroupName": agent.logs.log_group_name} if agent is not None else {}),
                **({"ChatTopicArn": state.topic.chat_arn} if settings.chat_topic else {}),
                **queues.urls,
                **functions.names,
            },
        )
        # In China and in GovCloud event source mappings have no tags, and CloudFormation refuses them. The feature flag
        # `explicitStackTags` in cdk.json keeps these tags off the stack itself. CloudFormation would give them to
        # all of its resources.
        Tags.of(self).add("Project", "gpu-recovery", exclude_resource_types=["AWS::Lambda::EventSourceMapping"])


def _reach(
    settings: DeploymentSettings, cluster: ClusterArns, state: StateStack, queues: Queues, check: HealthCheckTask
) -> Reach:
    return Reach(
        job_table=state.tables.jobs.table_arn,
        instance_table=state.tables.instances.table_arn,
        event_history_table=state.tables.event_history.table_arn,
        keeps_gpu_history=settings.gpu_history == "on",
        cluster=cluster.arn,
        tasks=cluster.task_arns,
        container_instances=cluster.container_instance_arns,
        training_task_definitions=[
            f"{cluster.task_definition_prefix(family)}*" for family in settings.training_task_families
        ],
        training_roles=list(settings.training_role_arns),
        check_task_definitions=f"{cluster.task_definition_prefix(settings.check_family)}*",
        check_roles=[check.task_role.role_arn, check.execution_role.role_arn],
        ec2_instances=cluster.ec2_instance_arns,
        auto_scaling_groups=cluster.auto_scaling_group_arns,
        managed_tag=(settings.managed_tag_key, settings.managed_tag_value),
        may_replace=settings.replace,
        may_tag=settings.tag_repairs,
        topic=state.topic.topic.topic_arn,
        chat_topic=state.topic.chat_arn,
        topic_key=state.topic.key.key_arn,
        bus=state.bus.bus.event_bus_arn,
        scheduler_queue=queues.scheduler.queue_arn,
        command_executor=function_arn(executor_name(settings)),
        ray_queue=queues.ray.queue_arn if queues.ray is not None else "",
        ray_function=function_arn(ray_function_name(settings)) if settings.has_ray else "",
        dead_letter_queues=[queue.queue_arn for queue in queues.dead_letter_queues.values()],
        event_functions=event_function_arns(settings),
        verdict_bucket=state.verdicts.bucket.bucket_arn,
        verdicts=state.verdicts.verdicts_arn,
        records=state.verdicts.records_arn if settings.record_attempts else "",
        console_snapshots=state.verdicts.snapshots_arn,
        operator_token=state.token.secret_arn,
        node_token_key=state.node_token_key.secret_arn,
        signing_key=state.signing_key.secret_arn,
        training_log_streams=[cluster.log_stream_arns(group) for group in settings.training_log_groups],
    )


def _watched(
    state: StateStack,
    functions: LambdaFunctions,
    queues: Queues,
    rules: EventRules,
    api: JobApi,
    console: Console | None,
    ray: RayRunner | None,
) -> MonitoredResources:
    by_row = {row: functions.by_name[row.name] for row in FUNCTIONS}
    groups = functions.by_alarm_group
    if console is not None:
        groups["ApiFunction"]["Console"] = console.function
    if ray is not None:
        groups["RayRunner"] = {"RayRunner": ray.function}
    return MonitoredResources(
        functions={name: function for group in groups.values() for name, function in group.items()},
        function_groups=groups,
        asynchronous={row.construct_id: function for row, function in by_row.items() if row.trigger.is_asynchronous},
        reconciler=functions.of(Trigger.SCHEDULE),
        dead_letter_queues=queues.dead_letter_queues,
        work_queues={"Scheduler": queues.scheduler, **({"Ray": queues.ray} if queues.ray is not None else {})},
        rules={**rules.by_name, **({"RaySchedule": ray.rule} if ray is not None else {})},
        tables={
            "Jobs": state.tables.jobs,
            "Instances": state.tables.instances,
            "EventHistory": state.tables.event_history,
        },
        topics={"Operators": state.topic.topic, **({"Chat": state.topic.chat} if state.topic.chat else {})},
        api=api.http_api,
    )


def _agent_image(settings: DeploymentSettings, images: ImageBuilder | None) -> BuiltImage | None:
    """Return the image of the node agent; None if the deployment does not build it."""
    if not settings.builds_agent_image:
        return None
    assert images is not None
    return images.build(
        "Agent", dockerfile="agent/Dockerfile", exclude=AGENT_FILES, base_image=settings.agent_base_image
    )


def _addresses(settings: DeploymentSettings, state: StateStack) -> dict[str, str]:
    return {
        "ClusterName": settings.cluster_name,
        "JobTableName": state.tables.jobs.table_name,
        "InstanceTableName": state.tables.instances.table_name,
        "EventHistoryTableName": state.tables.event_history.table_name,
        "TopicArn": state.topic.topic.topic_arn,
        "EventBusName": state.bus.bus.event_bus_name,
        "VerdictBucketName": state.verdicts.bucket.bucket_name,
        "OperatorTokenSecretArn": state.token.secret_arn,
    }
