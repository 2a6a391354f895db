"""The numbers that the rules go by, each with its unit. Where nothing else is said they are seed 002's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Seconds, gigabytes (10^9 bytes), percent and ratios; a diagnosis names the version it was made under."""

    version: str = "1"
    upload_slow_s: float = 60.0
    download_slow_s: float = 60.0
    heartbeat_s: float = 5.0
    stalled_heartbeats: int = 3
    """So many heartbeats with the same progress are a stall. Not of the seed, which knows only a fall."""
    calls_done_ratio: float = 0.8
    sporadic_ratio: float = 0.2
    some_ratio: float = 0.5
    rack_most_ratio: float = 0.8
    """So much of a rack, on two machines at least, is "most of it"."""
    connect_timeout_s: float = 10.0
    connect_slow_s: float = 5.0
    header_slow_s: float = 60.0
    body_slow_ratio: float = 10.0
    body_slow_s: float = 5.0
    """A body that took less is not slow, whatever its header took. Not of the seed, which only knows the ratio."""
    memory_low_gb: float = 1.0
    memory_out_gb: float = 0.1
    cpu_overload_percent: float = 95.0
    silent_s: float = 60.0
    ack_s: float = 600.0
    lock_s: float = 60.0
    leak_mb: float = 1_024.0
    """A process that holds less after its stage is only resident."""
    sigma: float = 2.0
    guard_sigma: float = 4.0
    guard_floor_ratio: float = 0.03
    guard_slowness: float = 1.25
    """A straggler is slower than the median by this much at least (reference/diagnosis.md, part 2)."""
    pair_slow_ratio: float = 2.0
    """An instance is slow if its best pairwise test took so many medians (DLRover's network check)."""
    stalled_s: float = 600.0
    """No rank of a job reports progress for so long while its machines are heard of: it is stalled."""
    decided: float = 0.55
    """A hypothesis below this confidence is undecided."""
    margin: float = 0.2
    """So is one whose nearest rival is this close."""
