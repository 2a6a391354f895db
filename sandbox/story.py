"""The demo's telling: what jobs, instances, tasks and trainers do, line by line, with the time since it began."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_recovery_client.api import RecoveryClient
from rich.console import Console
from rich.text import Text

from sandbox import sandbox

STYLES = {
    "sandbox": "dim", "you": "bold cyan", "job": "bold", "instance": "magenta", "trainer": "green", "task": "blue",
    "kernel": "bold red", "hardware": "bold red", "e-mail": "yellow", "demo": "bold green",
}  # fmt: skip
TRAINER_LINES = re.compile(r"resumed from step|^step \d*0 |checkpoint|finished|lost")


class Story:
    """Follows one job and prints each new thing once."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.began = time.monotonic()
        self.job: dict[str, Any] = {"status": "", "attempt": 0, "instances": [], "history": []}
        self._told: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def follow(self, client: RecoveryClient, job_id: str, directory: Path) -> None:
        """From now on `look` tells what happens to this job."""
        self._client, self._job_id, self._directory = client, job_id, directory
        for instance in client.instances():
            self._told[instance["instance_id"]] = len(instance["history"])

    def chapter(self, title: str) -> None:
        self.console.print()
        self.console.print(Text(title, style="bold underline"))

    def tell(self, who: str, what: str) -> None:
        """One line: elapsed seconds, who, what."""
        line = Text(f"{time.monotonic() - self.began:7.1f} s  ", style="dim")
        line.append(f"{who:<10}", style=STYLES.get(who, ""))
        line.append(what)
        self.console.print(line)

    def mail(self, mail: Mapping[str, str]) -> None:
        self.console.print(Text(f"  Subject: {mail['subject']}", style=STYLES["e-mail"]))
        for line in mail["body"].rstrip().splitlines():
            self.console.print(Text(f"    {line}", style="dim"))
        self.console.print()

    def look(self) -> None:
        """Tell whatever is new: instances first, then the job, then what the trainer says."""
        self.job = self._client.job(self._job_id)
        news: list[tuple[str, str, str]] = []
        for instance in self._client.instances():
            news += self._news(instance["instance_id"], "instance", instance)
        news += self._news(self._job_id, "job", self.job)
        for _, who, what in sorted(news):
            self.tell(who, what)
        self._tell_trainer()

    def _news(self, key: str, who: str, view: Mapping[str, Any]) -> list[tuple[str, str, str]]:
        entries = view["history"][self._told.get(key, 0) :]
        self._told[key] = len(view["history"])
        name = "" if who == "job" else f"{key} "
        return [
            (e["at"], who, f"{name}{e['from'] or 'new'} -> {e['to']}: {e['reason']}" if e["from"] != e["to"] else f"{name}{e['to']}: {e['reason']}")
            for e in entries
        ]

    def _tell_trainer(self) -> None:
        for task in self._tasks():
            if task["rank"] != 0:
                continue
            lines = Path(task["log"]).read_text(errors="replace").splitlines() if Path(task["log"]).exists() else []
            for line in lines[self._told.get(task["log"], 0) :]:
                if TRAINER_LINES.search(line):
                    self.tell("trainer", f"rank 0, attempt {task['attempt']}: {line}")
            self._told[task["log"]] = len(lines)

    def _tasks(self) -> list[dict[str, Any]]:
        """The job's ranks as the cluster runs them, with attempt and rank."""
        found = []
        for task in sandbox.cluster_state(self._directory)["tasks"]:
            name, _, attempt = task["started_by"].rpartition("--a")
            if name == self._job_id:
                rank = self.job["instances"].index(task["instance_id"]) if task["instance_id"] in self.job["instances"] else -1
                found.append({**task, "attempt": int(attempt), "rank": rank})
        return found

    def log(self, attempt: int, rank: int) -> str:
        """Everything that one rank printed."""
        logs = [Path(t["log"]) for t in self._tasks() if (t["attempt"], t["rank"]) == (attempt, rank)]
        return "".join(log.read_text(errors="replace") for log in logs if log.exists())

    def steps(self, attempt: int) -> int:
        """The last step that rank 0 of the attempt has printed."""
        found = re.findall(r"^step (\d+)", self.log(attempt, 0), re.MULTILINE)
        return int(found[-1]) if found else 0

    def kernel_line(self, instance_id: str) -> str:
        """The newest line of an instance's kernel log."""
        machines = {m["instance_id"]: m for m in sandbox.cluster_state(self._directory)["instances"]}
        lines = (Path(machines[instance_id]["folder"]) / "dev/kmsg").read_text().splitlines()
        return lines[-1].partition(";")[2] if lines else "(no kernel message)"
