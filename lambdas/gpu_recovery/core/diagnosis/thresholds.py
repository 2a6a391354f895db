"""Thresholds of the diagnosis rules, each with its unit.

The values are those of the fault catalogue (docs/diagnosis.md) unless noted.
"""

from __future__ import annotations

from gpu_recovery.core.lazy_dataclass import frozen_dataclass


@frozen_dataclass()
class Thresholds:
    """Thresholds in seconds, gigabytes (10^9 bytes), percent and ratios. A diagnosis names their version."""

    version: str = "2"
    upload_slow_s: float = 60.0
    download_slow_s: float = 60.0
    heartbeat_s: float = 5.0
    stalled_heartbeats: int = 3
    """Heartbeats with the same progress that count as a stall. The catalogue only knows progress that falls."""
    calls_done_ratio: float = 0.8
    sporadic_ratio: float = 0.2
    some_ratio: float = 0.5
    rack_most_ratio: float = 0.8
    """Ratio of a rack, on at least two instances, that counts as "most" of the rack."""
    connect_timeout_s: float = 10.0
    connect_slow_s: float = 5.0
    header_slow_s: float = 60.0
    body_slow_ratio: float = 10.0
    body_slow_s: float = 5.0
    """Seconds below which no body is slow, however fast its header was. Seed 002 only has the ratio."""
    memory_low_gb: float = 1.0
    memory_out_gb: float = 0.1
    cpu_overload_percent: float = 95.0
    silent_s: float = 60.0
    ack_s: float = 600.0
    lock_s: float = 60.0
    leak_mb: float = 1_024.0
    """Megabytes below which a process that stays after its stage is resident by design, and no leak."""
    sigma: float = 2.0
    guard_sigma: float = 4.0
    """Distance of a straggler from the spread between the workers that the noise of their calls does not explain."""
    guard_slowness: float = 1.25
    """Least ratio of a straggler to the median: a smaller difference matters little."""
    guard_slowness_once: float = 1.45
    """The same ratio where each worker made one call, so that the noise of a call is not measured."""
    guard_alarms: float = 0.001
    """Ratio of windows of equal workers in which the guard may name a worker."""
    guard_skewness: float = 10.0
    """Skewness of the seconds of calls, as a multiple of their relative noise.

    Lognormal numbers have 3. The seconds of a step with uneven sequences have 8 (trace SE of ByteDance's
    StragglerAnalysis, github.com/ByteDance-Seed/StragglerAnalysis).
    """
    guard_finds: float = 1.5
    guard_power: float = 0.95
    """The guard names workers only if it would find a worker that is slower by `guard_finds` with this probability."""
    uneven_noise: float = 0.1
    """Noise of a call from which calls are uneven (StragglerAnalysis: 0.14 with uneven sequences, else 0.02)."""
    pair_slow_ratio: float = 2.0
    """Ratio to the median above which an instance's best pairwise test is slow (DLRover's network check)."""
    stalled_s: float = 600.0
    """Seconds without progress of one worker from which the stall is strong evidence of a hang."""
    decided: float = 0.55
    """Confidence below which a hypothesis is undecided."""
    margin: float = 0.2
    """Lead over the nearest rival below which a hypothesis is undecided."""
