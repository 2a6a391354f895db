"""A Ray head of our own on loopback, with the GPUs it is told it has, and the drivers that tests submit to it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox import ray_cluster

GPUS = 8
START_S, STOP_S = 300, 60
ON_LOOPBACK = {
    **ray_cluster.ENVIRONMENT,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
DRIVER = "counts_like_verl.py"
COUNTS_LIKE_VERL = '''
"""Counts the free GPUs as verl does, gives up if they are too few, else holds them until it is told to end."""
import os, sys, time
import ray
from ray._private.state import available_resources_per_node

wanted, end, lines_after, go = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
while go and not os.path.exists(go):
    time.sleep(0.05)
ray.init(log_to_driver=False)
free = sum(node.get("GPU", 0) for node in available_resources_per_node().values())
if free < wanted:
    print(f"ValueError: Total available GPUs {free} is less than total desired GPUs {wanted}", file=sys.stderr)
    print("its workers are shut down\\n" * lines_after, end="", file=sys.stderr)
    raise SystemExit(1)

@ray.remote(num_gpus=wanted)
class Workers:
    def hold(self):
        return True

workers = Workers.remote()
ray.get(workers.hold.remote())
print(f"holds {wanted} GPUs of attempt {os.environ.get('ATTEMPT', '-')}", flush=True)
while not os.path.exists(end):
    time.sleep(0.05)
'''


@dataclass(frozen=True)
class Head:
    """Where the head listens, and a folder for what its drivers read."""

    dashboard: str
    control_store: str
    folder: Path
    pid: int

    def driver(self, gpus: int, end: Path | str, lines_after: int = 0, go: Path | str = "") -> str:
        """The entrypoint of a driver that behaves like verl.

        It waits for the file `go`, wants `gpus`, and runs until the file `end` is there. `lines_after`: so much is
        written after its error, as when everything it had started is shut down.
        """
        return f"{sys.executable} {self.folder / DRIVER} {gpus} {end} {lines_after} '{go}'"


@contextmanager
def serve(folder: Path) -> Iterator[Head]:
    """A head for as long as the block lasts; only the processes that were started for it are ended."""
    session = Path(tempfile.mkdtemp(prefix="ray-"))  # Ray's sockets need a short path
    ports = ray_cluster.free_ports()
    # Written once: Python may begin to read it long after Ray says that the driver runs.
    (folder / DRIVER).write_text(COUNTS_LIKE_VERL, encoding="utf-8")
    log = folder / "head.log"
    with log.open("wb") as output:
        head = subprocess.Popen(
            ray_cluster.head_command(ports, GPUS, session),
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ON_LOOPBACK},
            start_new_session=True,
        )
    try:
        _wait_for(head, ports, log)
        yield Head(ports.dashboard_url, ports.control_store_address, folder, head.pid)
    finally:
        head.terminate()  # `--block` ends what it has started
        try:
            head.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(head.pid, signal.SIGKILL)
            head.wait()
        shutil.rmtree(session, ignore_errors=True)


def _wait_for(head: subprocess.Popen[bytes], ports: ray_cluster.RayPorts, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert head.poll() is None, log.read_text()
        if ray_cluster.takes_drivers(ports):
            return
        time.sleep(0.1)
    raise AssertionError(f"no Ray head after {START_S} s: {log.read_text()}")
