"""Capacity check: whether the whole cluster, used or free, could ever run a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance
from gpu_recovery.core.job.spec import Backend, JobSpec

CAPACITY_CACHE_TTL = timedelta(seconds=60)
"""Time for which instances that were read can accept a job. They are read again before a job is rejected."""
OUT_OF_SERVICE = tuple(
    status for status in InstanceStatus if status not in (InstanceStatus.AVAILABLE, InstanceStatus.GONE)
)


class Capacity:
    """Check of jobs against the instances of the cluster, with a cache that lives as long as the function's process.

    The cache only accepts jobs. A job that does not fit the cached instances is checked against a fresh read.

    Args:
        read: returns every instance in the given statuses.
    """

    def __init__(self, read: Callable[[Sequence[InstanceStatus]], Iterable[ListedInstance]]) -> None:
        self._read = read
        self._cached: tuple[datetime, Mapping[str, Sequence[int]]] | None = None

    def check(self, spec: JobSpec, now: datetime, is_empty: bool = False) -> None:
        """Check that the instances of the cluster could run the job if all of them were free.

        A cluster without instances accepts every job, because instances may join soon. Jobs on Ray are not checked.

        Args:
            spec: specification of the job.
            now: time of the check.
            is_empty: whether the reconciler last counted no instance with GPUs. If no instance is AVAILABLE either,
                the instances in other statuses are not read.

        Raises:
            SpecInvalid: the job can never run on this cluster.
        """
        if spec.backend is not Backend.ECS:
            return
        if (
            self._cached is not None
            and now - self._cached[0] < CAPACITY_CACHE_TTL
            and why_never(spec, self._cached[1]) is None
        ):
            return
        instances = list(self._read((InstanceStatus.AVAILABLE,)))
        if not instances and is_empty:
            return
        if why_never(spec, _gpus_by_group(instances)) is not None or not instances:
            instances += self._read(OUT_OF_SERVICE)
        gpus_by_group = _gpus_by_group(instances)
        problem = why_never(spec, gpus_by_group)
        if problem is not None:
            raise SpecInvalid(*problem)
        self._cached = (now, gpus_by_group)


def why_never(spec: JobSpec, gpus_by_group: Mapping[str, Sequence[int]]) -> tuple[str, str] | None:
    """Return why a job can never run in the cluster, as (field, sentence); None if the job can run.

    Args:
        spec: specification of the job.
        gpus_by_group: number of GPUs of each instance, by group. An empty mapping accepts every job.
    """
    if not gpus_by_group:
        return None
    gpus_of_group = gpus_by_group.get(spec.group, ())
    of_others = " without a group" if any(gpus_by_group) else ""
    there = f" in the group {spec.group}" if spec.group else of_others
    if not gpus_of_group:
        known = listed([f"in the group {group}" if group else "without a group" for group in sorted(gpus_by_group)])
        return "group", f"there is no instance{there}; there are instances {known}"
    most = max(gpus_of_group)
    if spec.gpus_per_node > most:
        return "n_gpus_per_node", f"must be at most {most}: no instance{there} has {spec.gpus_per_node} GPUs"
    fitting = sum(gpus >= spec.gpus_per_node for gpus in gpus_of_group)
    if spec.width_min > fitting:
        condition = f"with {spec.gpus_per_node} GPUs or more"
        return (
            "nnodes",
            f"must be at most {fitting}: so many instances{there} are there {condition}, not {spec.width_min}",
        )
    return None


def _gpus_by_group(instances: Iterable[ListedInstance]) -> Mapping[str, Sequence[int]]:
    gpus_by_group: defaultdict[str, list[int]] = defaultdict(list)
    # An instance that changes its status between the two reads is in both.
    for instance in {instance.instance_id: instance for instance in instances}.values():
        gpus_by_group[instance.group].append(max(instance.gpus, instance.gpus_most))
    return gpus_by_group
