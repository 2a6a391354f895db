"""EC2 and Auto Scaling clients for the production wrapper, answered by the sandbox's API over the cluster model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any, cast

from botocore.exceptions import ClientError
from gpu_recovery.aws.ec2 import Ec2

from sandbox.cluster.api import AutoScalingApi, Ec2Api
from sandbox.cluster.model.cluster import AwsApiError
from sandbox.cluster.model.instances import MANAGED_TAG
from simulator.cloud.fleet import VirtualFleet
from simulator.cloud.power import VirtualPower
from simulator.cloud.sequential_calls import SequentialCalls
from simulator.invocations import Invocations

MANAGED = (MANAGED_TAG, "true")
"""Opt-in tag, as name and value: the product may change only instances with this tag."""


class VirtualDriver:
    """Driver that the sandbox's API needs, over a fleet in virtual time."""

    def __init__(self, fleet: VirtualFleet) -> None:
        self.cluster, self.change, self.lock = fleet.cluster, fleet.change, RLock()
        self.now = fleet.timeline.clock


class Ec2ModelClient:
    """The operations of a boto3 EC2 or Auto Scaling client that the product calls.

    Every changing operation is an effect of the present invocation. It is refused for an instance without the opt-in
    tag, as the IAM permissions of the product refuse it.

    All operations take the parameters of boto3 and return its response.

    Raises:
        ClientError: the model refuses the request.
    """

    def __init__(self, api: Any, fleet: VirtualFleet, invocations: Invocations) -> None:
        self.api, self.fleet, self.invocations = api, fleet, invocations

    def describe_instances(self, **params: Any) -> dict[str, Any]:
        """Answer DescribeInstances."""
        self.invocations.call("DescribeInstances")
        return self._answer("DescribeInstances", self.api.describe_instances, params)

    def describe_instance_status(self, **params: Any) -> dict[str, Any]:
        """Answer DescribeInstanceStatus."""
        self.invocations.call("DescribeInstanceStatus")
        return self._answer("DescribeInstanceStatus", self.api.describe_instance_status, params)

    def reboot_instances(self, **params: Any) -> dict[str, Any]:
        """Answer RebootInstances. Only the opt-in tag of the first instance is checked, here and in the two below."""
        return self._request("RebootInstances", self.api.reboot_instances, params["InstanceIds"][0], params)

    def stop_instances(self, **params: Any) -> dict[str, Any]:
        """Answer StopInstances."""
        return self._request("StopInstances", self.api.stop_instances, params["InstanceIds"][0], params)

    def start_instances(self, **params: Any) -> dict[str, Any]:
        """Answer StartInstances."""
        return self._request("StartInstances", self.api.start_instances, params["InstanceIds"][0], params)

    def create_tags(self, **params: Any) -> dict[str, Any]:
        """Answer CreateTags."""
        instance_id = params["Resources"][0]

        def tag(**_: Any) -> dict[str, Any]:
            self.fleet.cluster.instances[instance_id].tags.update({one["Key"]: one["Value"] for one in params["Tags"]})
            return {}

        return self._request("CreateTags", tag, instance_id, {})

    def terminate_instance_in_auto_scaling_group(self, **params: Any) -> dict[str, Any]:
        """Answer TerminateInstanceInAutoScalingGroup."""
        terminate = self.api.terminate_instance_in_auto_scaling_group
        return self._request("TerminateInstanceInAutoScalingGroup", terminate, params["InstanceId"], params)

    def get_paginator(self, operation: str) -> Ec2ModelPages:
        """Return the paginator of `operation`, a method name of this class."""
        return Ec2ModelPages(getattr(self, operation))

    def _request(
        self, name: str, operation: Callable[..., Any], instance_id: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        def call() -> dict[str, Any]:
            instance = self.fleet.cluster.instances.get(instance_id)
            if instance is not None and instance.tags.get(MANAGED[0]) != MANAGED[1]:
                raise AwsApiError("UnauthorizedOperation", "You are not authorized to perform this operation.", 403)
            answer: dict[str, Any] = operation(**params)
            return answer

        self.invocations.call(name)
        return self.invocations.effect(name, {"instance": instance_id}, lambda: self._answer(name, call, {}))

    def _answer(self, name: str, operation: Callable[..., Any], params: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = operation(**params)
        except AwsApiError as error:
            body = {"Error": {"Code": error.code, "Message": error.message}}
            raise ClientError(cast(Any, body), name) from error
        return answer


class Ec2ModelPages:
    """A boto3 paginator over an operation that answers with a `NextToken` while more pages follow."""

    def __init__(self, operation: Callable[..., dict[str, Any]]) -> None:
        self.operation = operation

    def paginate(self, **params: Any) -> Iterator[dict[str, Any]]:
        """Yield the pages, each from a call of the operation."""
        while True:
            page = self.operation(**params)
            yield page
            if "NextToken" not in page:
                return
            params = {**params, "NextToken": page["NextToken"]}


class ModelEc2(SequentialCalls, Ec2):
    """The production wrapper `Ec2` with clients of the model and sequential calls."""

    def __init__(self, fleet: VirtualFleet, invocations: Invocations) -> None:
        super().__init__(MANAGED, fleet.timeline.clock)
        driver: Any = VirtualDriver(fleet)
        power: Any = VirtualPower(fleet)
        self.client = self.once = Ec2ModelClient(Ec2Api(driver, power), fleet, invocations)
        self.groups = Ec2ModelClient(AutoScalingApi(driver, power), fleet, invocations)
