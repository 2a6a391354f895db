"""The page of the queue: places and reasons, quotas and their change, and the check of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.console.browser.conftest import Deployment, Visit
from tests.console.browser.queued import SPEC, USER, begin_again, full_quota, jobs_of, submitted
from tests.console.browser.test_jobs_page import opened
from tests.console.browser.visit import TWICE

pytestmark = [pytest.mark.slow, pytest.mark.console]


@pytest.fixture(scope="module", autouse=True)
def _quota(deployment: Deployment) -> Iterator[None]:
    """Jobs of the user wait."""
    with full_quota(deployment):
        yield


@pytest.fixture(autouse=True)
def _begin_again(deployment: Deployment) -> Iterator[None]:
    """Each test has its own jobs."""
    yield
    begin_again(deployment)


def puts(tab: Visit) -> list[str]:
    """The `If-Match` of each change of the limits that the tab has sent."""
    return [headers["if-match"] for method, url, headers in tab.requests if method == "PUT" and url.endswith("/quotas")]


def test_the_queue_says_why_a_job_waits(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """With its place, its totals and its quota, from the scheduler's last pass; a job that waits is a link."""
    (job_id,) = submitted(deployment, 1)
    tab = opened(visit, "#/queue", deployment.state["operator_token"], viewer=True)
    row = tab.page.locator("section", has=tab.page.get_by_role("heading", name="Waiting")).locator(
        "tr", has_text=job_id
    )
    tab.until_shown(row.get_by_text("its quota"))
    assert row.locator("a").first.get_attribute("href") == f"#/jobs/{job_id}"
    quota = tab.page.locator("section", has=tab.page.get_by_role("heading", name="Quotas")).locator("tr", has_text=USER)
    assert quota.first.get_by_text("1 / 1").count() == 1
    totals = tab.page.locator("section", has=tab.page.get_by_role("heading", name="By priority"))
    assert "1 job on 1 instance, 8 GPUs" in totals.locator("tr", has_text="NORMAL").last.inner_text()
    assert tab.page.get_by_text("as of").is_visible()
    assert not [url for _, url, _ in tab.requests if "/api/v2/queue" in url and "snapshot=1" not in url]
    edit = tab.page.get_by_role("button", name="Change the limits")
    assert edit.is_disabled() and tab.page.get_by_text("Only an operator may change the limits.").is_visible()


def test_an_operator_changes_a_quota_once(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The dialog says what changes; Escape changes nothing; a change of somebody else is not overwritten."""
    tab = opened(visit, "#/queue", deployment.state["operator_token"])
    page, operator = tab.page, deployment.operator
    before = operator.quotas()
    edit = page.get_by_role("button", name="Change the limits")
    dialog = page.get_by_role("dialog")
    limit = dialog.get_by_label("Instances", exact=True)

    edit.click()
    limit.fill("7")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert operator.quotas() == before and puts(tab) == []

    edit.click()
    limit.fill("7")
    assert "1 → 7" in dialog.inner_text()
    other = operator.put_quotas({"instances": {f"{USER}/*/*": 1, "eve/*/*": 2}}, before["revision"])
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_role("alert").wait_for()
    dialog.get_by_role("button", name="Read the limits again").click()
    dialog.locator("tbody tr").nth(1).wait_for()
    limit.last.fill("7")
    dialog.get_by_role("button", name="Save").evaluate(TWICE)
    dialog.wait_for(state="detached")
    assert operator.quotas()["limits"]["instances"] == {f"{USER}/*/*": 7, "eve/*/*": 2}
    assert puts(tab) == [f'"{before["revision"]}"', f'"{other["revision"]}"']


def test_a_job_is_tried_without_being_submitted(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The answer of the dry run, on the page of the queue."""
    page = opened(visit, "#/queue", deployment.state["operator_token"]).page
    page.get_by_text("Try a job: would it start now?").click()
    for name in ("workload", "nnodes", "task_definition", "user"):
        page.locator(f"input[name={name}]").fill(str(SPEC[name]))
    page.get_by_role("button", name="Check (dry run)").click()
    page.locator(".answer").get_by_text("It would wait.").wait_for()
    assert USER in page.locator(".answer").inner_text()
    assert not jobs_of(deployment)
