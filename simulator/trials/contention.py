"""Runs with more work than room: jobs of several users and priorities, their quotas, and what people want of them."""

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
PRIORITIES = tuple(one.name for one in Priority)
CONTENTION_USERS, CONTENTION_PRIORITIES = 2, 3
"""Few, so that many are equals, whom only the line puts in order, and many count against one quota."""
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
"""How many crowds have no faults at their times: then all must end as if there had been none in passing either."""
AGAIN = (
    operators.JobResumed,
    operators.JobResumed,
    operators.JobSuspended,
    operators.JobSuspended,
    operators.JobCanceled,
)
"""What people want next of a job that they have suspended."""

Draw = random.Random


def of_somebody(draw: Draw, users: Sequence[str] = USERS, priorities: Sequence[str] = PRIORITIES) -> dict[str, Any]:
    """Whose a job is, and how urgent."""
    return {"user": draw.choice(users), "priority": draw.choice(priorities)}


def drawn(draw: Draw, cluster: ClusterOf, jobs: tuple[JobOf, ...]) -> tuple[ClusterOf, tuple[JobOf, ...], float]:
    """More jobs than there is room for, under quotas or none, and how long they train; what people start stays."""
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
    every = [job for job in jobs if job.by_hand and job.nnodes <= instances]
    for _ in range(draw.randint(JOBS_MIN, JOBS_MAX)):
        every.append(
            JobOf(
                nnodes=draw.randint(1, min(QUOTA if limits else 3, instances)),
                gpus=draw.choice((2, 4, 8, 8, 8)),
                at_s=round(draw.uniform(0, UNTIL_S), 1),
                suspend_grace_s=draw.choice((5, 5, 20)),
                max_runtime_s=draw.choice((None, None, 3 * int(train_s))),
                under_notice=draw.choice(NOTICES),
                train_s=round(train_s * draw.choice((0.5, 1, 1, 1.5)), 1),
                **of_somebody(draw, users, priorities),
            )
        )
    policy = {**cluster.policy, **waits}
    return replace(cluster, instances=instances, policy=policy, limits=limits), tuple(every), train_s


def operator_actions(draw: Draw, jobs: tuple[JobOf, ...], until_s: float) -> tuple[TimedFault, ...]:
    """What people want of jobs, and jobs of themselves: in every second crowd nothing.

    Wishes about one job follow each other closely: the statuses between running and suspended last for seconds.
    """
    found: list[TimedFault] = []
    begins = sorted(job.at_s for job in jobs)
    for _ in range(draw.choice((0, draw.randint(1, OPERATOR_ACTIONS_MAX)))):
        number = draw.randrange(len(jobs))
        at_s = draw.choice((begins[number] + 0.5, draw.uniform(60, until_s), draw.uniform(60, until_s)))
        found.append(operators.JobSuspended(job=number, at_s=round(at_s, 1)))
        for _ in range(draw.randint(0, 3)):
            at_s += draw.choice((draw.uniform(1, 8), draw.uniform(8, 600)))
            found.append(draw.choice(AGAIN)(job=number, at_s=round(at_s, 1)))
        if draw.random() < 0.5:
            at_s, where = round(draw.uniform(60, until_s), 1), draw.randrange(INSTANCES_MAX)
            found.append(instance_faults.RankExits(code=SUSPENDED_EXIT, machines=(where,), at_s=at_s))
    return tuple(found)
