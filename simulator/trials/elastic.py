"""Runs with elastic jobs: each job accepts a range of instances, and grows when instances come free.

A run is drawn from the seed as the runs with restart in place, or as a run of the ordinary campaign. Then most jobs
become elastic, and more instances break.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpu_recovery.core.job.adoption import Adoption

from simulator.cloud.workloads import NoticeBehaviour
from simulator.faults import instances
from simulator.faults.schedule import TimedFault
from simulator.trials import generator, in_place
from simulator.trials.scenario import ClusterOf, JobOf, Scenario

if TYPE_CHECKING:
    from simulator.world import World

WIDER_MAX = 3
"""Largest difference between the smallest and the largest width of a job."""
BREAKS_MAX = 3
TRAINS_S = 2_400.0
"""Seconds of training of a job that draws no time of its own: long enough to lose instances and to grow again."""
ALONE = 0.5
"""Share of the runs with a single job that accepts all instances: it loses instances and gets them back."""
IN_PLACE_EVERY = 3
"""Every third run restarts in place."""

Draw = random.Random


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of the seed."""
    draw = Draw(f"elastic {seed}")
    scenario = generator.scenario_of(seed)
    if seed % IN_PLACE_EVERY == 0:
        scenario = in_place.scenario_of(seed)
    policy = {
        **scenario.cluster.policy,
        "elastic_wait_s": draw.choice((0, 0, 60, 120)),
        "elastic_grow_every_s": draw.choice((10, 60, 60, 300)),
    }
    cluster = replace(scenario.cluster, policy=policy, instances=scenario.cluster.instances + draw.choice((0, 0, 1, 2)))
    if cluster.adopt != Adoption.OFF:
        cluster = replace(cluster, adopt=Adoption.OFF)
    jobs = tuple(_elastic(draw, cluster, replace(job, by_hand=False)) for job in scenario.jobs)
    if draw.random() < ALONE:
        alone = replace(jobs[0], nnodes_min=1, nnodes=cluster.instances, gpus=8, at_s=0, max_runtime_s=None)
        jobs, cluster = (replace(alone, under_notice=NoticeBehaviour.SAVES),), replace(cluster, limits={})
    faults = (*scenario.faults, *_breaks(draw))
    return replace(scenario, cluster=cluster, jobs=jobs, faults=faults, train_s=TRAINS_S)


def commands_of(seed: int) -> Callable[[World], None] | None:
    """Return what disturbs the commands to the wrappers of the seed's run; None without restart in place."""
    return in_place.commands_of(seed) if seed % IN_PLACE_EVERY == 0 else None


def _elastic(draw: Draw, cluster: ClusterOf, job: JobOf) -> JobOf:
    """Return the job, mostly with a range of instances that begins at its number of instances."""
    largest = min(cluster.instances, job.nnodes + draw.randint(1, WIDER_MAX))
    notice = draw.choice((job.under_notice, NoticeBehaviour.SAVES))
    if draw.random() < 0.2 or largest <= job.nnodes:
        return job
    return replace(job, nnodes_min=job.nnodes, nnodes=largest, under_notice=notice)


def _breaks(draw: Draw) -> tuple[TimedFault, ...]:
    """Draw GPUs that break and are cured by a reboot."""
    return tuple(
        instances.GpuBreaks(
            fault="xid79",
            cured_by="reboot",
            at_s=round(draw.uniform(60, generator.FAULTS_UNTIL_S), 1),
            machines=(draw.randrange(generator.INSTANCES_MAX),),
        )
        for _ in range(draw.randint(1, BREAKS_MAX))
    )
