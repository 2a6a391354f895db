"""Whether a job could ever run: what is asked of the table, and for how long it is believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.job_api.capacity import CAPACITY_CACHE_TTL, OUT_OF_SERVICE, Capacity, why_never

from tests.aws.records import NOW, A, B, instance, spec

AVAILABLE = (InstanceStatus.AVAILABLE,)


class Cluster:
    """Instances that come and go; `asked` are the statuses that were read."""

    def __init__(self, *instances: Instance) -> None:
        self.instances = list(instances)
        self.asked: list[Sequence[InstanceStatus]] = []

    def read(self, statuses: Sequence[InstanceStatus]) -> Iterable[Instance]:
        self.asked.append(tuple(statuses))
        return [one for one in self.instances if one.status in statuses]


def test_what_fits_is_read_once_a_minute() -> None:
    """And only of those that are free to work, while they suffice."""
    cluster = Cluster(instance(A), instance(B))
    capacity = Capacity(cluster.read)
    capacity.check(spec(), NOW)
    capacity.check(spec(nnodes=1), NOW)
    assert cluster.asked == [AVAILABLE]
    capacity.check(spec(), NOW + CAPACITY_CACHE_TTL)
    assert cluster.asked == [AVAILABLE] * 2


def test_a_no_is_never_old() -> None:
    """Whoever adds instances may submit at once."""
    cluster = Cluster(instance(A))
    capacity = Capacity(cluster.read)
    with pytest.raises(SpecInvalid, match="at most 1"):
        capacity.check(spec(), NOW)
    cluster.instances.append(instance(B))
    capacity.check(spec(), NOW)
    cluster.instances.append(instance("i-0c"))
    capacity.check(spec(nnodes=3), NOW)


def test_instances_out_of_use_are_looked_for_before_a_no() -> None:
    """They may come back; one that has lost GPUs counts with those it had."""
    broken = instance(B, status=InstanceStatus.REBOOTING, gpus=7, gpus_most=8)
    cluster = Cluster(instance(A), broken)
    Capacity(cluster.read).check(spec(), NOW)
    assert cluster.asked == [AVAILABLE, OUT_OF_SERVICE]
    assert {*AVAILABLE, *OUT_OF_SERVICE, InstanceStatus.GONE} == set(InstanceStatus)


def test_a_cluster_without_instances_says_nothing() -> None:
    """It may be about to grow."""
    Capacity(Cluster().read).check(spec(nnodes=3_000), NOW)


def test_a_cluster_that_was_counted_empty_is_asked_for_free_instances_only() -> None:
    """Whoever has just registered is seen all the same; nobody looks through five statuses for what is not there."""
    cluster = Cluster()
    capacity = Capacity(cluster.read)
    capacity.check(spec(nnodes=3_000), NOW, True)
    assert cluster.asked == [AVAILABLE]
    cluster.instances.append(instance(A))
    with pytest.raises(SpecInvalid, match="at most 1"):
        capacity.check(spec(), NOW, True)


def test_instances_without_a_group_are_named_in_plain_words() -> None:
    """In a deployment without groups the sentence speaks of none."""
    found = why_never(spec(gpus_per_node=9), {"": [8, 8], "h100": [16]})
    assert found == ("n_gpus_per_node", "must be at most 8: no instance without a group has 9 GPUs")
    found = why_never(spec(gpus_per_node=9), {"": [8, 8]})
    assert found == ("n_gpus_per_node", "must be at most 8: no instance has 9 GPUs")


def test_each_group_is_measured_by_itself() -> None:
    """A large neighbour is of no use."""
    sizes = {"": [8] * 9, "h100": [8, 8, 4]}
    assert why_never(spec(nnodes=9), sizes) is None and why_never(spec(nnodes=2, group="h100"), sizes) is None
    assert why_never(spec(nnodes=3, group="h100", gpus_per_node=4), sizes) is None
    found = why_never(spec(nnodes=3, group="h100"), sizes)
    assert found is not None and found[0] == "nnodes" and "group h100" in found[1]
    found = why_never(spec(group="a100"), sizes)
    assert found is not None and found[0] == "group" and "instances without a group, in the group h100" in found[1]


def test_an_elastic_job_needs_room_for_its_smallest_width() -> None:
    """The cluster may never have the largest number of instances."""
    cluster = Cluster(instance(A), instance(B))
    Capacity(cluster.read).check(spec(nnodes=4, nnodes_min=2), NOW)
    with pytest.raises(SpecInvalid, match="at most 2: so many instances are there with 8 GPUs or more, not 3"):
        Capacity(cluster.read).check(spec(nnodes=4, nnodes_min=3), NOW)
