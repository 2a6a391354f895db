"""Console snapshots: what the web console shows of the whole fleet, encoded small enough to be polled.

The console never lists the records themselves: an answer with 10,000 records has 17 MB. The reconciler has every
record in memory once in each cycle, and writes what the console needs as named documents. A fleet map holds one number
for each instance and column. Each column is a typed array in little-endian order, in base64. The positions in the
columns are those of the document `members`, which changes only with the membership of the cluster.
"""

from __future__ import annotations

import hashlib
import struct
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from enum import IntFlag, StrEnum
from types import MappingProxyType
from typing import Any

from gpu_recovery.core.gpu_utilisation import map_part
from gpu_recovery.core.instance.out_of_use import out_of_use
from gpu_recovery.core.instance.record import InstanceStatus, ListedInstance


class SnapshotName(StrEnum):
    """Name of a console snapshot, and the function that writes it."""

    MAP = "map"  # the reconciler: a status, flags and a job for each instance
    MEMBERS = "members"  # the reconciler: id, GPUs and place of each instance
    LIMITS = "limits"  # the reconciler: totals, the fleet limits, and the instances that get no job
    QUEUE = "queue"  # the scheduler: the waiting and running jobs, totals by priority, and quotas


STATUSES = tuple(InstanceStatus)
"""The statuses by their numbers in the column `status`. The document names them, so that clients need no list."""
JOBS_MAX = 65_535
"""Different jobs that the column `job` can name. Further jobs are 0, as no job."""


class MapFlag(IntFlag):
    """A bit of the column `flags`."""

    SILENT = 1  # the heartbeat of the node agent is missing
    HELD = 2  # its repair is held back
    SUSPECTED = 4  # a health source reports it as impaired, or ranks may run on it unknown to ECS
    LEAVING = 8  # its interruption is announced
    RESERVED = 16  # it is reserved for a job
    UNPLACEABLE = 32  # ECS places nothing on it: drained, or its ECS agent is not connected


def ordered(instances: Iterable[ListedInstance]) -> list[ListedInstance]:
    """Return the instances in the order of the columns: by group, zone, rack and id. A rack is one run of cells."""
    return sorted(instances, key=lambda one: (one.group, one.availability_zone, one.rack, one.instance_id))


def members_document(instances: Iterable[ListedInstance]) -> dict[str, Any]:
    """Return the document `members`.

    Returns:
        `members`, a digest of the other properties; `ids` by position; columns `gpus` (u8), `group`, `zone` and `rack`
        (u16, numbers of the names in `groups`, `zones` and `racks`).
    """
    members = ordered(instances)
    document: dict[str, Any] = {"ids": [one.instance_id for one in members]}
    document["gpus"] = _column("B", (min(255, max(one.gpus, one.gpus_most)) for one in members))
    for name, names in (
        ("group", [one.group for one in members]),
        ("zone", [one.availability_zone for one in members]),
        ("rack", [one.rack for one in members]),
    ):
        numbers = {text: number for number, text in enumerate(dict.fromkeys(names))}
        document[f"{name}s"] = list(numbers)
        document[name] = _column("H", (min(JOBS_MAX, numbers[text]) for text in names))
    return {"members": _digest(document), **document}


def map_document(
    instances: Iterable[ListedInstance], members: str, utilisation: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the document `map`.

    Args:
        instances: the instances of the cluster.
        members: the digest of the document `members` of the same instances.
        utilisation: the utilisation of the GPUs by instance, as heartbeats have it; an instance without it is unknown.

    Returns:
        `members`; `statuses` and `jobs`, the names that columns refer to; columns `status` (u8), `flags` (u8, bits of
        `MapFlag`), `job` (u16: 0 for none, else the number of the name in `jobs`, counted from 1), `status_at` (u32,
        seconds since 1970) and `utilisation` (8 u8 for each instance, see `core/gpu_utilisation.py`).
    """
    listed = ordered(instances)
    working = [min(one.claims, default="") for one in listed]
    jobs = sorted({job for job in working if job})[:JOBS_MAX]
    numbers = {job: number for number, job in enumerate(jobs, start=1)}
    return {
        "members": members,
        "statuses": [status.value for status in STATUSES],
        "jobs": jobs,
        "status": _column("B", (STATUSES.index(one.status) for one in listed)),
        "flags": _column("B", (flags_of(one) for one in listed)),
        "job": _column("H", (numbers.get(job, 0) for job in working)),
        "status_at": _column("I", (int(one.status_at.timestamp()) for one in listed)),
        "utilisation": b64encode(b"".join(map_part(utilisation.get(one.instance_id, "")) for one in listed)).decode(),
    }


def flags_of(instance: ListedInstance) -> MapFlag:
    """Return the flags of an instance."""
    conditions = {
        MapFlag.SILENT: instance.silent_since is not None,
        MapFlag.HELD: instance.held is not None and instance.status is InstanceStatus.QUARANTINED,
        MapFlag.SUSPECTED: any(report.impairs for report in instance.health.values()) or bool(instance.orphaned_ranks),
        MapFlag.LEAVING: instance.departure is not None,
        MapFlag.RESERVED: bool(instance.reserved_for),
        MapFlag.UNPLACEABLE: instance.drained_by_others or not instance.agent_connected,
    }
    return MapFlag(sum(flag for flag, holds in conditions.items() if holds))


def totals(instances: Sequence[ListedInstance]) -> dict[str, Any]:
    """Return counts of instances and GPUs.

    Returns:
        `instances` and `gpus`: all of them. `by_status`: instances by status. `silent`: instances without a heartbeat.
        `gpus_in_use`: GPUs with a claim. `gpus_free`: GPUs that the scheduler may give to jobs. `gpus_out_of_use`: GPUs
        without a claim on instances that get no job. `instances_in_use`: instances with a claim. `instances_free`:
        instances without a claim that may get jobs.
    """
    usable = [one for one in instances if out_of_use(one) is None]
    rest = [one for one in instances if out_of_use(one) is not None]
    return {
        "instances": len(instances),
        "gpus": sum(max(one.gpus, one.gpus_most) for one in instances),
        "by_status": {status.value: sum(one.status is status for one in instances) for status in STATUSES},
        "silent": sum(one.silent_since is not None for one in instances),
        "instances_in_use": sum(bool(one.claims) for one in instances),
        "instances_free": sum(not one.claims for one in usable),
        "gpus_in_use": sum(claim.gpus for one in instances for claim in one.claims.values()),
        "gpus_free": sum(one.gpus_to_give() for one in usable),
        "gpus_out_of_use": sum(max(0, one.gpus_unclaimed) for one in rest),
    }


def _column(kind: str, values: Iterable[int]) -> str:
    """Return the values as an array of `kind` (a format of the module `struct`), little-endian, in base64."""
    column = tuple(values)
    return b64encode(struct.pack(f"<{len(column)}{kind}", *column)).decode()


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(repr(sorted(document.items())).encode()).hexdigest()[:32]
