"""ECS and EC2 as `simulator.cloud` has them, with descriptions answered from `describe_cache`.

An answer from the cache costs as many calls, and as much virtual time, as the calls that it stands for.
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
    """`SequentialEcs` with what is known of tasks and container instances in `looks`."""

    def __init__(self, client: EcsModelClient, cluster: str, looks: EcsDescribeCache) -> None:
        super().__init__(client, cluster, client.fleet.timeline.clock)
        self.looks, self.lives = looks, client.invocations

    def overrides(self, told: Fields) -> Overrides:
        return self.looks.overrides(told)

    def instance_reported(self, instance_id: str, shown: InstanceObserved) -> None:
        self.looks.instance_reported((instance_id, shown))

    def task_reported(self, fact: TaskFact) -> None:
        self.looks.task_reported(fact)

    def describe_tasks(
        self, task_ids: Sequence[str], unreadable: list[Exception] | None = None
    ) -> tuple[TaskFact, ...]:
        self.lives.call(times=ceil(len(task_ids) / DESCRIBED_AT_ONCE))
        with self.lives.free_of_charge():
            return self.looks.tasks(task_ids, self.clock(), super().describe_tasks)

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterator[tuple[str, InstanceObserved]]:
        arns = [arn for status in EcsStatus for arn in self._list(*LISTED_INSTANCES, status=status.value)]
        found = [one for one in map(self.looks.cluster.find_container_instance, arns) if one is not None]
        self.lives.call(times=ceil(len(found) / DESCRIBED_AT_ONCE))
        with self.lives.free_of_charge():
            shown = self.looks.instances(found, self.clock(), self._described)
        yield from shown

    def _described(self, arns: Sequence[str]) -> list[tuple[str, InstanceObserved]]:
        parts = (arns[start : start + DESCRIBED_AT_ONCE] for start in range(0, len(arns), DESCRIBED_AT_ONCE))
        return [shown for some in parts for shown in self._describe_instances(some)]


class CachedEc2(ModelEc2):
    """`ModelEc2` with what is known of machines in `looks`."""

    def __init__(self, fleet: VirtualFleet, lives: Invocations) -> None:
        super().__init__(fleet, lives)
        self.looks, self.lives = Ec2DescribeCache(fleet), lives

    def describe(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2Instance]:
        self.lives.call(times=ceil(len(instance_ids) / FILTER_VALUES_MAX))
        with self.lives.free_of_charge():
            return self.looks.machines(instance_ids, super().describe)

    def describe_status(self, instance_ids: Sequence[str]) -> Mapping[str, Ec2InstanceStatus]:
        self.lives.call(times=ceil(len(instance_ids) / STATUS_IDS_MAX))
        with self.lives.free_of_charge():
            return self.looks.statuses(instance_ids, STATUS_IDS_MAX, super().describe_status)
