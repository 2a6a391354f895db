"""What the node agent costs: the agent as it runs, with an NVML of eight GPUs that are not there, for a minute.

The API is this process, on the loopback over plain HTTP: neither a TLS handshake for each report nor a real driver is
in the figures. Memory is told twice: resident, where what processes share counts for each of them, and by their own
shares (PSS), which add up.
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
HEARD = json.dumps({"ok": True, "ts": 1, "next_s": 15, "inventory": False, "orders": [], "refused": []}).encode()
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MB = 1e6


def agent_figures(seconds: float = SECONDS) -> dict[str, Any]:
    """Percent of one core, megabytes of all its processes together, and how many those are; empty but on Linux."""
    if sys.platform != "linux":
        return {}
    with tempfile.TemporaryDirectory() as folder, _api() as (url, heard):
        process = _agent(Path(folder), url)
        try:
            if not heard.wait(STARTS_WITHIN_S):
                raise AssertionError("the agent does not report")
            time.sleep(min(seconds, 2.0))  # its first reading of the GPUs, which a start has and a life has not
            before, began = _cpu_s(process.pid), time.monotonic()
            time.sleep(seconds)
            taken, passed = _cpu_s(process.pid) - before, time.monotonic() - began
            family = _family(process.pid)
            resident, shares = (sum(_memory(pid, name) for pid in family) for name in ("Rss", "Pss"))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return {
        "cpu_percent_of_a_core": round(taken / passed * 100, 3),
        "rss_mb": round(resident / MB, 1),
        "pss_mb": round(shares / MB, 1),
        "processes": len(family),
        "gpus": GPUS,
        "seconds": round(passed),
    }


@contextmanager
def _api() -> Iterator[tuple[str, threading.Event]]:
    """An API that hears everything, at this address; the event is set once it has heard of all GPUs."""
    heard = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", str(len(HEARD)))
            self.end_headers()
            self.wfile.write(HEARD)
            if len(report.get("inventory", {}).get("gpus", [])) == GPUS:
                heard.set()

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", heard
        finally:
            server.shutdown()


def _agent(folder: Path, url: str) -> subprocess.Popen[bytes]:
    """An agent with the default intervals, whose GPUs are all well."""
    (folder / "nvml.json").write_text(json.dumps({"gpus": [{}] * GPUS}))
    (folder / "kmsg").touch()
    paths = [FAKE_NVML, ROOT, ROOT / "agent", *(Path(one) for one in sys.path if one.endswith("site-packages"))]
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


def _family(pid: int) -> list[int]:
    """A process and its children."""
    children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(found for child in children for found in _family(child))]


def _cpu_s(pid: int) -> float:
    """Seconds of processor that a process and those of its children that live have had."""
    times = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()[11:13] for one in _family(pid)]
    return sum(int(user) + int(system) for user, system in times) / TICKS_PER_S


def _memory(pid: int, name: str) -> int:
    """Bytes of `Rss` or `Pss`."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


if __name__ == "__main__":
    print(json.dumps(agent_figures(), indent=2))
