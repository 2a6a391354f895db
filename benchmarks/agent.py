"""Benchmark of the node agent: its processor time and memory during a minute.

A fake NVML shows eight GPUs. This process is the API, on the loopback interface over plain HTTP. So the figures include
neither TLS handshakes nor a real driver. Memory is given as resident memory (RSS), which counts a shared page once for
each process, and as proportional memory (PSS), which divides a shared page among its processes. Only PSS values may be
added.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FAKE_NVML = ROOT / "tests" / "agent" / "fake_nvml"
GPUS, SECONDS, STARTS_WITHIN_S = 8, 60.0, 30.0
RESPONSE = json.dumps({"ok": True, "ts": 1, "next_s": 15, "inventory": False, "orders": [], "refused": []}).encode()
"""The API's answer to every report."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MB = 1e6


def agent_figures(seconds: float = SECONDS) -> dict[str, Any]:
    """Run the agent for `seconds` and return its figures. The figures are empty if the system is not Linux.

    Returns:
        Percent of one core, megabytes (10^6 bytes) of all processes of the agent together, and their number.

    Raises:
        AssertionError: the agent sends no report of all GPUs within `STARTS_WITHIN_S`.
    """
    if sys.platform != "linux":
        return {}
    with tempfile.TemporaryDirectory() as folder, _api() as (url, reported):
        process = _agent(Path(folder), url)
        try:
            if not reported.wait(STARTS_WITHIN_S):
                raise AssertionError("the agent does not report")
            time.sleep(min(seconds, 2.0))  # exclude the first reading of the GPUs, which belongs to the start
            before, began = _cpu_s(process.pid), time.monotonic()
            time.sleep(seconds)
            taken, passed = _cpu_s(process.pid) - before, time.monotonic() - began
            pids = _process_tree(process.pid)
            resident, shares = (sum(_memory(pid, name) for pid in pids) for name in ("Rss", "Pss"))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return {
        "cpu_percent_of_a_core": round(taken / passed * 100, 3),
        "rss_mb": round(resident / MB, 1),
        "pss_mb": round(shares / MB, 1),
        "processes": len(pids),
        "gpus": GPUS,
        "seconds": round(passed),
    }


@contextmanager
def _api() -> Iterator[tuple[str, threading.Event]]:
    """Serve an API that accepts every report.

    Yields:
        URL of the API, and an event that is set after a report with an inventory of all GPUs.
    """
    reported = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", str(len(RESPONSE)))
            self.end_headers()
            self.wfile.write(RESPONSE)
            if len(report.get("inventory", {}).get("gpus", [])) == GPUS:
                reported.set()

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", reported
        finally:
            server.shutdown()


def _agent(folder: Path, url: str) -> subprocess.Popen[bytes]:
    """Start an agent with the default intervals and healthy GPUs."""
    (folder / "nvml.json").write_text(json.dumps({"gpus": [{}] * GPUS}))
    (folder / "kmsg").touch()
    paths = [FAKE_NVML, ROOT, ROOT / "agent", *(Path(entry) for entry in sys.path if entry.endswith("site-packages"))]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": ":".join(map(str, paths)),
        "GPU_RECOVERY_API_URL": url,
        "GPU_RECOVERY_TOKEN": "grn_bench",
        "FAKE_NVML": str(folder / "nvml.json"),
        "HOST_KMSG": str(folder / "kmsg"),
        "GPU_RECOVERY_ECS_AGENT": "off",
    }
    command = [sys.executable, "-m", "gpu_recovery_agent"]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _process_tree(pid: int) -> list[int]:
    """Return the ids of a process and of all its descendants."""
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(descendant for child in children for descendant in _process_tree(child))]


def _cpu_s(pid: int) -> float:
    """Return the processor seconds of a process and of its running descendants."""
    times = [
        Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()[11:13] for member in _process_tree(pid)
    ]
    return sum(int(user) + int(system) for user, system in times) / TICKS_PER_S


def _memory(pid: int, name: str) -> int:
    """Return the bytes of memory of a process. `name` is `Rss` or `Pss`."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


if __name__ == "__main__":
    print(json.dumps(agent_figures(), indent=2))
