"""Finds ranks without a file: containers that were started without the wrapper.

Two sources name their processes. The driver lists the processes that use a GPU. The introspection endpoint of the ECS
agent (`/v1/tasks` on port 51678) lists the containers of the tasks on this instance; the first process of a container
is the rank. In both cases the environment of the process names the rank. A node may lack either source, and the sensor
does not wait long for one.
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
    """Finds ranks by the environment of their processes. `url` is None if the ECS agent must not be asked."""

    def __init__(self, url: str | None, host_proc: Path, log: AgentLog, reader: processes.Reader | None = None) -> None:
        """`reader` reads environments and control groups; without one they are read at once, however long it takes."""
        self._url, self._proc, self._log = url, host_proc, log
        self._reader = reader or processes.Direct(host_proc)
        self._first: dict[str, int] = {}
        self._searches: dict[str, int] = {}

    def poll(self, gpu_pids: Iterable[int], known: Iterable[LiveRank]) -> list[LiveRank]:
        """Return the ranks that have no file, each with its oldest process.

        Args:
            gpu_pids: processes that use a GPU, as NVML lists them.
            known: the ranks that have a file.
        """
        with_file = {live.rank.key for live in known if live.rank}
        ranks: dict[tuple[str, int, int, int | None], LiveRank] = {}
        for pid in {*gpu_pids, *self._first_processes()}:
            environment = self._reader.environment(pid) or {}
            rank = rank_of(environment, environment.get("NODE_RANK") or environment.get("RANK"))
            process = processes.read(self._proc, pid)
            if rank is None or process is None or not process.is_alive or rank.key in with_file:
                continue
            live = LiveRank(rank, rank.log, pid, process.ticks)
            if rank.key not in ranks or (live.ticks, pid) < (ranks[rank.key].ticks, ranks[rank.key].pid):
                ranks[rank.key] = live
        return [ranks[key] for key in sorted(ranks, key=repr)]

    def _first_processes(self) -> list[int]:
        """Return the first process of each running container.

        A container keeps its first process as long as it runs.
        """
        containers = self._containers()
        self._first = {container: pid for container, pid in self._first.items() if container in containers}
        self._searches = {name: self._searches.get(name, 0) + 1 for name in containers if name not in self._first}
        due = [name for name, count in self._searches.items() if count <= SEARCHES_AT_ONCE or not count % SEARCH_EVERY]
        self._first |= self._reader.first_processes(sorted(due)) if due else {}
        return list(self._first.values())

    def _containers(self) -> set[str]:
        """Return the ids of the containers that run for ECS tasks."""
        if self._url is None:
            return set()
        parts = urlsplit(self._url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=ANSWERS_WITHIN_S)
        try:
            connection.request("GET", "/v1/tasks")
            answer = connection.getresponse()
            raw = answer.read(ANSWER_BYTES_MAX)
            containers = containers_in(json.loads(raw)) if answer.status == 200 else set()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._log.once("ecs", f"no ECS agent answers at {self._url} ({type(error).__name__}): it is left out")
            return set()
        finally:
            connection.close()
        self._log.over("ecs", f"the ECS agent answers at {self._url}")
        return containers


def containers_in(answer: Any) -> set[str]:
    """Return the container ids of the running tasks in a response of `/v1/tasks`.

    Entries of another shape are skipped.
    """
    tasks = answer.get("Tasks") if isinstance(answer, dict) else None
    ids = set()
    for task in tasks if isinstance(tasks, list) else []:
        if isinstance(task, dict) and task.get("KnownStatus") == RUNNING:
            containers = task.get("Containers")
            for container in containers if isinstance(containers, list) else []:
                docker_id = container.get("DockerId") if isinstance(container, dict) else None
                ids |= {docker_id} if isinstance(docker_id, str) else set()
    return ids
