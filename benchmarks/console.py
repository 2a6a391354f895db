"""The web console in front of 10,000 instances and 50,000 jobs, with the budget of each figure.

    python -m benchmarks.console    measures only this, and writes it into results.json

Chromium measures the pages, in front of a fake server on loopback (`console/fake`): see `console_browser.py`. The
functions run in a process of their own in front of a server of the fleet: see `console_functions.py`. Timings on a
shared computer are upper bounds. Without a browser only the functions are measured.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys

from benchmarks import results
from benchmarks.console_browser import CHROMIUM, page_figures
from benchmarks.fleet import ROOT
from benchmarks.fleet_server import serve
from console.fake.model import Size
from tests.aws.environment import CREDENTIALS, FUNCTION

BUDGETS: dict[str, float] = {
    "first_paint_ms": 500,
    "first_paint_slow_ms": 1_500,
    "sign_in_to_map_ms": 1_500,
    "draw_event_ms": 8,
    "draw_whole_ms": 50,
    "task_p99_ms": 50,
    "heap_mib": 80,
    "heap_growth": 1.1,
    "scroll_frames_a_second": 55,
    "rows": 100,
    "elements": 3_000,
    "overview_s_p50": 0.03,
    "overview_s_p99": 0.1,
    "map_s_p50": 0.03,
    "map_s_p99": 0.1,
    "reconciler_snapshots_s": 1,
    "scheduler_snapshot_s": 0.3,
}
"""Upper bound of each figure; of the frames a second, the lower bound. `rows` is the longest page of a list."""


def console_figures(
    size: Size | None = None, visits: int = 5, follow_s: int = 60, heap_s: int = 600, requests: int = 200
) -> dict[str, dict[str, float]]:
    """Return each figure with its budget.

    Args:
        size: numbers of the deployment.
        visits: visits of the page. The figures of a visit are medians.
        follow_s: seconds for which the tasks of a tab that follows the events are measured.
        heap_s: seconds after which its memory is compared with that after `follow_s`.
        requests: requests to each polled route.
    """
    whole = size or Size()
    measured = _functions(whole, requests)
    if CHROMIUM:
        measured |= page_figures(whole, visits, follow_s, heap_s)
    return {
        name: {"measured": figure, **({"budget": BUDGETS[name]} if name in BUDGETS else {})}
        for name, figure in measured.items()
    }


def _functions(size: Size, requests: int) -> dict[str, float]:
    processes = multiprocessing.get_context("spawn")
    ours, theirs = processes.Pipe()
    server = processes.Process(target=serve, args=(size.instances, size.jobs, theirs), daemon=True)
    server.start()
    theirs.close()
    try:
        environment = {
            **CREDENTIALS,
            **FUNCTION,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ours.recv()}",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "lambdas"), str(ROOT)]),
            "PATH": os.environ["PATH"],
            "REQUESTS": str(requests),
        }
        command = [sys.executable, "-m", "benchmarks.console_functions"]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
        if run.returncode:
            raise RuntimeError(run.stderr[-2_000:])
    finally:
        ours.close()
        server.join()
    figures: dict[str, float] = json.loads(run.stderr.strip().splitlines()[-1])
    return figures


if __name__ == "__main__":
    figures = console_figures()
    results.update("console", figures)
    print(json.dumps(figures, indent=2))
