"""The pages of jobs and of submission: what they show, and what their orders do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.console.browser.conftest import Deployment, Visit
from tests.console.browser.queued import SPEC, USER, begin_again, full_quota, jobs_of, submitted
from tests.console.browser.visit import TWICE
from tests.sandbox.patience import wait_until

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


@pytest.fixture(scope="module")
def token(deployment: Deployment) -> Iterator[str]:
    """A token of the user."""
    issued = deployment.operator.issue_user_token(USER, "user")
    yield str(issued["token"])
    deployment.operator.revoke_user_token(USER, issued["id"])


def posts(tab: Visit, ending: str) -> list[tuple[str, dict[str, str]]]:
    """The address and the headers of each order with this ending that the tab has sent."""
    return [(url, headers) for method, url, headers in tab.requests if method == "POST" and url.endswith(ending)]


def opened(visit: Callable[..., Visit], place: str, token: str, *, viewer: bool = False) -> Visit:
    """A tab at a place of the console, signed in."""
    tab = visit()
    tab.go(place)
    tab.sign_in(token, viewer=viewer)
    tab.settle()
    return tab


def test_a_job_is_submitted_from_the_form_once(visit: Callable[..., Visit], deployment: Deployment, token: str) -> None:
    """The check comes first, each change needs another; two presses submit one job, in the user's own name."""
    tab = opened(visit, "#/submit", token)
    page = tab.page
    submit = page.get_by_role("button", name="Submit", exact=True)
    check = page.get_by_role("button", name="Check (dry run)")
    assert page.locator("input[name=user]").input_value() == USER
    for name in ("workload", "nnodes", "n_gpus_per_node", "task_definition"):
        page.locator(f"input[name={name}]").fill(str(SPEC[name]))
    page.locator("textarea[name=command]").fill("\n".join(SPEC["command"]))
    page.locator("textarea[name=env]").fill("LR=0.1=x\nNO VALUE")
    assert submit.is_disabled()
    check.click()
    page.get_by_role("alert").get_by_text("line 2").wait_for()
    page.locator("textarea[name=env]").fill("LR=0.1=x")
    check.click()
    page.locator(".answer").get_by_text("It would wait.").wait_for()
    page.locator("input[name=attempts_max]").fill("2")
    assert submit.is_disabled() and page.get_by_text("changed after the check").count() == 1
    check.click()
    page.locator("button:not([disabled])", has_text="Submit").and_(submit).wait_for()
    submit.evaluate(TWICE)
    page.wait_for_url("**/console#/jobs/*")
    (job,) = jobs_of(deployment)
    assert page.url.endswith(job["job_id"])
    job = deployment.operator.job(job["job_id"])
    expected = {"user": USER, "attempts_max": 2, "nnodes": 1, "n_gpus_per_node": 8, "command": SPEC["command"]}
    assert {name: job[name] for name in expected} == expected
    ((_, headers),) = posts(tab, "/api/v2/jobs")
    assert len(headers["idempotency-key"]) == 32
    assert posts(tab, "/api/v2/jobs?dry_run=1")


