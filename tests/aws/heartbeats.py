"""Heartbeats that tests of the stores report, read and compare."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind, Heartbeat, RankHeartbeat, running_log_id
from gpu_recovery.ports.store import Store

from tests.aws.records import JOB, NOW, A, later

BOOT, NEXT_BOOT = "boot-1", "boot-2"
UP = timedelta(hours=2)
REBOOTED_AT = NOW + timedelta(minutes=5)


def log(rank: int = 0, job_id: str = JOB, attempt: int = 1) -> str:
    """The running log of a rank, as heartbeats key it."""
    return str(running_log_id(job_id, attempt, rank))


def ranks(at: datetime, *numbers: int, job_id: str = JOB, attempt: int = 1) -> dict[str, RankHeartbeat]:
    """These ranks of one attempt, seen at that time."""
    return {log(n, job_id, attempt): RankHeartbeat(job_id, attempt, n, at, 0) for n in numbers}


def beat(sequence: int = 1, seconds: float = 0, *numbers: int, instance_id: str = A, **changes: Any) -> Heartbeat:
    """Report `sequence` of the usual boot, `seconds` after the present, with these ranks of the usual job."""
    at = later(seconds)
    usual: dict[str, Any] = {"boot_id": BOOT, "booted_at": NOW - UP, "sequence": sequence, "interval_s": 15}
    return Heartbeat(instance_id, at, ranks=ranks(at, *numbers), **{**usual, **changes})


def of_next_boot(sequence: int = 1, seconds: float = 600, *numbers: int) -> Heartbeat:
    """A report of the boot after the usual one."""
    return beat(sequence, seconds, *numbers, boot_id=NEXT_BOOT, booted_at=REBOOTED_AT)


def by_gputasker(seconds: float, *numbers: int) -> Heartbeat:
    """What an agent of seed 000 says: no boot, no number, no interval."""
    return beat(0, seconds, *numbers, boot_id="", booted_at=None, interval_s=0)


def kept(store: Store, instance_id: str = A) -> Heartbeat:
    """The heartbeat, which must be there."""
    return store.load_heartbeats((instance_id,))[instance_id]


def order(number: int = 1) -> AgentCommand:
    """An order to stop the usual rank."""
    return AgentCommand(f"stop/{JOB}--a01/{number}", AgentCommandKind.STOP, JOB, 1, 5)
