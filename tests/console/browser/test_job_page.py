"""The page of a job and the page of diagnoses: what they show, and what their orders do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandbox import sandbox
from tests.console.browser.conftest import Deployment, Visit
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
MARKUP = "<img src=x onerror=alert(1)>"
PROGRAM = f"import time\nprint({MARKUP!r}, flush=True)\nfor n in range(10_000): time.sleep(0.1)"


@pytest.fixture
def job(deployment: Deployment) -> Any:
    """A job of one instance that prints markup and runs until it is stopped."""
    spec = {
        "workload": "page",
        "nnodes": 1,
        "n_gpus_per_node": 8,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": ["gpu-recovery-run", "--", "python", "-uc", PROGRAM],
        "checkpoint_dir": str(deployment.directory / "page"),
        "suspend_grace_s": 5,
        "user": "ana",
    }
    job_id = deployment.operator.submit(spec)["job_id"]
    wait_until(lambda: deployment.operator.job(job_id)["status"] == "RUNNING")
    yield job_id
    if deployment.operator.job(job_id)["status"] not in ("CANCELED", "FAILED", "SUCCEEDED"):
        deployment.operator.cancel(job_id)


def test_a_viewer_sees_the_job_and_can_order_nothing(
    visit: Callable[..., Visit], deployment: Deployment, job: str
) -> None:
    """Each button is disabled and says why; nothing that a viewer opens errs."""
    tab = visit()
    tab.go(f"#/jobs/{job}")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.page.locator(".orders button").first.wait_for()
    for button in tab.page.locator(".orders button").all():
        assert button.is_disabled() and "Sign in as" in str(button.get_attribute("title"))
    for name in ("Why", "Log", "Attempts", "Specification"):
        tab.page.get_by_role("link", name=name, exact=True).click()
        tab.page.locator(f"a[aria-current=page]:text-is('{name}')").wait_for()
        tab.settle()
        assert tab.page.get_by_role("alert").count() == 0
    assert MARKUP in tab.page.locator("dl.fields").inner_text()


def test_a_pasted_log_is_judged_by_line(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The line that holds the cause is marked, and a log without a fault says so."""
    tab = visit()
    tab.go("#/diagnose")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    page = tab.page
    lines = page.locator("textarea[name=lines]")
    lines.fill(f"step 1 loss 0.5\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n{MARKUP}")
    page.get_by_role("button", name="Judge the lines").click()
    page.locator("tr.marked", has_text="fallen off the bus").wait_for()
    assert "GPU lost" in page.locator(".verdict").inner_text()
    lines.fill("step 1 loss 0.5")
    page.get_by_role("button", name="Judge the lines").click()
    page.get_by_text("Nothing in this log says that anything is wrong.").wait_for()
