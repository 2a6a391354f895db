"""Benchmark of the simulator: seeds and events per second, and time of a gang's recovery.

All times are processor time of this process, which depends less on other processes of the computer than elapsed time.
"""

from __future__ import annotations

import time
from typing import Any

from gpu_recovery.core.job.record import JobStatus

from simulator.fast.fidelity import FASTEST, LARGE, Fidelity
from simulator.trials.campaign import tally
from simulator.world import World

SEEDS_RUN = 100
"""Fault seeds that are run."""
GANG, RECOVERIES = 256, 3
"""Instances of the gang, and its recoveries of which the mean is taken."""


def simulation_figures(seeds: int = SEEDS_RUN, gang: int = GANG, recoveries: int = RECOVERIES) -> dict[str, Any]:
    """Return seeds and events per second, and milliseconds of a recovery per instance.

    The recovery is measured with checks of the invariants and without them ("unwatched").
    """
    return {
        **_seeds(seeds),
        f"recovery_ms_per_instance_at_{gang}": _recovery_ms(LARGE, gang, recoveries),
        f"recovery_ms_per_instance_at_{gang}_unwatched": _recovery_ms(FASTEST, gang, recoveries),
    }


def _seeds(seeds: int) -> dict[str, float]:
    """Run seeds as `python -m simulator run` does, in one process and with all checks."""
    began = time.process_time()
    result = tally(range(seeds))
    taken_s = time.process_time() - began
    return {"seeds_per_s": round(result.seeds / taken_s, 1), "events_per_s": round(result.events / taken_s)}


def _recovery_ms(fidelity: Fidelity, gang: int, recoveries: int) -> float:
    """Return the milliseconds per instance of a recovery after the crash of one rank on healthy GPUs.

    In each recovery every rank is stopped, every instance is checked and the gang is relaunched.
    """
    world = World(instances=gang, fidelity=fidelity)
    job_id = world.submit(gang, attempts_max=recoveries + 2)
    world.until_status(job_id, JobStatus.RUNNING)
    began = time.process_time()
    for _ in range(recoveries):
        world.let_pass(2_400)
        world.exit(job_id, 1, 139)
        world.until_status(job_id, JobStatus.STOPPING)
        world.until_status(job_id, JobStatus.RUNNING)
    return round((time.process_time() - began) / recoveries / gang * 1e3, 3)
