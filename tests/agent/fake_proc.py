"""A /proc of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

BOOT = "3e0b9a4c-71d2-4c66-8f05-b1a9d27e6c38"
NAMESPACE = 1


class Proc:
    """Processes by pid, in a folder. The namespace of each is the inode of its `ns/pid`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "sys/kernel/random").mkdir(parents=True)
        (folder / "sys/kernel/random/boot_id").write_text(BOOT + "\n")
        self.own = folder / "namespace"
        self.own.touch()
        self._with("self", self.own)

    def add(
        self,
        pid: int,
        ticks: int,
        *,
        state: str = "S",
        parent: int = 0,
        group: int = 0,
        name: str = "a (b) c",
        inner: tuple[int, ...] = (),
        namespace: Path | None = None,
        environment: dict[str, str] | None = None,
        cgroup: str = "0::/",
        user: int | None = None,
        cpu_ticks: int = 0,
    ) -> None:
        """A process; `inner` are its pids from here inwards, `environment` None is one that may not be read.

        `user` is the user of the test unless it is given. `cpu_ticks` is its processor time in user mode.
        """
        folder = self.folder / str(pid)
        folder.mkdir(exist_ok=True)
        rest = " ".join(["0"] * 8 + [str(cpu_ticks)] + ["0"] * 7)
        (folder / "stat").write_text(f"{pid} ({name}) {state} {parent} {group or pid} {rest} {ticks} 0 0\n")
        uids = "\t".join([str(os.getuid() if user is None else user)] * 4)
        (folder / "status").write_text(f"Uid:\t{uids}\nNSpid:\t{chr(9).join(map(str, inner or (pid,)))}\n")
        (folder / "cgroup").write_text(cgroup + "\n")
        if environment is not None:
            text = "\0".join(f"{key}={value}" for key, value in environment.items())
            (folder / "environ").write_text(text + "\0")
        self._with(str(pid), namespace or self.own)

    def remove(self, pid: int) -> None:
        for path in (self.folder / str(pid)).iterdir():
            if path.is_file():
                path.unlink()

    def _with(self, name: str, namespace: Path) -> None:
        link = self.folder / name / "ns" / "pid"
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(namespace)


def environment(job: str = "run-1", attempt: int = 1, **more: str) -> dict[str, str]:
    return {"JOB_ID": job, "ATTEMPT": str(attempt), "RANK": "0", **more}
