"""Incidents: the list, the thread of one, and the timeline of the job that it interrupted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from sandbox import sandbox
from tests.console.browser.conftest import Deployment, Visit
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
PROGRAM = "import time\nfor n in range(10_000): print(f'step {n}', flush=True); time.sleep(0.2)"
PATIENCE_MS = 180_000
"""Time for a recovery: stop, check, reboot, verification, start."""


@dataclass(frozen=True)
class BrokenJob:
    """A job that runs. `break_one` makes the GPU of one of its instances fall off the bus."""

    job_id: str
    sick: str
    break_one: Callable[[], object]


@pytest.fixture
def job(deployment: Deployment) -> Iterator[BrokenJob]:
    """A job of two instances that runs until it is stopped."""
    operator = deployment.operator
    spec = {
        "workload": "incident",
        "nnodes": 2,
        "n_gpus_per_node": 8,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": ["gpu-recovery-run", "--", "python", "-uc", PROGRAM],
        "checkpoint_dir": str(deployment.directory / "incident"),
        "user": "ana",
    }
    job_id = operator.submit(spec)["job_id"]
    wait_until(lambda: operator.job(job_id)["status"] == "RUNNING")
    sick = operator.job(job_id)["instances"][1]
    yield BrokenJob(job_id, sick, lambda: sandbox.fault(deployment.directory, sick, "xid79"))
    if operator.job(job_id)["status"] not in ("CANCELED", "FAILED", "SUCCEEDED"):
        operator.cancel(job_id)
    wait_until(lambda: operator.instance(sick)["status"] == "AVAILABLE")


def test_an_incident_opens_closes_and_tells_its_story(
    visit: Callable[..., Visit], deployment: Deployment, job: BrokenJob
) -> None:
    """The page follows a GPU fault by itself, from the first decision to the attempt that runs again."""
    tab = visit()
    page, incident = tab.page, f"{job.job_id}--a01"
    page.set_default_timeout(PATIENCE_MS)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=deployment.console_url)
    tab.go("#/incidents")
    tab.sign_in(deployment.state["operator_token"])
    opened = page.get_by_role("region", name="Open").get_by_role("link", name=incident)
    page.get_by_text("No incident is open.").wait_for()

    job.break_one()
    opened.click()
    page.locator("h1", has_text=incident).wait_for()
    page.locator(".head .status", has_text="open").wait_for()
    page.locator(".head .status", has_text="recovered").wait_for()
    page.locator(".act", has_text="No. The job runs again").wait_for()
    assert deployment.operator.job(job.job_id)["attempt"] == 2
    thread = page.locator(".thread")
    for said in ("recovery started", "Verdict", "checking", "recovery succeeded"):
        thread.get_by_text(said).first.wait_for()
    thread.get_by_role("link", name=job.sick).first.wait_for()
    page.locator(".verdict", has_text=job.sick).wait_for()

    page.get_by_role("button", name="Copy as Markdown").click()
    page.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"# Incident {incident}\n")
    assert re.search(rf"^- \d{{4}}-.*Z {job.sick}; .*CHECKING", copied, re.MULTILINE), copied
    assert "- State: recovered" in copied

    page.get_by_role("link", name="timeline").click()
    for attempt in (1, 2):
        lanes = page.get_by_role("region", name=f"Attempt {attempt}", exact=True)
        lanes.get_by_role("img", name=re.compile("^running")).first.wait_for()
    first = page.get_by_role("region", name="Attempt 1", exact=True)
    failure = first.locator(".piece.failure")
    failure.focus()
    assert page.locator(".told").inner_text() == failure.get_attribute("title") != ""
    first.get_by_role("img", name=re.compile(f"^{job.sick}: checking")).wait_for()
    page.get_by_text("Show as table").click()
    assert page.locator("details tr", has_text=job.sick).count() > 0

    tab.go("#/incidents?state=closed")
    page.get_by_role("region", name="Closed").get_by_role("link", name=incident).wait_for()
