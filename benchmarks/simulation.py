"""How fast the simulator is: fault seeds and events in a second, and what a gang's recovery takes for each instance.

Processor time of this process, not time on the wall: other work on the machine disturbs it less.
"""

from __future__ import annotations

import time
from typing import Any

from gpu_recovery.core.job.record import JobStatus

from simulator.economy import FASTEST, LARGE, SEEDS, Economy, rare_collections
from simulator.faults.delivery import Unruly
from simulator.faults.mischief import Mischief
from simulator.world import World

SEEDS_RUN, SEED_INSTANCES, TRAIN_S = 30, 10, 600.0
GANG, RECOVERIES = 256, 3


def simulation_figures() -> dict[str, Any]:
    """Seeds and events per second, and milliseconds per instance of a recovery: with invariants asked, and without."""
    return {
        **_seeds(),
        f"recovery_ms_per_instance_at_{GANG}": _recovery_ms(LARGE),
        f"recovery_ms_per_instance_at_{GANG}_unwatched": _recovery_ms(FASTEST),
    }


def _seeds() -> dict[str, float]:
    """Small worlds in which events are lost, doubled and late, and invocations die or overlap; all is checked."""
    began, events = time.process_time(), 0
    for seed in range(SEEDS_RUN):
        mischief = Mischief(seed)
        world = World(instances=SEED_INSTANCES, train_s=TRAIN_S, nemesis=mischief, delivery=Unruly(seed), economy=SEEDS)
        job_id = world.submit(3)
        mischief.begin(world)
        world.break_gpu(world.machine(0))
        world.until_end(job_id)
        world.settle()
        events += world.timeline.happened
    taken_s = time.process_time() - began
    return {"seeds_per_s": round(SEEDS_RUN / taken_s, 1), "events_per_s": round(events / taken_s)}


def _recovery_ms(economy: Economy) -> float:
    """A rank of the gang crashes on GPUs that work: every rank is stopped, every instance checked, all relaunched."""
    world = World(instances=GANG, economy=economy)
    job_id = world.submit(GANG, attempts_max=RECOVERIES + 2)
    world.until_status(job_id, JobStatus.RUNNING)
    began = time.process_time()
    with rare_collections():
        for _ in range(RECOVERIES):
            world.let_pass(2_400)
            world.exit(job_id, 1, 139)
            world.until_status(job_id, JobStatus.STOPPING)
            world.until_status(job_id, JobStatus.RUNNING)
    return round((time.process_time() - began) / RECOVERIES / GANG * 1e3, 3)
