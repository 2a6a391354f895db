"""The web console in front of 10,000 instances and 50,000 jobs: times in Chromium, and the encoding of the snapshots.

The deployment is a fake server on loopback (`console/fake`). Timings on a shared computer are upper bounds. Without a
browser only the encoding is measured.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import statistics
import time
from datetime import UTC, datetime
from typing import Any

from gpu_recovery.core.console_snapshots import map_document, members_document

from console.fake.model import Deployment, Size
from console.fake.server import running

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
VISITS = 5
"""Visits of the page. The figures are medians."""
_MAP = ".heatmap .area canvas[data-drawn]"
_LONG_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({ entryTypes: ["longtask"] });
"""
"""Script that keeps the duration of the longest task of the main thread. Chromium reports tasks from 50 ms on."""


def console_figures(
    instances: int = 10_000, jobs: int = 50_000, visits: int = VISITS, follow_s: int = 60
) -> dict[str, Any]:
    """Return seconds, bytes and milliseconds by name.

    Args:
        instances: instances of the deployment.
        jobs: its jobs.
        visits: visits of the page.
        follow_s: seconds for which the last visit follows the events.
    """
    size = Size(instances, jobs)
    figures = _encoding(Deployment(size, datetime.now(UTC)))
    return figures | (_page(size, visits, follow_s) if CHROMIUM else {})


def _encoding(deployment: Deployment) -> dict[str, Any]:
    records = list(deployment.instances.values())
    began = time.process_time()
    members = members_document(records)
    shown = map_document(records, members["members"])
    texts = [json.dumps(document).encode() for document in (members, shown)]
    sizes = [len(gzip.compress(text, 6, mtime=0)) for text in texts]
    taken = time.process_time() - began
    return {"encoding_s": round(taken, 3), "members_bytes": sizes[0], "map_bytes": sizes[1]}


def _page(size: Size, visits: int, follow_s: int) -> dict[str, Any]:
    """Sign in and wait for the map, some times. Then follow the events."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only these figures need the browser's driver

    to_map: list[float] = []
    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with running(size) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[*arguments, "--enable-precise-memory-info"])
        for visit in range(visits):
            page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
            page.add_init_script(_LONG_TASKS)
            page.goto(server.url)
            page.locator("input[name=token]").fill("any text")
            began = time.monotonic()
            page.locator("form button[type=submit]").click()
            page.locator(_MAP).wait_for()
            to_map.append(time.monotonic() - began)
            if visit < visits - 1:
                page.context.close()
        page.evaluate("window.longest = 0")
        page.wait_for_timeout(follow_s * 1_000)
        figures = {
            "sign_in_to_map_ms": round(statistics.median(to_map) * 1_000),
            "longest_task_ms": round(page.evaluate("window.longest")),
            "heap_mib": round(page.evaluate("performance.memory.usedJSHeapSize") / 2**20, 1),
            "elements": page.evaluate("document.getElementsByTagName('*').length"),
        }
        browser.close()
    return figures