def test_a_document_is_submitted_as_it_is(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """In YAML; what the API refuses is shown with the field. An operator names the user."""
    page = opened(visit, "#/submit", deployment.state["operator_token"]).page
    page.get_by_role("button", name="JSON or YAML").click()
    lines = "\n".join(f"{name}: {value}" for name, value in SPEC.items())
    page.locator("textarea[name=document]").fill(lines.replace("nnodes: 1", "nnodes: 0"))
    page.get_by_role("button", name="Check (dry run)").click()
    page.get_by_role("alert").get_by_text("nnodes").first.wait_for()
    page.locator("textarea[name=document]").fill(lines)
    page.get_by_role("button", name="Check (dry run)").click()
    page.locator(".answer").wait_for()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/console#/jobs/*")
    assert [job["user"] for job in jobs_of(deployment)] == [USER]


def test_orders_about_several_jobs_are_sent_one_by_one(
    visit: Callable[..., Visit], deployment: Deployment, token: str
) -> None:
    """Suspend, resume and cancel, read back through the API; back and Escape send nothing, two presses send once."""
    ids = submitted(deployment, 2)
    # The scheduler changes the status of a new job. A list that is read meanwhile may lack the job.
    wait_until(lambda: all(deployment.operator.job(one)["status"] == "PENDING_RESOURCES" for one in ids))
    tab = opened(visit, f"#/jobs?user={USER}&state=waiting", token)
    page = tab.page
    page.locator("table.rows tbody td.id").nth(1).wait_for()
    assert page.locator("table.rows tbody td.id").all_inner_texts() == ids[::-1]  # the newest job first

    def held() -> list[Any]:
        return [deployment.operator.job(job_id)["held"] for job_id in ids]

    def choose(order: str) -> Any:
        with page.expect_response(lambda answer: "/api/v2/jobs?" in answer.url):
            page.get_by_role("button", name="Refresh now").click()
        page.locator("table.rows tbody td.id").nth(1).wait_for()
        page.get_by_label("Select all jobs of this page").check()
        page.get_by_text("2 selected").wait_for()
        page.get_by_role("button", name=order, exact=True).click()
        return page.get_by_role("dialog")

    dialog = choose("Suspend")
    assert dialog.get_by_role("button", name="Back").evaluate("(button) => button === document.activeElement")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    dialog = choose("Suspend")
    dialog.locator("input[name=typed]").fill("3")
    assert dialog.get_by_role("button", name="Suspend").is_disabled()
    dialog.get_by_role("button", name="Back").click()
    dialog.wait_for(state="detached")
    assert posts(tab, "/suspend") == [] and held() == [False, False]

    for order, expected in (("Suspend", [True, True]), ("Resume", [False, False])):
        dialog = choose(order)
        dialog.locator("input[name=typed]").fill("2")
        dialog.get_by_role("button", name=order).evaluate(TWICE)
        dialog.get_by_role("button", name="Close").wait_for()
        assert len(posts(tab, f"/{order.lower()}")) == 2 and held() == expected
        assert dialog.get_by_text("✓").count() == 2
        dialog.get_by_role("button", name="Close").click()
        dialog.wait_for(state="detached")

    dialog = choose("Cancel")
    deployment.operator.suspend(ids[0])  # a change behind the dialog does not change what is confirmed
    dialog.locator("input[name=typed]").fill("2")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_role("button", name="Close").wait_for()
    assert [deployment.operator.job(job_id)["status"] for job_id in ids] == ["CANCELED", "CANCELED"]


def test_a_refused_order_does_not_hold_back_the_others(
    visit: Callable[..., Visit], deployment: Deployment, token: str
) -> None:
    """The job that has ended meanwhile is shown with the server's reason."""
    ids = submitted(deployment, 2)
    page = opened(visit, f"#/jobs?user={USER}&state=waiting", token).page
    page.get_by_label("Select all jobs of this page").check()
    page.get_by_role("button", name="Suspend", exact=True).click()
    deployment.operator.cancel(ids[1])
    dialog = page.get_by_role("dialog")
    dialog.locator("input[name=typed]").fill("2")
    dialog.get_by_role("button", name="Suspend").click()
    dialog.get_by_role("button", name="Close").wait_for()
    refused, accepted = (dialog.locator("li", has_text=one).inner_text() for one in ids[::-1])
    assert "✕" in refused and "CANCELED" in refused and "✓" in accepted
    assert deployment.operator.job(ids[0])["held"] is True


def test_a_viewer_sees_why_nothing_can_be_changed(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The buttons are disabled, with the reason beside them."""
    submitted(deployment, 1)
    tab = opened(visit, f"#/jobs?user={USER}", deployment.state["operator_token"], viewer=True)
    tab.page.locator("table.rows tbody tr").first.wait_for()
    for name in ("Suspend", "Resume", "Cancel"):
        assert tab.page.get_by_role("button", name=name, exact=True).is_disabled()
    assert tab.page.get_by_text("Sign in as a user or an operator to change jobs.").is_visible()
    assert tab.page.get_by_role("checkbox", name="Select").count() == 0
    tab.go("#/submit")
    tab.page.get_by_text("Sign in as a user or an operator to submit jobs.").wait_for()
    assert tab.page.get_by_role("button", name="Check (dry run)").is_disabled()


def test_the_filters_stand_in_the_address(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """So that a link shows what its sender saw."""
    (job_id,) = submitted(deployment, 1)
    tab = opened(visit, "#/jobs", deployment.state["operator_token"], viewer=True)
    tab.page.locator("input[name=q]").fill(job_id[:12])
    tab.page.locator("input[name=q]").press("Enter")
    tab.page.locator("select[name=state]").select_option("ended")
    tab.page.locator("select[name=since]").select_option("h24")
    assert tab.page.url.endswith(f"#/jobs?q={job_id[:12]}&state=ended&since=h24")
    other = opened(visit, tab.page.url.partition("/console")[2], deployment.state["operator_token"], viewer=True)
    assert other.page.locator("select[name=state]").input_value() == "ended"
    other.page.locator("select[name=state]").select_option("waiting")
    other.page.get_by_role("link", name=job_id).wait_for()
