"""Screenshots and a short recording of the web console, made from a sandbox in which a GPU fault heals itself.

make screenshots    writes docs/screenshots/ again

The sandbox is that of `make demo`: real functions, a simulated GPU cluster, and training jobs of real processes. Three
jobs run and one job waits. Then a GPU of the running job of two instances falls off the bus.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "lambdas"), str(ROOT / "client")]

from gpu_recovery_client.api import RecoveryClient
from PIL import Image
from playwright.sync_api import sync_playwright

from sandbox import sandbox
from sandbox.demo.__main__ import specification

FOLDER = ROOT / "docs/screenshots"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
INSTANCES, GPUS, WIDTH, HEIGHT, PHONE = 12, 8, 1280, 800, 390
FRAME_EVERY_S, FRAME_SHOWN_MS, FRAMES_MAX, FRAME_WIDTH = 0.5, 500, 90, 960
GIVE_UP_AFTER_S = 240.0
JOBS = (
    ("li", "VERY_HIGH", "pretrain", 4),
    ("bo", "NORMAL", "eval", 1),
    ("ana", "HIGH", "sft", 2),
    ("li", "NORMAL", "sft", 8),
)
"""User, priority, workload and instances of each job; a GPU of the third job fails, and the last job waits."""
FAULTY, WAITING = 2, 3
QUOTAS = {"li/VERY_HIGH": 6, "li/NORMAL": 8, "bo/NORMAL": 2, "ana/HIGH": 3}
"""Instances by user and priority."""


def main() -> None:
    """Make all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-recovery-screenshots-") as folder:
        directory = Path(folder)
        try:
            state = sandbox.up(directory, instances=INSTANCES, gpus=GPUS, agents=True, progress=print)
            with RecoveryClient(state["api_url"], state["operator_token"]) as client, sync_playwright() as driver:
                chromium = driver.chromium.launch(executable_path=CHROMIUM, args=_arguments())
                _shoot(directory, state, client, chromium)
                chromium.close()
        finally:
            sandbox.down(directory)


def _arguments() -> list[str]:
    return ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]


def _shoot(directory: Path, state: dict[str, Any], client: RecoveryClient, chromium: Any) -> None:
    client.put_quotas(_limits(), client.quotas()["revision"])
    ids = [client.submit(_specification(directory, number))["job_id"] for number in range(len(JOBS))]
    job_id = ids[FAULTY]
    _wait(lambda: all(client.job(other)["status"] == "RUNNING" for other in ids[:WAITING]))
    page = _page(chromium, state)
    page.locator("canvas").first.wait_for(timeout=GIVE_UP_AFTER_S * 1_000)
    frames = [_frame(page)]
    faulty = client.job(job_id)["instances"][1]
    sandbox.fault(directory, faulty, "xid79")

    def record() -> None:
        frames.append(_frame(page))

    _wait(lambda: client.instance(faulty)["status"] == "REBOOTING", record)
    record()
    _save(page, "overview")
    _save(_page(chromium, state, dark=True), "overview-dark")
    _wait(lambda: (client.job(job_id)["attempt"], client.job(job_id)["status"]) == (2, "RUNNING"), record)
    _wait(lambda: client.instance(faulty)["status"] == "AVAILABLE", record)
    until = time.monotonic() + 6
    _wait(lambda: time.monotonic() > until, record)
    _save(_page(chromium, state, f"#/jobs/{job_id}"), "job")
    _save(_page(chromium, state, f"#/jobs/{job_id}", locale="zh-CN"), "job-zh")
    _save(_page(chromium, state, "#/", width=PHONE), "overview-phone")
    _save(_page(chromium, state, f"#/incidents/{job_id}--a01"), "incident")
    _save(_page(chromium, state, "#/queue"), "queue")
    _record(frames, FOLDER / "healing.webp")


def _limits() -> dict[str, Any]:
    return {"instances": {f"{key}/*": limit for key, limit in QUOTAS.items()}}


def _specification(directory: Path, number: int) -> dict[str, Any]:
    user, priority, workload, instances = JOBS[number]
    one = specification(directory / f"checkpoints-{number}", "sandbox.trainers.plain_python")
    one["env"] |= {"TOTAL_STEPS": "100000", "STEP_SECONDS": "0.5", "CHECKPOINT_EVERY": "5"}
    return one | {"user": user, "priority": priority, "workload": workload, "nnodes": instances}


def _page(
    chromium: Any,
    state: dict[str, Any],
    place: str = "#/",
    *,
    locale: str = "en-GB",
    dark: bool = False,
    width: int = WIDTH,
) -> Any:
    """Return a page of the console, signed in as an operator."""
    theme = "dark" if dark else "light"
    context = chromium.new_context(viewport={"width": width, "height": HEIGHT}, locale=locale, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{state['console_url']}{place}")
    page.locator("input[name=token]").fill(state["operator_token"])
    page.locator("input[name=role]").nth(1).check()
    page.locator("form button[type=submit]").click()
    page.locator("input[name=token]").wait_for(state="detached")
    page.locator("main h1").first.wait_for()
    page.locator(".skeleton").first.wait_for(state="detached")
    return page


def _frame(page: Any) -> bytes:
    taken: bytes = page.screenshot()
    return taken


def _save(page: Any, name: str) -> None:
    Image.open(io.BytesIO(_frame(page))).save(FOLDER / f"{name}.webp", quality=80)


def _record(frames: list[bytes], path: Path) -> None:
    """Write the frames that differ from the frame before as an animation."""
    distinct = [frame for at, frame in enumerate(frames) if at == 0 or frame != frames[at - 1]][:FRAMES_MAX]
    size = (FRAME_WIDTH, FRAME_WIDTH * HEIGHT // WIDTH)
    first, *others = [Image.open(io.BytesIO(frame)).convert("RGB").resize(size) for frame in distinct]
    first.save(path, save_all=True, append_images=others, duration=FRAME_SHOWN_MS, loop=0, quality=60)


def _wait(condition: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> None:
    deadline = time.monotonic() + GIVE_UP_AFTER_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the job or the instance did not get on")
        meanwhile()
        time.sleep(FRAME_EVERY_S)


if __name__ == "__main__":
    main()
