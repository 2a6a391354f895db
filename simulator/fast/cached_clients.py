"""ECS and EC2 clients of `simulator.cloud` that answer descriptions from `describe_cache`.

An answer from the cache costs as many calls, and as much virtual time, as the calls that it replaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil

from gpu_recovery.aws.ec2 import FILTER_VALUES_MAX, STATUS_IDS_MAX
from gpu_recovery.aws.ecs import DESCRIBED_AT_ONCE
from gpu_recovery.aws.ecs_events import Overrides
from gpu_recovery.aws.fields import Fields
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.instance.record import EcsStatus
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.values import Ec2Instance, Ec2InstanceStatus

from simulator.cloud.ec2 import ModelEc2
from simulator.cloud.ecs import LISTED_INSTANCES, EcsModelClient, SequentialEcs
from simulator.cloud.fleet import VirtualFleet
from simulator.fast.describe_cache import Ec2DescribeCache, EcsDescribeCache
from simulator.invocations import Invocations


class CachedEcs(SequentialEcs):
    """`SequentialEcs` with descriptions of tasks and container instances from `cache`."""

    def __init__(self, client: EcsModelClient, cluster: str, cache: EcsDescribeCache) -> None:
        super().__init__(client, cluster, client.fleet.timeline.clock)
        self.cache, self.invocations = cache, client.invocations

    def overrides(self, task: Fields) -> Overrides:
        """Return the overrides of a task, from the cache if the task was read before."""
        return self.cache.overrides(task)

    def instance_reported(self, instance_id: str, shown: InstanceObserved) -> None:
        """Save the container instance that an event shows."""
        self.cache.instance_reported((instance_id, shown))

    def task_reported(self, fact: TaskFact) -> None:
        """Save the task that an event shows."""
        self.cache.task_reported(fact)

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        """Return the facts of the tasks that ECS still knows, in the order of `task_ids`."""
        self.invocations.call("DescribeTasks", ceil(len(task_ids) / DESCRIBED_AT_ONCE))
        with self.invocations.free_of_charge():
            return self.cache.tasks(task_ids, self.clock(), super().describe_tasks)

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterator[tuple[str, InstanceObserved]]:
        """Yield the id and the state of every container instance of the cluster, in all ECS statuses."""
        arns = [arn for status in EcsStatus for arn in self._list(*LISTED_INSTANCES, status=status.value)]
        listed = [
            instance for instance in map(self.cache.cluster.find_container_instance, arns) if instance is not None
        ]
        self.invocations.call("DescribeContainerInstances", ceil(len(listed) / DESCRIBED_AT_ONCE))
        with self.invocations.free_of_charge():
            shown = self.cache.instances(listed, self.clock(), self._described)
        yield from shown

    def _described(self, arns: Sequence[str]) -> list[tuple[str, InstanceObserved]]:
        batches = (arns[start : start + DESCRIBED_AT_ONCE] for start in range(0, len(arns), DESCRIBED_AT_ONCE))
        return [shown for batch in batches for shown in self._describe_instances(batch)]


class CachedEc2(ModelEc2):
    """`ModelEc2` with descriptions of instances from `cache`."""

    def __init__(self, fleet: VirtualFleet, invocations: Invocations) -> None:
        super().__init__(fleet, invocations)
        self.cache, self.invocations = Ec2DescribeCache(fleet), invocations

    def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        """Return the state of each instance that EC2 knows, by id."""
        calls = range(ceil(len(instance_ids) / FILTER_VALUES_MAX))
        self.for_each(lambda call: self.invocations.call("DescribeInstances"), calls)
        with self.invocations.free_of_charge():
            return self.cache.instances(instance_ids, super().describe)

    def describe_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        """Return the status checks and the scheduled events of each running instance, by id."""
        self.invocations.call("DescribeInstanceStatus", ceil(len(instance_ids) / STATUS_IDS_MAX))
        with self.invocations.free_of_charge():
            return self.cache.statuses(instance_ids, STATUS_IDS_MAX, super().describe_status)
