"""What acts: events and schedules -> functions -> ECS, EC2 and people. Reads like the picture in the README."""

from aws_cdk import Stack, Tags
from constructs import Construct

from infra.alarms import Alarms
from infra.api import JobApi
from infra.cluster import Cluster
from infra.environment import function_environment, secret_environment
from infra.event_rules import EventRules
from infra.functions import Functions, Trigger
from infra.health_check_task import HealthCheckTask
from infra.outputs import Outputs
from infra.permissions import Reach
from infra.queues import Queues
from infra.settings import DeploymentSettings
from infra.state_stack import StateStack


class RecoveryStack(Stack):
    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings, state: StateStack) -> None:
        super().__init__(scope, construct_id, description="gpu-recovery: heals GPU faults of training jobs on ECS")
        cluster = Cluster(settings)
        queues = Queues(self, "Queues")
        check = HealthCheckTask(self, "HealthCheck", settings, verdicts=state.verdicts)
        functions = Functions(
            self,
            "Functions",
            settings,
            reach=_reach(settings, cluster, state, queues, check),
            environment=function_environment(settings, state, queues, check),
            extra_environment=secret_environment(state),
            queues=queues,
        )
        EventRules(self, "Rules", settings, cluster=cluster, functions=functions, queues=queues)
        api = JobApi(self, "JobApi", settings, function=functions.of(Trigger.HTTP))
        Alarms(self, "Alarms", topic=state.topic.topic, functions=functions, queues=queues)
        Outputs(
            self,
            "Outputs",
            {
                **_addresses(settings, state),
                "ApiUrl": api.url,
                "ApiId": api.http_api.api_id,
                "HealthCheckTaskDefinitionArn": check.definition.task_definition_arn,
                "HealthCheckLogGroupName": check.logs.log_group_name,
                **queues.urls,
                **functions.names,
            },
        )
        Tags.of(self).add("Project", "gpu-recovery")


def _reach(
    settings: DeploymentSettings, cluster: Cluster, state: StateStack, queues: Queues, check: HealthCheckTask
) -> Reach:
    return Reach(
        job_table=state.tables.jobs.table_arn,
        instance_table=state.tables.instances.table_arn,
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
        managed_tag=(settings.managed_tag_key, settings.managed_tag_value),
        topic=state.topic.topic.topic_arn,
        topic_key=state.topic.key.key_arn,
        bus=state.bus.bus.event_bus_arn,
        scheduler_queue=queues.scheduler.queue_arn,
        verdict_bucket=state.verdicts.bucket.bucket_arn,
        verdicts=state.verdicts.verdicts_arn,
        operator_token=state.token.secret_arn,
    )


def _addresses(settings: DeploymentSettings, state: StateStack) -> dict[str, str]:
    return {
        "ClusterName": settings.cluster_name,
        "JobTableName": state.tables.jobs.table_name,
        "InstanceTableName": state.tables.instances.table_name,
        "TopicArn": state.topic.topic.topic_arn,
        "EventBusName": state.bus.bus.event_bus_name,
        "VerdictBucketName": state.verdicts.bucket.bucket_name,
        "OperatorTokenSecretArn": state.token.secret_arn,
    }
