"""Times and memory of the web console in Chromium, by its own trace, in front of a fake server on loopback.

A drawing of the fleet map is measured as the task of the main thread that draws: with what the page computes before it.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from console.fake.model import Size
from console.fake.server import running

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
MAP = ".heatmap .area canvas[data-drawn]"
MARKS = """
const put = CanvasRenderingContext2D.prototype.putImageData;
CanvasRenderingContext2D.prototype.putImageData = function (...given) {
  if (this.canvas.closest(".area")) performance.mark(given.length > 3 ? "draws cells" : "draws whole");
  return put.apply(this, given);
};
addEventListener("submit", () => performance.mark("signs in"), { capture: true });
"""
"""Script that marks the sign-in and the drawings of the fleet map."""
CATEGORIES = ["toplevel", "blink.user_timing", "disabled-by-default-devtools.timeline", "__metadata"]
TASKS = ("RunTask", "ThreadControllerImpl::RunTask")
SLOW_4G = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 93_750}
"""1.6 Mbit/s down and 0.75 up, and 150 ms."""
FIRST_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) resolve(entry.startTime);
}).observe({ type: "paint", buffered: true }))"""
"""Script that returns the milliseconds until the first text or image is on the screen."""
SCROLL = """(seconds) => new Promise((resolve) => {
  let frames = 0;
  const began = performance.now();
  const step = () => {
    frames += 1;
    scrollBy(0, scrollY + innerHeight >= document.body.scrollHeight - 1 ? -document.body.scrollHeight : 40);
    if (performance.now() - began < seconds * 1000) requestAnimationFrame(step);
    else resolve(frames / ((performance.now() - began) / 1000));
  };
  requestAnimationFrame(step);
})"""
"""Script that scrolls the page in each frame, and returns the frames a second."""


def page_figures(size: Size, visits: int, follow_s: int, heap_s: int) -> dict[str, float]:
    """Return milliseconds, mebibytes and counts by name.

    Args:
        size: numbers of the deployment.
        visits: visits of the page.
        follow_s: seconds for which the tasks of the main thread are measured.
        heap_s: seconds after which the memory is compared with that after `follow_s`.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only these figures need the browser's driver

    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with running(size) as server, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        slow = [_visit(browser, server.url, slow=True)[1]["paint"] for _ in range(visits)]
        visited: list[Mapping[str, float]] = []
        for visit in range(visits):
            page, times = _visit(browser, server.url)
            visited.append(times)
            if visit < visits - 1:
                page.context.close()
        figures = {
            "first_paint_ms": statistics.median(times["paint"] for times in visited),
            "first_paint_slow_ms": statistics.median(slow),
            "sign_in_to_map_ms": statistics.median(times["map"] for times in visited),
        }
        figures |= _followed(browser, page, follow_s, heap_s)
        figures["elements"] = page.evaluate("document.getElementsByTagName('*').length")
        figures |= _scrolled(page, server.url)
        browser.close()
    return {name: round(figure, 2) for name, figure in figures.items()}


def _visit(browser: Any, url: str, *, slow: bool = False) -> tuple[Any, dict[str, float]]:
    """Open the console in a new context, and sign in. Return the tab and its milliseconds."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.add_init_script(MARKS)
    if slow:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        session.send("Network.emulateNetworkConditions", SLOW_4G)
        session.send("Emulation.setCPUThrottlingRate", {"rate": 4})
    page.goto(url)
    page.locator("input[name=token]").fill("any text")
    paint = page.evaluate(FIRST_PAINT)
    if slow:
        page.context.close()
        return page, {"paint": paint}
    page.locator("form button[type=submit]").click()
    page.locator(MAP).wait_for()
    at = "(name) => performance.getEntriesByName(name)[0].startTime"
    return page, {"paint": paint, "map": page.evaluate(at, "draws whole") - page.evaluate(at, "signs in")}


def _followed(browser: Any, page: Any, follow_s: int, heap_s: int) -> dict[str, float]:
    """Follow the events, and trace the tasks of the main thread. Then compare the memory with that of later."""
    browser.start_tracing(page=page, categories=CATEGORIES)
    for mode in ("age", "status"):  # each draws every cell anew
        page.locator(f"input[name=mode][value={mode}]").check()
        page.wait_for_timeout(300)
    page.wait_for_timeout(follow_s * 1_000)
    figures = task_figures(json.loads(browser.stop_tracing())["traceEvents"])
    first = _heap_mib(page)
    page.wait_for_timeout(max(0, heap_s - follow_s) * 1_000)
    last = _heap_mib(page)
    return figures | {"heap_mib": last, "heap_growth": last / first}


def _heap_mib(page: Any) -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    session.send("HeapProfiler.disable")
    session.detach()
    return float(used) / 2**20


def task_figures(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the milliseconds of the tasks of the page's main thread in a trace."""
    marks = [event for event in events if str(event.get("name", "")).startswith("draws ")]
    if not marks:
        return {}
    thread = (marks[0]["pid"], marks[0]["tid"])
    tasks = sorted(
        (event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("name") in TASKS and event.get("ph") == "X" and (event["pid"], event["tid"]) == thread
    )
    durations = [(end - begin) / 1_000 for begin, end in tasks]
    figures = {"tasks": len(tasks), "task_p99_ms": _quantile(durations, 0.99), "longest_task_ms": max(durations)}
    for kind, name in (("draws cells", "draw_event_ms"), ("draws whole", "draw_whole_ms")):
        at = {event["ts"] for event in marks if event["name"] == kind}
        drawing = {(begin, end) for begin, end in tasks if any(begin <= ts <= end for ts in at)}
        if drawing:
            taken = [(end - begin) / 1_000 for begin, end in drawing]
            figures |= {name: statistics.median(taken), f"{name}_longest": max(taken)}
    return figures


def _quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _scrolled(page: Any, url: str) -> dict[str, float]:
    """Scroll the list of jobs. It has a page of rows at a time, whatever the number of jobs is."""
    page.goto(f"{url}#/jobs")
    page.locator("tbody tr").first.wait_for()
    return {"rows": page.locator("tbody tr").count(), "scroll_frames_a_second": page.evaluate(SCROLL, 3)}
