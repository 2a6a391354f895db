"""The deployment behind the fake server: 10,000 instances and 50,000 jobs, and events that change them as time passes.

The documents are made by the product's own encoders, so the page meets what a real deployment writes. One seed makes
the same fleet each time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.console_snapshots import map_document, members_document, totals
from gpu_recovery.core.fleet import Fleet, Pause
from gpu_recovery.core.gpu_utilisation import utilisation_text
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, RepairHold, RepairLevel, RepairNeed
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.wire.fleet import fleet_view
from gpu_recovery.wire.instances import instance_view
from gpu_recovery.wire.json_body import time_text

GPUS, RACK, GANG, ZONES = 8, 40, 16, 3
"""GPUs of an instance, instances of a rack and of a large job, and Availability Zones."""
FEED, FEED_KEPT = 20, 2_000
"""Events of an overview, and those that the event feed keeps."""
FEED_LATE = timedelta(seconds=30)
"""A cursor of the event feed stays so far behind, as that of the job API does: events of this time come twice."""
POLICY = PRESETS[Preset.ADAPTIVE]
_NEXT = {
    InstanceStatus.AVAILABLE: (InstanceStatus.CHECKING, "kernel log: XID_79 GPU has fallen off the bus"),
    InstanceStatus.CHECKING: (InstanceStatus.REBOOTING, "the check blames GPU 3: row remapping is pending"),
    InstanceStatus.REBOOTING: (InstanceStatus.VERIFYING, "the boot id has changed; the check follows"),
    InstanceStatus.VERIFYING: (InstanceStatus.AVAILABLE, "the check has passed"),
    InstanceStatus.QUARANTINED: (InstanceStatus.VERIFYING, "released by an operator"),
}
_MOVES = (InstanceStatus.CHECKING, InstanceStatus.REBOOTING, InstanceStatus.VERIFYING)
"""Statuses that an instance leaves by itself."""


@dataclass(frozen=True)
class Size:
    """Numbers of a fake deployment."""

    instances: int = 10_000
    jobs: int = 50_000
    events_a_second: float = 5.0


class Deployment:
    """The records of the fake deployment at the time of the last `advance`."""

    def __init__(self, size: Size, now: datetime, seed: int = 1) -> None:
        self.size, self.began, self.now = size, now, now
        self._random = random.Random(seed)
        self._told = self._due = 0
        self.gpu_history = True
        self.events: deque[dict[str, Any]] = deque(maxlen=FEED_KEPT)
        self.fleet = Fleet(gpu_instances=size.instances, counted=True)
        self.jobs = [self._job(number) for number in range(size.jobs)]
        records = [self._instance(number) for number in range(size.instances)]
        self.instances = {record.instance_id: record for record in records}
        self._ids = list(self.instances)
        self._moving = [record.instance_id for record in records if record.status in _MOVES]
        self._documents: dict[str, tuple[datetime, dict[str, Any]]] = {}

    def _job(self, number: int) -> dict[str, Any]:
        running = number * GANG < self.size.instances * 0.98
        queued_at = self.began - timedelta(minutes=number % 3_000)
        return {
            "job_id": f"sft-20261121-{number // 3_600 % 24:02d}{number // 60 % 60:02d}{number % 60:02d}-{number:04x}",
            "name": None,
            "status": "RUNNING" if running else "QUEUED",
            "reason": "all ranks run" if running else "waits for instances",
            "attempt": 1 if running else 0,
            "attempts_counted": 0,
            "attempts_max": 3,
            "workload": "sft",
            "user": f"user{number % 40:02d}",
            "group": "",
            "priority": list(Priority)[number % len(Priority)].name,
            "asked_priority": list(Priority)[number % len(Priority)].name,
            "backend": "ecs",
            "nnodes": GANG,
            "nnodes_min": None,
            "width": GANG if running else None,
            "n_gpus_per_node": GPUS,
            "task_definition": "gpu-training:1",
            "origin": "submitted",
            "instances": [],
            "repairing": [],
            "queued_at": time_text(queued_at),
            "status_at": time_text(queued_at),
            "deadline_at": None,
            "incident_id": None,
            "held": False,
            "short_of": None,
            "next_run_at": None,
        }

    def _instance(self, number: int) -> Instance:
        draw = self._random.random()
        status, reason = InstanceStatus.AVAILABLE, "works"
        if draw > 0.992:
            status = self._random.choice([one for one in _NEXT if one is not InstanceStatus.AVAILABLE])
            reason = "kernel log: XID_79 GPU has fallen off the bus"
        gang = number // GANG
        works = status is InstanceStatus.AVAILABLE and gang < len(self.jobs) and self.jobs[gang]["status"] == "RUNNING"
        held = RepairHold(self.began, "the repair budget is used up") if number % 3 == 0 else None
        return Instance(
            f"i-{self._random.getrandbits(68):017x}",
            self.began - timedelta(seconds=self._random.randrange(10**6)),
            status,
            reason,
            gpus=GPUS,
            gpus_most=GPUS,
            gpus_free=0 if works else GPUS,
            availability_zone=f"use1-az{number // RACK * RACK * ZONES // self.size.instances + 1}",
            rack=f"rack {number // RACK + 1:03d}",
            claims={self.jobs[gang]["job_id"]: Claim(1, GPUS)} if works else {},
            silent_since=self.began if draw < 0.0003 else None,
            held=held if status is InstanceStatus.QUARANTINED else None,
            need=RepairNeed(RepairLevel.REBOOT, reason, self.began) if status is InstanceStatus.QUARANTINED else None,
        )

    def advance(self, now: datetime) -> None:
        """Let the events of the time until `now` happen."""
        due = int((now - self.began).total_seconds() * self.size.events_a_second)
        while self._due < due:
            self._due += 1
            self._happens(self.began + timedelta(seconds=self._due / self.size.events_a_second))
        self.now = now

    def _happens(self, at: datetime) -> None:
        self._moving = [name for name in self._moving if self.instances[name].status in _MOVES]
        names = self._moving if len(self._moving) > self.size.instances // 200 else self._ids
        self._move(self._random.choice(names), at)

    def _move(self, instance_id: str, at: datetime) -> None:
        record = self.instances[instance_id]
        after, reason = _NEXT[record.status]
        self._told += 1
        self.events.append(
            {
                "id": f"{record.instance_id}/{record.version + 1}/instance_state_changed",
                "at": time_text(at),
                "kind": "instance_state_changed",
                "job_id": min(record.claims, default=None),
                "instance_id": record.instance_id,
                "attempt": 1 if record.claims else None,
                "before": record.status.value,
                "after": after.value,
                "reason": reason,
                "incident_id": None,
                "check_id": None,
                "failure": None,
                "diagnosis": None,
                "message": None,
            }
        )
        if after in _MOVES and record.instance_id not in self._moving:
            self._moving.append(record.instance_id)
        self.instances[record.instance_id] = replace(
            record, status=after, status_at=at, reason=reason, version=record.version + 1, held=None, need=None
        )

    def move(self, instance_id: str) -> None:
        """Let an instance change to its next status, with an event."""
        self._move(instance_id, self.now)

    def leave(self, instance_id: str) -> None:
        """Let an instance leave the fleet. The next documents are made without it."""
        del self.instances[instance_id]
        self._ids.remove(instance_id)
        self._moving = [name for name in self._moving if name != instance_id]
        self.forget()

    # -- documents -----------------------------------------------------------------------------------------------------

    def _kept(self, name: str, make: Any) -> dict[str, Any]:
        """Return a document that is made at most once a minute, as the reconciler does, with its time."""
        kept = self._documents.get(name)
        if kept is None or self.now - kept[0] >= timedelta(minutes=1):
            kept = self._documents[name] = (self.now, {"as_of": time_text(self.now), **make()})
        return kept[1]

    def forget(self) -> None:
        """Let the next documents be made anew, as after an order."""
        self._documents.clear()

    def members(self) -> dict[str, Any]:
        """Return the members of the map. They change only when an instance leaves."""
        if "members" not in self._documents:
            self._documents["members"] = (
                self.began,
                {"as_of": time_text(self.began), **members_document(self.instances.values())},
            )
        return self._documents["members"][1]

    def map(self, gpu: bool) -> dict[str, Any]:
        """Return the fleet map."""
        instances = self.instances.values()
        shown = self._kept("map", lambda: map_document(instances, self.members()["members"], self._utilisation()))
        utilisation = shown["utilisation"] if gpu and self.gpu_history else None
        return {**shown, "utilisation": utilisation, "gpu_history": self.gpu_history}

    def _utilisation(self) -> dict[str, str]:
        """Return texts of heartbeats: busy where a job runs, idle elsewhere, unknown where nothing reports."""
        works = utilisation_text([*(20 * gpu for gpu in range(GPUS - 2)), None, 97])
        idle = utilisation_text([0] * GPUS)
        return {
            name: works if record.claims else idle
            for name, record in self.instances.items()
            if record.status is InstanceStatus.AVAILABLE
        }

    def limits(self) -> dict[str, Any]:
        """Return the totals and the fleet limits."""
        instances = list(self.instances.values())
        return self._kept(
            "limits",
            lambda: {"totals": totals(instances), "limits": fleet_view(self.fleet, POLICY, instances, ())},
        )

    def overview(self) -> dict[str, Any]:
        """Return the overview."""
        of_fleet = self.limits()
        limits = of_fleet["limits"]
        names = ("gpu_instances", "observe_only", "replace", "repairing", "repairs_at_once_max", "breaker", "pause")
        total = {"jobs": 12, "instances": 192, "gpus": 1_536}
        priorities = [priority.name for priority in sorted(Priority, reverse=True)]
        return {
            "as_of": of_fleet["as_of"],
            "queue_as_of": of_fleet["as_of"],
            "fleet": of_fleet["totals"],
            "limits": {**{name: limits[name] for name in names}, "deaf": limits["deaf"]},
            "held": len(limits["held"]),
            "for_a_person": limits["for_a_person"][:20],
            "for_a_person_more": max(0, len(limits["for_a_person"]) - 20),
            "totals": [{"priority": name, "running": total, "queued": total} for name in priorities],
            "quotas": [
                {"user": f"user{user:02d}", "priority": name, "group": "", "used": user % 17, "limit": 16 + user % 3}
                for user in range(40)
                for name in priorities[1:4]
            ],
            "incidents": [
                {
                    "incident_id": f"{job['job_id']}--a01",
                    "job_id": job["job_id"],
                    "instance_id": None,
                    "opened_at": job["status_at"],
                    "cause": "GPU_FAULT",
                    "reason": "rank 1 was ended by signal 6 (exit code 134)",
                    "phases": [{"status": "DIAGNOSING", "attempt": 1, "since": job["status_at"], "until": None}],
                }
                for job in self.jobs[:3]
            ],
            "events": list(self.events)[-FEED:],
            "week": {
                "gpu_h_held": 9_000_000.0,
                "gpu_h_running": 8_739_000.0,
                "running_share": 0.971,
                "ettr": 0.958,
                "ettr_share": 0.87,
                "gpu_h_lost": 1_204.0,
                "recovery_s_p50": 360.0,
                "recovery_s_p90": 1_140.0,
                "recovery_s_longest": 7_200.0,
                "fleet_available": 0.986,
                "mttf_gpu_h": 7_254.0,
                "incidents": 1_205,
            },
            "dead_letters": {"failed": 0, "undelivered": 0, "scheduler": 0},
            "missing": [],
        }

    def feed(self, after: str | None, limit: int) -> dict[str, Any]:
        """Return a page of the event feed. A cursor is the number of an event."""
        numbers = range(self._told - len(self.events) + 1, self._told + 1)
        numbered = list(zip(numbers, self.events, strict=True))
        if after is None:
            page = numbered[-limit:]
        else:
            page = [(number, event) for number, event in numbered if number > int(after)][:limit]
        if after is not None and len(page) == limit:
            position = page[-1][0]
        else:
            late = time_text(self.now - FEED_LATE) or ""
            position = max([int(after or 0), *(number for number, event in page if event["at"] <= late)])
        return {"events": [event for _, event in page], "next_cursor": str(position)}

    def instance(self, instance_id: str) -> dict[str, Any] | None:
        """Return one instance; None if there is none."""
        record = self.instances.get(instance_id)
        if record is None:
            return None
        return {**instance_view(record, self.now), "node_agent": None, "heartbeat": None}

    def page_of_jobs(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Return a page of the jobs, by user."""
        user, limit, start = query.get("user"), int(query.get("limit", "100")), int(query.get("cursor", "0"))
        found = [job for job in self.jobs if user in (None, job["user"])]
        page = found[start : start + limit]
        cursor = str(start + limit) if start + limit < len(found) else None
        return {"jobs": page, "next_cursor": cursor, "unreadable": []}

    def pause(self, because: str | None) -> None:
        """Pause the repairs for a reason; None: permit them again."""
        at = None if because is None else Pause("fake operator", because, self.now)
        self.fleet = replace(self.fleet, pause=at)
        self.forget()
