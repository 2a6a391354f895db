"""Narration of the demo: prints the events of a job, its instances and its trainer, with the elapsed time."""

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
    """Follows one job and prints each new fact once."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic()
        self.job: dict[str, Any] = {"status": "", "attempt": 0, "instances": [], "history": []}
        self._lines_shown: dict[str, int] = {}
        self._instances: dict[str, dict[str, Any]] = {}
        self._ended: set[str] = set()

    def follow(self, client: RecoveryClient, job_id: str, directory: Path) -> None:
        """Follow this job from now on (see `narrate_news`). Earlier history of the instances is not printed."""
        self._client, self._job_id, self._directory = client, job_id, directory
        for instance in client.instances():
            self._lines_shown[instance["instance_id"]] = len(client.instance(instance["instance_id"])["history"])

    def chapter(self, title: str) -> None:
        """Print a heading."""
        self.console.print()
        self.console.print(Text(title, style="bold underline"))

    def line(self, source: str, text: str) -> None:
        """Print one line: elapsed seconds, source (a key of `STYLES`), text."""
        line = Text(f"{time.monotonic() - self.began:6.1f} s  ", style="dim")
        line.append(f"{source:<9}", style=STYLES.get(source, ""))
        line.append(text)
        self.console.print(line)

    def mail(self, mail: Mapping[str, str]) -> None:
        """Print one e-mail with its subject and its whole body."""
        self.console.print(Text(f"  Subject: {mail['subject']}", style=STYLES["e-mail"]))
        for line in mail["body"].rstrip().splitlines():
            self.console.print(Text(f"    {line}", style="dim"))
        self.console.print()

    def narrate_news(self) -> None:
        """Print the news: decisions in order of time, then changes of the instances, task ends and training steps."""
        self.job = self._client.job(self._job_id)
        news = list(self._decisions("job", self._job_id, self.job))
        for instance in self._client.instances():
            name = instance["instance_id"]
            news += self._decisions("instance", name, self._client.instance(name))
        for _, source, text in sorted(news):
            self.line(source, text)
        state = sandbox.cluster_state(self._directory)
        self._narrate_instances(state["instances"])
        ranks = list(self._ranks(state["tasks"]))
        self._narrate_ends(ranks)
        self._narrate_training(ranks)

    def _decisions(self, source: str, name: str, view: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
        """Yield (time, source, text) of each history entry that was not printed yet."""
        for entry in view["history"][self._lines_shown.get(name, 0) :]:
            change = entry["to"] if entry["from"] == entry["to"] else f"{entry['from'] or 'new'} -> {entry['to']}"
            subject = "" if source == "job" else f"{name} "
            yield entry["at"], source, f"{subject}{change}: {entry['reason']}"
        self._lines_shown[name] = len(view["history"])

    def _narrate_instances(self, instances: list[dict[str, Any]]) -> None:
        for instance in instances:
            name = instance["instance_id"]
            now = {key: _shown(key, instance[key]) for key in INSTANCE_FIELDS}
            before = self._instances.get(name, now)
            for key, sentence in INSTANCE_FIELDS.items():
                if before[key] != now[key]:
                    self.line("machine", f"{name} {sentence.format(before=before[key], now=now[key])}")
            self._instances[name] = now

    def _narrate_ends(self, ranks: list[dict[str, Any]]) -> None:
        for rank in ranks:
            if rank["exit_code"] is not None and rank["task_id"] not in self._ended:
                self._ended.add(rank["task_id"])
                text = f"rank {rank['rank']} of attempt {rank['attempt']} ended with exit code {rank['exit_code']}"
                self.line("task", f"{rank['instance_id']} {text}")

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
        """Yield the job's tasks among `tasks`, each with its attempt and rank."""
        ranks = {instance: rank for rank, instance in enumerate(self.job["instances"])}
        for task in tasks:
            name, _, attempt = task["started_by"].rpartition("--a")
            if name == self._job_id and task["instance_id"] in ranks:
                yield {**task, "attempt": int(attempt), "rank": ranks[task["instance_id"]]}

    def log(self, attempt: int, rank: int) -> str:
        """Return the whole output of one rank."""
        ranks = self._ranks(sandbox.cluster_state(self._directory)["tasks"])
        logs = [Path(r["log"]) for r in ranks if (r["attempt"], r["rank"]) == (attempt, rank)]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def steps(self, attempt: int) -> int:
        """Return the last step that rank 0 of the attempt has printed; 0 before its first step."""
        steps = re.findall(r"^step (\d+)", self.log(attempt, 0), re.MULTILINE)
        return int(steps[-1]) if steps else 0

    def kernel_lines(self, instance_id: str) -> list[str]:
        """Return the messages of an instance's kernel log, without the prefixes of the records."""
        instances = {i["instance_id"]: i for i in sandbox.cluster_state(self._directory)["instances"]}
        records = (Path(instances[instance_id]["folder"]) / "dev/kmsg").read_text().splitlines()
        return [record.partition(";")[2] for record in records]


def _shown(key: str, value: Any) -> str:
    """Return the value of an instance's field as the narration prints it."""
    if key == "agent_connected":
        return "connected" if value else "disconnected"
    return str(value)[:8] if key == "boot_id" else str(value)
