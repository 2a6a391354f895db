"""Ranks without a file: containers that were started without the wrapper.

Two places know them. The driver names the processes that use a GPU; the ECS agent's introspection names the containers
of the tasks on this instance (`/v1/tasks` on port 51678), whose first process is theirs. Either way the process's own
environment says which rank it is. Neither is there on every node, and what is not there is not asked for long.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import rank_of
from gpu_recovery_agent.sensors import processes
from gpu_recovery_agent.sensors.ranks import SEARCH_EVERY, SEARCHES_AT_ONCE, LiveRank

ANSWERS_WITHIN_S = 1.0
ANSWER_BYTES_MAX = 1024 * 1024
RUNNING = "RUNNING"


class RanksWithoutFile:
    """Looks at processes for the rank in their environment. `url` is None where ECS is not to be asked."""

    def __init__(
        self, url: str | None, host_proc: Path, journal: AgentLog, reader: processes.Reader | None = None
    ) -> None:
        """`reader` reads environments and control groups; without one they are read at once, however long it takes."""
        self._url, self._proc, self._log = url, host_proc, journal
        self._reader = reader or processes.Direct(host_proc)
        self._first: dict[str, int] = {}
        self._searches: dict[str, int] = {}

    def poll(self, gpu_pids: Iterable[int], known: Iterable[LiveRank]) -> list[LiveRank]:
        """The ranks that no file tells of, each by its oldest process."""
        told = {live.rank.key for live in known if live.rank}
        found: dict[tuple[str, int, int, int | None], LiveRank] = {}
        for pid in {*gpu_pids, *self._first_processes()}:
            environment = self._reader.environment(pid) or {}
            rank = rank_of(environment, environment.get("NODE_RANK") or environment.get("RANK"))
            process = processes.read(self._proc, pid)
            if rank is None or process is None or not process.is_alive or rank.key in told:
                continue
            live = LiveRank(rank, rank.log, pid, process.ticks)
            if rank.key not in found or (live.ticks, pid) < (found[rank.key].ticks, found[rank.key].pid):
                found[rank.key] = live
        return [found[key] for key in sorted(found, key=repr)]

    def _first_processes(self) -> list[int]:
        """Of the containers that run; a container keeps its first process as long as it lives."""
        containers = self._containers()
        self._first = {one: pid for one, pid in self._first.items() if one in containers}
        self._searches = {one: self._searches.get(one, 0) + 1 for one in containers if one not in self._first}
        due = [one for one, count in self._searches.items() if count <= SEARCHES_AT_ONCE or not count % SEARCH_EVERY]
        self._first |= self._reader.first_processes(sorted(due)) if due else {}
        return list(self._first.values())

    def _containers(self) -> set[str]:
        """The ids of the containers that run for tasks of ECS."""
        if self._url is None:
            return set()
        parts = urlsplit(self._url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWERS_WITHIN_S)
        try:
            connection.request("GET", "/v1/tasks")
            answer = connection.getresponse()
            raw = answer.read(ANSWER_BYTES_MAX)
            found = containers_in(json.loads(raw)) if answer.status == 200 else set()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._log.once("ecs", f"no ECS agent answers at {self._url} ({type(error).__name__}): it is left out")
            return set()
        finally:
            connection.close()
        self._log.over("ecs", f"the ECS agent answers at {self._url}")
        return found


def containers_in(answer: Any) -> set[str]:
    """The container ids of the running tasks in an answer of `/v1/tasks`. Total: what has another shape is left out."""
    tasks = answer.get("Tasks") if isinstance(answer, dict) else None
    found = set()
    for task in tasks if isinstance(tasks, list) else []:
        if isinstance(task, dict) and task.get("KnownStatus") == RUNNING:
            containers = task.get("Containers")
            for container in containers if isinstance(containers, list) else []:
                docker_id = container.get("DockerId") if isinstance(container, dict) else None
                found |= {docker_id} if isinstance(docker_id, str) else set()
    return found
