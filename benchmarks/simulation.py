"""How fast the simulator is: fault seeds and events in a second, and what a gang's recovery takes for each instance.

Processor time of this process, not time on the wall: other work on the machine disturbs it less.
"""

from __future__ import annotations

import time
from typing import Any

from gpu_recovery.core.job.record import JobStatus

from simulator.fast.fidelity import FASTEST, LARGE, Fidelity
from simulator.trials.campaign import tally
from simulator.world import World

SEEDS_RUN = 100
GANG, RECOVERIES = 256, 3


def simulation_figures(seeds: int = SEEDS_RUN, gang: int = GANG, recoveries: int = RECOVERIES) -> dict[str, Any]:
    """Seeds and events per second, and milliseconds per instance of a recovery: with invariants asked, and without."""
    return {
        **_seeds(seeds),
        f"recovery_ms_per_instance_at_{gang}": _recovery_ms(LARGE, gang, recoveries),
        f"recovery_ms_per_instance_at_{gang}_unwatched": _recovery_ms(FASTEST, gang, recoveries),
    }


def _seeds(seeds: int) -> dict[str, float]:
    """The seeds that `python -m simulator run` plays, by one process; all is checked."""
    began = time.process_time()
    found = tally(range(seeds))
    taken_s = time.process_time() - began
    return {"seeds_per_s": round(found.seeds / taken_s, 1), "events_per_s": round(found.events / taken_s)}


def _recovery_ms(fidelity: Fidelity, gang: int, recoveries: int) -> float:
    """A rank of the gang crashes on GPUs that work: every rank is stopped, every instance checked, all relaunched."""
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
