"""Passive evidence about the instances of an attempt that has ended: what their node agents reported since the failure.

The agents read the kernel log and NVML, and report an exit of a rank or a fault within seconds. So the evidence costs
no GPU time. It finds no fault that only a test of the GPUs would find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gpu_recovery.core.lazy_dataclass import frozen_dataclass

FAULTY_MAX = 8
"""Instances with a fault that the evidence holds at most."""


@frozen_dataclass()
class PassiveEvidence:
    """What the agents of an attempt's instances reported since its failure.

    silent:  number of instances whose agent has not reported since, or cannot read its GPUs.
    example: the first of them; "" if there is none.
    faulty:  a sentence about each instance with a sign of a fault, at most `FAULTY_MAX`. Further instances with a sign
        count as silent, so that the whole gang is checked.
    doubtful: the instances of `faulty` with no other sign than one that a program can cause.
    """

    silent: int = 0
    example: str = ""
    faulty: Mapping[str, str] = field(default_factory=dict)
    doubtful: tuple[str, ...] = ()
