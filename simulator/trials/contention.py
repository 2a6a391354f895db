"""Runs with more jobs than capacity: several users, priorities and quotas, and requests of operators."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpu_recovery.core.queue.priority import Priority

from simulator.cloud.workloads import SUSPENDED_EXIT
from simulator.faults import instances as instance_faults
from simulator.faults import operators
from simulator.faults.schedule import TimedFault
from simulator.trials.scenario import ClusterOf, JobOf

JOBS_MIN, JOBS_MAX = 4, 7
UNTIL_S = 1200.0
OPERATOR_ACTIONS_MAX = 3
INSTANCES_MAX = 3
TRAINS_S = (300.0, 600.0, 900.0)
USERS = ("ada", "ben", "cleo")
PRIORITIES = tuple(priority.name for priority in Priority)
CONTENTION_USERS, CONTENTION_PRIORITIES = 2, 3
"""The numbers of users and priorities in one run.

They are small, so that many jobs share a quota and differ only by their time in the queue."""
NOTICES = ("leaves", "saves", "saves", "stays", "hangs")
QUOTA = 2
LIMITS: tuple[Mapping[str, Any], ...] = (
    {},
    {},
    {"instances": {"*/*/*": QUOTA}},
    {"instances": {"*/*/*": QUOTA}, "max_running_jobs": 2},
    {"instances": {"*/LOW/*": QUOTA}, "max_running_jobs_per_user": 1},
)
UNDISTURBED = 0.3
"""Share of these runs without timed faults. Their end must be the same as without transient faults."""
AGAIN = (
    operators.JobResumed,
    operators.JobResumed,
    operators.JobSuspended,
    operators.JobSuspended,
    operators.JobCanceled,
)
"""Later requests about a job that was suspended."""

Draw = random.Random


def user_and_priority(
    draw: Draw, users: Sequence[str] = USERS, priorities: Sequence[str] = PRIORITIES
) -> dict[str, Any]:
    """Draw the user and the priority of a job."""
    return {"user": draw.choice(users), "priority": draw.choice(priorities)}


def drawn(draw: Draw, cluster: ClusterOf, jobs: tuple[JobOf, ...]) -> tuple[ClusterOf, tuple[JobOf, ...], float]:
    """Draw more jobs than there is capacity for, and quotas or none.

    Returns:
        The cluster, the jobs, and how long a gang trains, in seconds. The jobs include the gangs of operators that fit.
    """
    train_s = draw.choice(TRAINS_S)
    instances = draw.randint(2, INSTANCES_MAX)
    waits = {
        "queue_timeout_s": 28_800,
        "preemption_protect_s": draw.choice((60, 60, 300)),
        "demote_after_s": draw.choice((300, 1_800)),
        "suspensions_max": draw.choice((1, 3)),
        "vacated_reservation_s": draw.choice((120, 900)),
        "user_hold_timeout_s": draw.choice((1_800, 86_400)),
    }
    limits = draw.choice(LIMITS)
    users, priorities = draw.sample(USERS, CONTENTION_USERS), draw.sample(PRIORITIES, CONTENTION_PRIORITIES)
    drawn_jobs = [job for job in jobs if job.by_hand and job.nnodes <= instances]
    for _ in range(draw.randint(JOBS_MIN, JOBS_MAX)):
        drawn_jobs.append(
            JobOf(
                nnodes=draw.randint(1, min(QUOTA if limits else 3, instances)),
                gpus=draw.choice((2, 4, 8, 8, 8)),
                at_s=round(draw.uniform(0, UNTIL_S), 1),
                suspend_grace_s=draw.choice((5, 5, 20)),
                max_runtime_s=draw.choice((None, None, 3 * int(train_s))),
                under_notice=draw.choice(NOTICES),
                train_s=round(train_s * draw.choice((0.5, 1, 1, 1.5)), 1),
                **user_and_priority(draw, users, priorities),
            )
        )
    policy = {**cluster.policy, **waits}
    return replace(cluster, instances=instances, policy=policy, limits=limits), tuple(drawn_jobs), train_s


def operator_actions(draw: Draw, jobs: tuple[JobOf, ...], until_s: float) -> tuple[TimedFault, ...]:
    """Draw requests of operators, and ranks that exit with the code of a suspension; about half of the runs have none.

    Requests about one job follow each other closely, because the statuses between running and suspended last for
    seconds.
    """
    actions: list[TimedFault] = []
    starts = sorted(job.at_s for job in jobs)
    for _ in range(draw.choice((0, draw.randint(1, OPERATOR_ACTIONS_MAX)))):
        number = draw.randrange(len(jobs))
        at_s = draw.choice((starts[number] + 0.5, draw.uniform(60, until_s), draw.uniform(60, until_s)))
        actions.append(operators.JobSuspended(job=number, at_s=round(at_s, 1)))
        for _ in range(draw.randint(0, 3)):
            at_s += draw.choice((draw.uniform(1, 8), draw.uniform(8, 600)))
            actions.append(draw.choice(AGAIN)(job=number, at_s=round(at_s, 1)))
        if draw.random() < 0.5:
            at_s, instance = round(draw.uniform(60, until_s), 1), draw.randrange(INSTANCES_MAX)
            actions.append(instance_faults.RankExits(code=SUSPENDED_EXIT, machines=(instance,), at_s=at_s))
    return tuple(actions)
