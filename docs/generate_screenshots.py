"""Screenshots and a short recording of the web console, made from a sandbox in which a GPU fault heals itself.

make screenshots    writes docs/screenshots/ again

The sandbox is that of `make demo`: real functions, a simulated GPU cluster, and a training job of real processes. So
the pictures show what the console really does.
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
INSTANCES, WIDTH, HEIGHT, PHONE = 6, 1280, 720, 390
FRAME_EVERY_S, FRAME_SHOWN_MS, FRAMES_MAX = 1.0, 500, 60
GIVE_UP_AFTER_S = 240.0


def main() -> None:
    """Make all pictures."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpu-recovery-screenshots-") as folder:
        directory = Path(folder)
        try:
            state = sandbox.up(directory, instances=INSTANCES, gpus=8, agents=True, progress=print)
            with RecoveryClient(state["api_url"], state["operator_token"]) as client, sync_playwright() as driver:
                chromium = driver.chromium.launch(executable_path=CHROMIUM, args=_arguments())
                _shoot(directory, state, client, chromium)
                chromium.close()
        finally:
            sandbox.down(directory)


def _arguments() -> list[str]:
    return ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]


def _shoot(directory: Path, state: dict[str, Any], client: RecoveryClient, chromium: Any) -> None:
    job_id = client.submit(specification(directory / "checkpoints", "sandbox.trainers.plain_python"))["job_id"]
    page = _page(chromium, state)
    _wait(lambda: client.job(job_id)["status"] == "RUNNING")
    frames = [_frame(page)]
    faulty = client.job(job_id)["instances"][1]
    sandbox.fault(directory, faulty, "xid79")
    _wait(lambda: client.job(job_id)["status"] != "RUNNING", lambda: frames.append(_frame(page)))
    _save(page, "overview")
    _save(_page(chromium, state, dark=True), "overview-dark")
    _wait(
        lambda: client.job(job_id)["attempt"] == 2 and client.job(job_id)["status"] == "RUNNING",
        lambda: frames.append(_frame(page)),
    )
    _wait(lambda: client.instance(faulty)["status"] == "AVAILABLE", lambda: frames.append(_frame(page)))
    frames.append(_frame(page))
    _save(_page(chromium, state, f"#/jobs/{job_id}"), "job")
    _save(_page(chromium, state, f"#/jobs/{job_id}", locale="zh-CN"), "job-zh")
    _save(_page(chromium, state, "#/", width=PHONE), "overview-phone")
    _record(frames, FOLDER / "healing.webp")


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
    first, *others = [Image.open(io.BytesIO(frame)).convert("RGB") for frame in distinct]
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
