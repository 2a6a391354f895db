"""Find the instance of an agent that runs as a task of the daemon service, and cache what was read."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta

from gpu_recovery.core.heartbeat import AGENT_TASK_TTL
from gpu_recovery.ports.store import AgentTaskStore

TASK_ID = re.compile(r"[0-9a-f]{32}")
"""The name of a session of a task's role is the id of the task."""
CACHE_TTL = timedelta(seconds=60)
CACHED_TASKS_MAX = 20_000


class AgentTasks:
    """Reads the instance of a task once a minute at most.

    A task may run for longer than its item is kept, so an item that has reached half of its time is written again.
    """

    def __init__(self, store: AgentTaskStore, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        self._read: dict[str, tuple[datetime, str]] = {}

    def instance_of(self, task_id: str) -> str | None:
        """Return the EC2 instance id of a task; None if no event of ECS has named the task yet."""
        now = self._clock()
        cached = self._read.get(task_id)
        if cached is not None and now - cached[0] < CACHE_TTL:
            return cached[1]
        found = self._store.load_agent_task(task_id, now)
        self._read.pop(task_id, None)
        if found is None:
            return None
        instance_id, until = found
        if until - now < AGENT_TASK_TTL / 2:
            self._store.save_agent_task(task_id, instance_id, now + AGENT_TASK_TTL)
        if len(self._read) >= CACHED_TASKS_MAX:
            del self._read[next(iter(self._read))]
        self._read[task_id] = (now, instance_id)
        return instance_id
