"""The demo's telling: what the job, its machines and its trainer do, line by line, with the time since it began."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpu_recovery_client.api import RecoveryClient
from rich.console import Console
from rich.text import Text

from sandbox import sandbox

STYLES = {
    "sandbox": "dim",
    "you": "bold cyan",
    "job": "bold",
    "instance": "magenta",
    "trainer": "green",
    "task": "blue",
    "machine": "blue",
    "kernel": "bold red",
    "fault": "bold red",
    "e-mail": "yellow",
    "demo": "bold green",
}
TRAINER_LINES = re.compile(r"resumed from step|^step \d*[05]0 |finished")
INSTANCE_FIELDS = {
    "status": "ECS: the instance is {now}",
    "agent_connected": "ECS: the agent is {now}",
    "boot_id": "Linux: boot id {before} -> {now}",
}


class Narration:
    """Follows one job and tells each new thing once."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic()
        self.job: dict[str, Any] = {"status": "", "attempt": 0, "instances": [], "history": []}
        self._lines_shown: dict[str, int] = {}
        self._instances: dict[str, dict[str, Any]] = {}
        self._ended: set[str] = set()

    def follow(self, client: RecoveryClient, job_id: str, directory: Path) -> None:
        """From now on `look` tells what happens to this job."""
        self._client, self._job_id, self._directory = client, job_id, directory
        for instance in client.instances():
            self._lines_shown[instance["instance_id"]] = len(client.instance(instance["instance_id"])["history"])

    def chapter(self, title: str) -> None:
        """A heading."""
        self.console.print()
        self.console.print(Text(title, style="bold underline"))

    def line(self, who: str, what: str) -> None:
        """One line: elapsed seconds, who, what."""
        line = Text(f"{time.monotonic() - self.began:6.1f} s  ", style="dim")
        line.append(f"{who:<9}", style=STYLES.get(who, ""))
        line.append(what)
        self.console.print(line)

    def mail(self, mail: Mapping[str, str]) -> None:
        """One e-mail, whole."""
        self.console.print(Text(f"  Subject: {mail['subject']}", style=STYLES["e-mail"]))
        for line in mail["body"].rstrip().splitlines():
            self.console.print(Text(f"    {line}", style="dim"))
        self.console.print()

    def narrate_news(self) -> None:
        """Tell whatever is new: decisions in the order they were taken, then the machines, then the training."""
        self.job = self._client.job(self._job_id)
        news = list(self._decisions("job", self._job_id, self.job))
        for instance in self._client.instances():
            name = instance["instance_id"]
            news += self._decisions("instance", name, self._client.instance(name))
        for _, who, what in sorted(news):
            self.line(who, what)
        state = sandbox.cluster_state(self._directory)
        self._narrate_instances(state["instances"])
        ranks = list(self._ranks(state["tasks"]))
        self._narrate_ends(ranks)
        self._narrate_training(ranks)

    def _decisions(self, who: str, name: str, view: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """(time, who, line) of each history entry not told yet."""
        for entry in view["history"][self._lines_shown.get(name, 0) :]:
            moved = entry["to"] if entry["from"] == entry["to"] else f"{entry['from'] or 'new'} -> {entry['to']}"
            where = "" if who == "job" else f"{name} "
            yield entry["at"], who, f"{where}{moved}: {entry['reason']}"
        self._lines_shown[name] = len(view["history"])

    def _narrate_instances(self, machines: list[dict[str, Any]]) -> None:
        for machine in machines:
            name = machine["instance_id"]
            seen = {key: _word(key, machine[key]) for key in INSTANCE_FIELDS}
            before = self._instances.get(name, seen)
            for key, sentence in INSTANCE_FIELDS.items():
                if before[key] != seen[key]:
                    self.line("machine", f"{name} {sentence.format(before=before[key], now=seen[key])}")
            self._instances[name] = seen

    def _narrate_ends(self, ranks: list[dict[str, Any]]) -> None:
        for rank in ranks:
            if rank["exit_code"] is not None and rank["task_id"] not in self._ended:
                self._ended.add(rank["task_id"])
                what = f"rank {rank['rank']} of attempt {rank['attempt']} ended with exit code {rank['exit_code']}"
                self.line("task", f"{rank['instance_id']} {what}")

    def _narrate_training(self, ranks: list[dict[str, Any]]) -> None:
        for rank in ranks:
            log = Path(rank["log"])
            if rank["rank"] != 0 or not log.exists():
                continue
            lines = log.read_text(errors="replace").splitlines()
            for line in lines[self._lines_shown.get(rank["log"], 0) :]:
                if TRAINER_LINES.search(line):
                    self.line("trainer", f"rank 0 of attempt {rank['attempt']}: {line}")
            self._lines_shown[rank["log"]] = len(lines)

    def _ranks(self, tasks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The job's tasks as the cluster runs them, each with its attempt and rank."""
        where = {instance: rank for rank, instance in enumerate(self.job["instances"])}
        for task in tasks:
            name, _, attempt = task["started_by"].rpartition("--a")
            if name == self._job_id and task["instance_id"] in where:
                yield {**task, "attempt": int(attempt), "rank": where[task["instance_id"]]}

    def log(self, attempt: int, rank: int) -> str:
        """Everything that one rank printed."""
        ranks = self._ranks(sandbox.cluster_state(self._directory)["tasks"])
        logs = [Path(r["log"]) for r in ranks if (r["attempt"], r["rank"]) == (attempt, rank)]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def steps(self, attempt: int) -> int:
        """The last step that rank 0 of the attempt has printed."""
        found = re.findall(r"^step (\d+)", self.log(attempt, 0), re.MULTILINE)
        return int(found[-1]) if found else 0

    def kernel_lines(self, instance_id: str) -> list[str]:
        """What an instance's kernel log holds, without the records' prefixes."""
        machines = {m["instance_id"]: m for m in sandbox.cluster_state(self._directory)["instances"]}
        records = (Path(machines[instance_id]["folder"]) / "dev/kmsg").read_text().splitlines()
        return [record.partition(";")[2] for record in records]


def _word(key: str, value: Any) -> str:
    """A machine's fact as a person reads it."""
    if key == "agent_connected":
        return "connected" if value else "disconnected"
    return str(value)[:8] if key == "boot_id" else str(value)
