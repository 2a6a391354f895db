"""ECS, EC2 and Auto Scaling operations of the cluster, with the names and shapes of botocore's clients.

Each method takes the parameters of its AWS call and returns the response. An AwsApiError is an AWS error response.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from sandbox.cluster.driver import Driver
from sandbox.cluster.model import describe, health, instances, tasks
from sandbox.cluster.model.cluster import AwsApiError
from sandbox.cluster.model.records import ModelInstance, ScheduledEvent
from sandbox.cluster.model.statuses import Ec2State, StatusCheck
from sandbox.cluster.power import PowerControl
from sandbox.cluster.task_definitions import Definitions

Answer = dict[str, Any]
METADATA = {"State": "applied", "HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1}
"""Options of the metadata service of each instance."""
FILTER_VALUES_MAX, STATUS_IDS_MAX = 200, 100
"""Upper bounds of the values of a filter, and of the ids of DescribeInstanceStatus: EC2 API reference."""


class EcsApi:
    """The ECS operations. Those on task definitions go to `definitions`."""

    def __init__(self, driver: Driver, definitions: Definitions) -> None:
        self._driver, self._cluster, self._definitions = driver, driver.cluster, definitions
        self.register_task_definition = definitions.register_task_definition
        self.describe_task_definition = definitions.describe_task_definition
        self.list_task_definitions = definitions.list_task_definitions
        self.list_task_definition_families = definitions.list_task_definition_families
        self.deregister_task_definition = definitions.deregister_task_definition

    def _read(self, query: Callable[[], Answer], params: Answer) -> Answer:
        with self._driver.lock:
            self._cluster.check_cluster(params.get("cluster"))
            return query()

    def run_task(self, **params: Any) -> Answer:
        """RunTask (see `model.tasks.run_task`)."""
        described = self._definitions.describe_task_definition(taskDefinition=params["taskDefinition"])
        definition = described["taskDefinition"]
        return self._driver.change(lambda now: tasks.run_task(self._cluster, params, definition, now))

    def stop_task(self, **params: Any) -> Answer:
        """StopTask (see `model.tasks.stop_task`)."""
        self._cluster.check_cluster(params.get("cluster"))
        return self._driver.change(
            lambda now: tasks.stop_task(self._cluster, params["task"], params.get("reason"), now)
        )

    def describe_tasks(self, **params: Any) -> Answer:
        """DescribeTasks."""
        return self._read(lambda: describe.describe_tasks(self._cluster, params, self._driver.now()), params)

    def list_tasks(self, **params: Any) -> Answer:
        """ListTasks."""
        return self._read(lambda: describe.list_tasks(self._cluster, params, self._driver.now()), params)

    def describe_container_instances(self, **params: Any) -> Answer:
        """DescribeContainerInstances."""
        return self._read(lambda: describe.describe_container_instances(self._cluster, params), params)

    def list_container_instances(self, **params: Any) -> Answer:
        """ListContainerInstances."""
        return self._read(lambda: describe.list_container_instances(self._cluster, params), params)

    def update_container_instances_state(self, **params: Any) -> Answer:
        """UpdateContainerInstancesState: ACTIVE or DRAINING."""
        self._cluster.check_cluster(params.get("cluster"))
        return self._driver.change(lambda now: instances.update_container_instances_state(self._cluster, params, now))

    def deregister_container_instance(self, **params: Any) -> Answer:
        """DeregisterContainerInstance."""
        self._cluster.check_cluster(params.get("cluster"))
        reference, force = params["containerInstance"], params.get("force", False)
        return self._driver.change(lambda now: instances.deregister(self._cluster, reference, force=force, now=now))

    def list_clusters(self, **params: Any) -> Answer:
        """ListClusters: the one cluster."""
        with self._driver.lock:
            return describe.page([self._cluster.cluster_arn], params, "clusterArns", "maxResults", "nextToken")

    def describe_clusters(self, **params: Any) -> Answer:
        """DescribeClusters."""
        with self._driver.lock:
            return describe.describe_clusters(self._cluster, params)


class Ec2Api:
    """The EC2 operations."""

    def __init__(self, driver: Driver, power: PowerControl) -> None:
        self._driver, self._cluster, self._power = driver, driver.cluster, power

    def describe_instances(self, **params: Any) -> Answer:
        """DescribeInstances, with one reservation for each instance."""
        with self._driver.lock:
            views = [self._view(instance) for instance in self._select(params)]
        paged = describe.page(views, {"MaxResults": 1000} | params, "Instances", "MaxResults", "NextToken")
        reservations = [
            {
                "ReservationId": f"r-{view['InstanceId'][2:]}",
                "OwnerId": self._cluster.account,
                "Instances": [view],
            }
            for view in paged.pop("Instances")
        ]
        return {"Reservations": reservations} | paged

    def describe_instance_status(self, **params: Any) -> Answer:
        """DescribeInstanceStatus: only running instances unless IncludeAllInstances. As on EC2, reboots do not show."""
        everything = params.get("IncludeAllInstances", False)
        if len(params.get("InstanceIds", [])) > STATUS_IDS_MAX:
            raise AwsApiError("InvalidParameterValue", f"At most {STATUS_IDS_MAX} instance IDs can be specified.")
        with self._driver.lock:
            statuses = [
                {
                    "InstanceId": i.instance_id,
                    "AvailabilityZone": i.availability_zone,
                    "InstanceState": instances.ec2_code(i.ec2_state),
                    "InstanceStatus": _status(i, StatusCheck.INSTANCE),
                    "SystemStatus": _status(i, StatusCheck.SYSTEM),
                    "Events": [_scheduled(event) for event in i.scheduled],
                }
                for i in self._select(params)
                if everything or i.ec2_state is Ec2State.RUNNING
            ]
        return describe.page(statuses, {"MaxResults": 1000} | params, "InstanceStatuses", "MaxResults", "NextToken")

    def describe_tags(self, **params: Any) -> Answer:
        """DescribeTags of instances."""
        with self._driver.lock:
            rows = [
                {"ResourceId": i.instance_id, "ResourceType": "instance", "Key": key, "Value": value}
                for i in self._cluster.instances.values()
                for key, value in i.tags.items()
            ]
        members = {
            "resource-id": "ResourceId",
            "resource-type": "ResourceType",
            "key": "Key",
            "value": "Value",
        }
        for condition in params.get("Filters", []):
            member = _known(members, condition["Name"])
            matches = _matcher(condition["Values"])
            rows = [row for row in rows if matches(row[member])]
        return describe.page(rows, {"MaxResults": 1000} | params, "Tags", "MaxResults", "NextToken")

    def reboot_instances(self, **params: Any) -> Answer:
        """RebootInstances."""
        self._refuse_dry_run(params)
        self._power.reboot(params["InstanceIds"])
        return {}

    def stop_instances(self, **params: Any) -> Answer:
        """StopInstances."""
        self._refuse_dry_run(params)
        return {"StoppingInstances": self._power.stop(params["InstanceIds"])}

    def start_instances(self, **params: Any) -> Answer:
        """StartInstances."""
        self._refuse_dry_run(params)
        return {"StartingInstances": self._power.start(params["InstanceIds"])}

    def terminate_instances(self, **params: Any) -> Answer:
        """TerminateInstances."""
        self._refuse_dry_run(params)
        return {"TerminatingInstances": self._power.terminate(params["InstanceIds"])}

    def _refuse_dry_run(self, params: Answer) -> None:
        if params.get("DryRun"):
            raise AwsApiError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)

    def _select(self, params: Answer) -> list[ModelInstance]:
        selected = self._cluster.known_to_ec2(self._driver.now())
        if wanted := params.get("InstanceIds"):
            known = {i.instance_id for i in selected}
            if unknown := [instance_id for instance_id in wanted if instance_id not in known]:
                raise AwsApiError("InvalidInstanceID.NotFound", f"The instance ID '{unknown[0]}' does not exist")
            wanted_ids = set(wanted)
            selected = [i for i in selected if i.instance_id in wanted_ids]
        for condition in params.get("Filters", []):
            if len(condition["Values"]) > FILTER_VALUES_MAX:
                raise AwsApiError("FilterLimitExceeded", f"A filter can have at most {FILTER_VALUES_MAX} values.")
            matches, facts = _matcher(condition["Values"]), _facts(condition["Name"])
            selected = [i for i in selected if any(map(matches, facts(i)))]
        return selected

    def _view(self, instance: ModelInstance) -> Answer:
        address = {} if instance.ec2_state is Ec2State.TERMINATED else {"PrivateIpAddress": instance.private_ip}
        lifecycle = {"InstanceLifecycle": instance.lifecycle} if instance.lifecycle else {}
        return (
            {
                "InstanceId": instance.instance_id,
                "ImageId": "ami-00000000000000000",
                "InstanceType": instance.instance_type,
                "LaunchTime": instance.launched_at,
                "State": instances.ec2_code(instance.ec2_state),
                "Placement": {"AvailabilityZone": instance.availability_zone, "Tenancy": "default"},
                "Architecture": "x86_64",
                "RootDeviceType": instance.root_device,
                "RootDeviceName": "/dev/xvda",
                "MetadataOptions": METADATA,
                "Tags": [{"Key": key, "Value": value} for key, value in instance.tags.items()],
            }
            | address
            | lifecycle
        )


class AutoScalingApi:
    """The Auto Scaling operations."""

    def __init__(self, driver: Driver, power: PowerControl) -> None:
        self._driver, self._cluster, self._power = driver, driver.cluster, power

    def terminate_instance_in_auto_scaling_group(self, **params: Any) -> Answer:
        """TerminateInstanceInAutoScalingGroup. The group launches a replacement unless its capacity is decremented."""
        with self._driver.lock:
            instance = health.member(self._cluster, params["InstanceId"])
            self._power.terminate([instance.instance_id], replaced=not params["ShouldDecrementDesiredCapacity"])
            return {
                "Activity": {
                    "ActivityId": self._cluster.ids.uuid("activity"),
                    "AutoScalingGroupName": health.group_of(instance),
                    "Description": f"Terminating EC2 instance: {instance.instance_id}",
                    "Cause": "instance was taken out of service in response to a user request.",
                    "StartTime": self._driver.now(),
                    "StatusCode": "InProgress",
                    "Progress": 0,
                }
            }


def _status(instance: ModelInstance, check: StatusCheck) -> Answer:
    if instance.ec2_state is not Ec2State.RUNNING:
        return {"Status": "not-applicable"}
    since = instance.impaired.get(check)
    if since is None:
        return {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
    failed = {"Name": "reachability", "Status": "failed", "ImpairedSince": since}
    return {"Status": "impaired", "Details": [failed]}


def _scheduled(event: ScheduledEvent) -> Answer:
    return {
        "InstanceEventId": event.event_id,
        "Code": event.code,
        "Description": event.description,
        "NotBefore": event.not_before,
    }


def _known(members: dict[str, Any], name: str) -> Any:
    if name not in members:
        raise AwsApiError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return members[name]


def _matcher(patterns: list[str]) -> Callable[[str], bool]:
    """Return a test for values that match one of `patterns`, which may hold wildcards.

    A filter may name thousands of instances, so patterns without wildcards are looked up in a set.
    """
    plain = {pattern for pattern in patterns if not any(character in pattern for character in "*?[")}
    wild = [pattern for pattern in patterns if pattern not in plain]
    if not wild:
        return plain.__contains__
    return lambda value: value in plain or any(fnmatchcase(value, pattern) for pattern in wild)


def _facts(name: str) -> Callable[[ModelInstance], list[str]]:
    """Return the function that reads the values of an instance for the filter `name`."""
    if name.startswith("tag:"):
        return lambda instance: [instance.tags[name[4:]]] if name[4:] in instance.tags else []
    read: Callable[[ModelInstance], list[str]] = _known(_FACTS, name)
    return read


_FACTS: dict[str, Callable[[ModelInstance], list[str]]] = {
    "instance-id": lambda instance: [instance.instance_id],
    "instance-state-name": lambda instance: [str(instance.ec2_state)],
    "instance-type": lambda instance: [instance.instance_type],
    "availability-zone": lambda instance: [instance.availability_zone],
    "private-ip-address": lambda instance: [instance.private_ip],
    "tag-key": lambda instance: list(instance.tags),
}
