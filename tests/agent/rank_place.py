"""Files of ranks beside a /proc of the test's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors.ranks import RankSensor

from tests.agent.fake_proc import BOOT, Proc

TICKS = 5_000


class Place:
    """A folder of ranks, a /proc, and the sensor that compares them."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.folder = Proc(folder / "proc"), folder / "running"
        self.folder.mkdir()
        self.sensor = RankSensor(self.folder, self.proc.folder, BOOT, AgentLog())

    def file(self, name: str = "100.json", **fields: Any) -> None:
        content = {
            "running_log_id": 100,
            "remote_pid": 42,
            "remote_pgid": 43,
            "timestamp": 1,
            "job_id": "run-1",
            "attempt": 1,
            "rank": 0,
            "start_ticks": TICKS,
            "boot_id": BOOT,
            **fields,
        }
        (self.folder / name).write_text(json.dumps({key: one for key, one in content.items() if one is not ...}))

    def pids(self) -> list[int]:
        return [live.pid for live in self.sensor.poll()[0]]
