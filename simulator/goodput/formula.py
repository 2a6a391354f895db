"""The expected ETTR of a job, as published, to hold the simulation against."""

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
"""Faults as the formula has them: each stops the job once, and starting it again is enough."""


def expected_ettr(failures_per_s: float, recovery_s: float, checkpoint_s: float, stall_s: float) -> float:
    """E[ETTR] = (1 - N r_f (u0 + dt/2)) / (1 + w/dt), from Revisiting Reliability in Large-Scale ML Research Clusters
    (arXiv 2410.21680), §V.

    failures_per_s: N r_f, of the whole job
    recovery_s:     u0, from a failure to the next step, the same each time
    checkpoint_s:   dt, training between the beginnings of two checkpoints; stall_s: w, what writing one stops it for

    It assumes that failures come at a constant rate and independently, that a checkpoint is safe as soon as it is
    written, that no time is spent in a queue, and that losses are small: a failure during a recovery counts like any
    other, where in truth it often meets nothing. It holds while N r_f (u0 + dt/2) is at most about a tenth.
    """
    lost = failures_per_s * (recovery_s + checkpoint_s / 2)
    return (1 - lost) / (1 + stall_s / checkpoint_s)


def simulated_ettr(
    profile: Profile, conditions: Conditions, recovery_s: float, seeds: Sequence[int] = range(5)
) -> float:
    """The ETTR of the simulation where the formula's assumptions hold: the mean over a few courses."""
    only_restarts = replace(profile, mix=RESTART_ONLY)
    safe_at_once = replace(conditions, persist_s=0.0)
    found = []
    for seed in seeds:
        one = failure_trace(only_restarts, safe_at_once, seed)
        run = PolicyModel(one, ConstantRules(recovery_s)).run()
        found.append(ettr(run, profile.seconds, safe_at_once))
    return mean(found)


def best_checkpoint_s(failures_per_s: float, stall_s: float) -> float:
    """The interval at which the two costs of checkpoints are least together: sqrt(2 w / N r_f) (Young 1974)."""
    return math.sqrt(2 * stall_s / failures_per_s)
