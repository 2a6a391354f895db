"""Daemon service of the node agent: one task on each GPU instance of the cluster, with its roles and log group.

The container is privileged. Only so it sees every GPU without reserving one: a task without a GPU requirement has the
default runtime of Docker, which passes no devices of the driver. The agent loads the driver's library from the host.

The agent signs its reports with the role of the task. That role may send reports and has no other permission.
"""

from aws_cdk import Aws, Duration
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.cluster import ClusterArns
from infra.image_build import BuiltImage
from infra.image_reference import allow_pull
from infra.log_groups import log_group
from infra.settings import DeploymentSettings

CONTAINER = "agent"
"""Name of the container in the task definition."""
STATE_FOLDER, RANKS_FOLDER = "/var/lib/gpu-recovery-agent", "/var/lib/gpu-recovery-ranks"
"""Folders of the instance that the container mounts at the same paths."""
ALIVE_FILE = "/dev/shm/gpu-recovery-agent.alive"
"""File that the agent touches at each turn of its loop."""
PLACEMENT = (
    "(attribute:ecs.instance-type =~ p[0-9].* or attribute:ecs.instance-type =~ g[r0-9].*) "
    "and attribute:ecs.cpu-architecture == x86_64"
)
"""Cluster query for the instances of the service: the families with GPUs, and the processors that the image is for."""
REPORTS = "POST/api/v1/signed/reports"
"""Method and path of the reports, in an ARN of `execute-api`."""


class NodeAgent(Construct):
    """The service of the node agent: its two roles, its log group (`logs`) and, after `run`, its task definition.

    Args:
        cluster: the cluster of the service. The stack does not create it, and it must exist at the deployment.
        image: the image of the agent.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        cluster: ClusterArns,
        image: BuiltImage,
    ) -> None:
        super().__init__(scope, construct_id)
        self._settings, self._cluster, self._image = settings, cluster, image
        # Only ECS for tasks of this account may assume the roles: with the condition no other account's service can.
        tasks = iam.ServicePrincipal(
            "ecs-tasks.amazonaws.com",
            conditions={
                "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                "ArnLike": {"aws:SourceArn": f"arn:{Aws.PARTITION}:ecs:{Aws.REGION}:{Aws.ACCOUNT_ID}:*"},
            },
        )
        self.task_role = iam.Role(self, "TaskRole", assumed_by=tasks)
        self._execution_role = iam.Role(self, "ExecutionRole", assumed_by=tasks)
        allow_pull(self._execution_role, image.repository.repository_arn)
        self.logs = log_group(self, "Logs", settings)

    def run(self, api_id: str, api_url: str, task_events: events.Rule) -> None:
        """Add the service, whose agents report to the API.

        Args:
            api_id: id of the API.
            api_url: address of the API.
            task_events: the rule through which the instance of each task is recorded.
        """
        self.task_role.add_to_policy(
            iam.PolicyStatement(
                actions=["execute-api:Invoke"],
                resources=[
                    f"arn:{Aws.PARTITION}:execute-api:{Aws.REGION}:{Aws.ACCOUNT_ID}:{api_id}/$default/{REPORTS}"
                ],
            )
        )
        definition = self._definition(api_url)
        service = ecs.CfnService(
            self,
            "Service",
            cluster=self._cluster.name,
            service_name=self._settings.agent_family,
            task_definition=definition.task_definition_arn,
            launch_type="EC2",
            scheduling_strategy="DAEMON",
            placement_constraints=[
                ecs.CfnService.PlacementConstraintProperty(type="memberOf", expression=PLACEMENT),
            ],
            # A new task needs the place of the old one, because two agents of an instance would displace each other.
            deployment_configuration=ecs.CfnService.DeploymentConfigurationProperty(
                minimum_healthy_percent=0,
                maximum_percent=100,
                deployment_circuit_breaker=ecs.CfnService.DeploymentCircuitBreakerProperty(enable=True, rollback=True),
            ),
        )
        # ECS starts tasks at once, and they need the permissions of their roles. ECS reports the start of a task only
        # once, so the rule, and through it the function that knows the family, must be deployed before.
        service.node.add_dependency(self.task_role, self._execution_role, task_events)

    def _definition(self, api_url: str) -> ecs.Ec2TaskDefinition:
        definition = ecs.Ec2TaskDefinition(
            self,
            "Definition",
            family=self._settings.agent_family,
            network_mode=ecs.NetworkMode.HOST,
            pid_mode=ecs.PidMode.HOST,
            task_role=self.task_role,
            execution_role=self._execution_role,
            volumes=[
                ecs.Volume(name="state", host=ecs.Host(source_path=STATE_FOLDER)),
                ecs.Volume(name="ranks", host=ecs.Host(source_path=RANKS_FOLDER)),
            ],
        )
        container = definition.add_container(
            CONTAINER,
            image=ecs.ContainerImage.from_registry(self._image.uri),
            # Docker creates a missing folder for root alone, and ranks of every user write to the second folder.
            entry_point=["sh", "-c"],
            command=[f"chmod 0700 {STATE_FOLDER} && chmod 1777 {RANKS_FOLDER} && exec gpu-recovery-agent"],
            environment={
                **self._gpu_environment(),
                "GPU_RECOVERY_API_URL": api_url,
                "GPU_RECOVERY_AUTH": "sigv4",
                "GPU_RECOVERY_REGION": Aws.REGION,
                "GPU_RECOVERY_STATE_DIR": STATE_FOLDER,
                "GPUTASKER_RUNNING_TASKS_DIR": RANKS_FOLDER,
                "GPU_RECOVERY_ALIVE_FILE": ALIVE_FILE,
                "HOST_ROOT": "/proc/1/root",
            },
            cpu=32,
            memory_reservation_mib=64,
            # Of these the agent itself uses a fraction. `nvidia-smi` runs in the same limit during a reset of the GPUs.
            memory_limit_mib=512,
            privileged=True,
            readonly_root_filesystem=True,
            stop_timeout=Duration.seconds(10),
            health_check=ecs.HealthCheck(
                command=["CMD-SHELL", f"find {ALIVE_FILE} -mmin -2 | grep -q ."],
                interval=Duration.seconds(60),
                timeout=Duration.seconds(10),
                retries=3,
                start_period=Duration.seconds(60),
            ),
            logging=ecs.LogDriver.aws_logs(
                stream_prefix="agent", log_group=self.logs, mode=ecs.AwsLogDriverMode.NON_BLOCKING
            ),
        )
        container.add_mount_points(
            ecs.MountPoint(source_volume="state", container_path=STATE_FOLDER, read_only=False),
            ecs.MountPoint(source_volume="ranks", container_path=RANKS_FOLDER, read_only=False),
        )
        return definition

    def _gpu_environment(self) -> dict[str, str]:
        """Return the variables of what is off by default: resets of GPUs, and GPU Operational Events."""
        settings, found = self._settings, {}
        if settings.agent_gpu_reset_instance_types:
            found["GPU_RECOVERY_GPU_RESET"] = "on"
            found["GPU_RECOVERY_GPU_RESET_INSTANCE_TYPES"] = ",".join(settings.agent_gpu_reset_instance_types)
            found["GPU_RECOVERY_GPU_RESET_SERVICES"] = ",".join(settings.agent_gpu_reset_services)
        if settings.agent_gpu_events:
            found["GPU_RECOVERY_GPU_EVENTS"] = "on"
        return found
