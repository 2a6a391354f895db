"""Benchmark of the placement: time of `place()` on large clusters, and its growth.

`snapshot_of` generates the clusters: half of the instances run jobs of mixed sizes and users have quotas. `place()`
returns an assignment or a reason for every waiting job.
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import random
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.priority import Priority, demotes_at
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits
from gpu_recovery.core.queue.snapshot import Host, RunningJob, Snapshot, WaitingJob

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = PRESETS[Preset.ADAPTIVE]
SIZES = ((1_000, 5_000), (1_250, 10_000), (2_500, 25_000), (5_000, 50_000), (10_000, 100_000))
"""Pairs of instances and waiting jobs."""
ROUNDS = 7
"""Passes of each size. The median is taken."""
GPUS, RACK, ZONE = 8, 16, 256
"""GPUs of an instance, instances of a rack, instances of a zone."""
SHAPES = ((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8))
"""Pairs of nodes and GPUs for each node, from which the sizes of jobs are drawn."""
PRIORITIES = (Priority.HIGH, Priority.ABOVE_NORMAL, *(Priority.NORMAL,) * 5, *(Priority.LOW,) * 3)
USERS, QUOTA = 50, 0.1
"""Number of users, and the share of the instances that a user may use."""


def snapshot_of(hosts: int, jobs: int, seed: int = 0) -> Snapshot:
    """Return a snapshot with `hosts` instances of 8 GPUs, half of them in use, and `jobs` waiting jobs.

    The same arguments give the same snapshot.
    """
    drawn = random.Random(seed)
    running, busy = _running(hosts // 2, drawn)
    used: dict[QuotaKey, int] = {}
    for job in running:
        key = QuotaKey(job.user, job.asked, job.group)
        used[key] = used.get(key, 0) + job.nodes
    fleet = tuple(
        Host(
            _name(n),
            "",
            GPUS,
            GPUS - busy.get(_name(n), 0),
            rack=f"rack-{n // RACK}",
            zone=f"zone-{n // ZONE}",
            port_offsets=tuple(range(busy.get(_name(n), 0))),
        )
        for n in range(hosts)
    )
    waiting = tuple(_waiting(n, drawn) for n in range(jobs))
    limits = QuotaLimits({("*", "*", "*"): max(16, round(hosts * QUOTA)), ("user-0", "*", "*"): 16})
    return Snapshot(waiting, running, fleet, used, limits)


def _name(number: int) -> str:
    return f"i-{number:05x}"


def _running(hosts: int, drawn: random.Random) -> tuple[tuple[RunningJob, ...], dict[str, int]]:
    """Return jobs on the first `hosts` instances, and the used GPUs of each instance. Small jobs share an instance."""
    running: list[RunningJob] = []
    busy: dict[str, int] = {}
    at = 0
    while at < hosts:
        nodes, gpus = drawn.choice(SHAPES)
        if at + nodes > hosts or (busy.get(_name(at)) and (nodes > 1 or busy[_name(at)] + gpus > GPUS)):
            at += 1 if busy.get(_name(at)) else 0
            continue
        names = tuple(_name(n) for n in range(at, at + nodes))
        priority = drawn.choice(PRIORITIES)
        since = NOW - timedelta(seconds=drawn.randrange(0, 86_400))
        running.append(
            RunningJob(
                f"run-{len(running):06d}",
                1,
                1,
                f"user-{drawn.randrange(USERS)}",
                priority,
                priority,
                "",
                nodes,
                gpus,
                names,
                since,
                since,
                NOW + timedelta(seconds=drawn.randrange(60, 172_800)),
                demotes_at(priority, 0, since, POLICY),
                checkpoint_at=None,
            )
        )
        for name in names:
            busy[name] = busy.get(name, 0) + gpus
        if nodes > 1 or busy[names[0]] == GPUS:
            at += nodes
    return tuple(running), busy


def _waiting(number: int, drawn: random.Random) -> WaitingJob:
    nodes, gpus = drawn.choice(SHAPES)
    priority = drawn.choice(PRIORITIES)
    queued_at = NOW - timedelta(seconds=drawn.randrange(0, 604_800))
    runs_for_s = drawn.choice((None, drawn.randrange(600, 172_800)))
    user = f"user-{drawn.randrange(USERS)}"
    return WaitingJob(
        f"job-{number:06d}",
        1,
        0,
        user,
        priority,
        priority,
        "",
        nodes,
        gpus,
        queued_at,
        runs_for_s=runs_for_s,
        limit_s=runs_for_s,
    )


def placement_figures(sizes: Sequence[tuple[int, int]] = SIZES, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure passes of the placement, in processor time of this process.

    Processor time depends less on other processes of the computer than elapsed time.

    Returns:
        Milliseconds of a pass for each size, the exponent of the growth from the smallest to the largest size, and the
        steepest exponent between two consecutive sizes. The exponents refer to the number of hosts and jobs together.

    Raises:
        AssertionError: a waiting job got neither an assignment nor a reason.
    """
    taken = {(hosts, jobs): _place_ms(hosts, jobs, rounds) for hosts, jobs in sizes}

    def exponent(small: tuple[int, int], large: tuple[int, int]) -> float:
        return round(math.log(taken[large] / taken[small]) / math.log(sum(large) / sum(small)), 3)

    steepest = max(itertools.pairwise(sizes), key=lambda pair: exponent(*pair))
    figures: dict[str, Any] = {f"{hosts}_hosts_{jobs}_jobs_ms": round(ms, 1) for (hosts, jobs), ms in taken.items()}
    return figures | {
        "growth_exponent": exponent(sizes[0], sizes[-1]),
        "steepest_exponent": exponent(*steepest),
        "steepest_from_hosts": steepest[0][0],
        "steepest_to_hosts": steepest[1][0],
    }


def _place_ms(hosts: int, jobs: int, rounds: int) -> float:
    snapshot = snapshot_of(hosts, jobs)
    times = []
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        answer = place(snapshot, POLICY, NOW)
        times.append(time.process_time() - began)
        if len(answer.assignments) + len(answer.rejected) != jobs:
            raise AssertionError("somebody was not answered")
    return statistics.median(times) * 1e3


if __name__ == "__main__":
    print(json.dumps(placement_figures(), indent=2))
