"""Published formulas of the expected ETTR and of the best checkpoint interval, to compare the simulation with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from simulator.goodput.accounting import ettr
from simulator.goodput.assumptions import CauseOfFailure, Conditions, Profile
from simulator.goodput.baselines import ConstantRules
from simulator.goodput.failure_trace import failure_trace
from simulator.goodput.policy_model import PolicyModel

RESTART_ONLY = (CauseOfFailure("restart", 1.0, "restart", "exit", False),)
"""Mix of causes as the formula assumes it: each fault stops the job once, and a restart cures it."""


def expected_ettr(failures_per_s: float, recovery_s: float, checkpoint_s: float, stall_s: float) -> float:
    """Expected ETTR of a job: E[ETTR] = (1 - N r_f (u0 + dt/2)) / (1 + w/dt).

    From Revisiting Reliability in Large-Scale ML Research Clusters (arXiv 2410.21680), §V. The formula assumes:

    - failures come at a constant rate and independently;
    - a checkpoint is safe as soon as it is written;
    - no time is spent in a queue;
    - losses are small: a failure during a recovery counts in full, although in truth it often interrupts no training.

    The formula holds while N r_f (u0 + dt/2) is at most about a tenth.

    Args:
        failures_per_s: N r_f, failures of the whole job per second.
        recovery_s: u0, seconds from a failure to the next step, the same each time.
        checkpoint_s: dt, seconds of training between the beginnings of two checkpoints.
        stall_s: w, seconds that writing one checkpoint stops the training.
    """
    lost = failures_per_s * (recovery_s + checkpoint_s / 2)
    return (1 - lost) / (1 + stall_s / checkpoint_s)


def simulated_ettr(
    profile: Profile, conditions: Conditions, recovery_s: float, seeds: Sequence[int] = range(5)
) -> float:
    """ETTR of the simulation under the formula's assumptions: the mean over one failure trace for each seed."""
    only_restarts = replace(profile, mix=RESTART_ONLY)
    safe_at_once = replace(conditions, persist_s=0.0)
    ratios = []
    for seed in seeds:
        trace = failure_trace(only_restarts, safe_at_once, seed)
        run = PolicyModel(trace, ConstantRules(recovery_s)).run()
        ratios.append(ettr(run, profile.seconds, safe_at_once))
    return mean(ratios)


def best_checkpoint_s(failures_per_s: float, stall_s: float) -> float:
    """Checkpoint interval in seconds with the least total cost of checkpoints: sqrt(2 w / N r_f) (Young 1974)."""
    return math.sqrt(2 * stall_s / failures_per_s)
