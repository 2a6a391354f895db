"""Whether a job could ever run: what the cluster has in all, whoever uses it now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.identifiers import listed
from gpu_recovery.core.instance.record import Instance, InstanceStatus
from gpu_recovery.core.job.spec import Backend, JobSpec

CAPACITY_CACHE_TTL = timedelta(seconds=60)
OUT_OF_SERVICE = tuple(one for one in InstanceStatus if one not in (InstanceStatus.AVAILABLE, InstanceStatus.GONE))


class Capacity:
    """Lives as long as its function. What was read is believed for a minute if it says yes, and never if it says no.

    read: every instance in these statuses.
    """

    def __init__(self, read: Callable[[Sequence[InstanceStatus]], Iterable[Instance]]) -> None:
        self._read = read
        self._cached: tuple[datetime, Mapping[str, Sequence[int]]] | None = None

    def check(self, spec: JobSpec, now: datetime, is_empty: bool = False) -> None:
        """SpecInvalid if no number of free instances would be enough for the job.

        A cluster without any instance says nothing: it may be about to get some. Where it `is_empty`, as the
        reconciler last counted it, and none is free, nobody looks for those that are out of use.
        """
        if spec.backend is not Backend.ECS:
            return
        if (
            self._cached is not None
            and now - self._cached[0] < CAPACITY_CACHE_TTL
            and why_never(spec, self._cached[1]) is None
        ):
            return
        found = list(self._read((InstanceStatus.AVAILABLE,)))
        if not found and is_empty:
            return
        if why_never(spec, _sizes(found)) is not None or not found:
            found += self._read(OUT_OF_SERVICE)
        sizes = _sizes(found)
        why = why_never(spec, sizes)
        if why is not None:
            raise SpecInvalid(*why)
        self._cached = (now, sizes)


def why_never(spec: JobSpec, sizes: Mapping[str, Sequence[int]]) -> tuple[str, str] | None:
    """(field, sentence) why a job can never run on instances of `sizes` GPUs by group; None if it can."""
    if not sizes:
        return None
    ours = sizes.get(spec.group, ())
    where = _named((spec.group,))[0]
    if not ours:
        return "group", f"no instance belongs to {where}; there are some in {listed(_named(sizes))}"
    most = max(ours)
    if spec.gpus_per_node > most:
        return "n_gpus_per_node", f"must be at most {most}: no instance of {where} has {spec.gpus_per_node} GPUs"
    fitting = sum(gpus >= spec.gpus_per_node for gpus in ours)
    if spec.nnodes > fitting:
        having = f"with {spec.gpus_per_node} GPUs or more"
        return (
            "nnodes",
            f"must be at most {fitting}: so many instances of {where} are there {having}, not {spec.nnodes}",
        )
    return None


def _named(groups: Iterable[str]) -> list[str]:
    return [f"group {group}" if group else "no group" for group in sorted(groups)]


def _sizes(instances: Iterable[Instance]) -> Mapping[str, Sequence[int]]:
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for one in {each.instance_id: each for each in instances}.values():
        sizes[one.group].append(max(one.gpus, one.gpus_most))
    return sizes
