"""Every order through the page, in one visit that is recorded whole, with its effect read back through the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox import sandbox
from tests.console.browser.conftest import Deployment, Visit, become_idle
from tests.console.browser.healing import COMMAND, MARKUP, PATIENCE_MS, Healed
from tests.console.browser.visit import TWICE, leaks_of_har
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
ORDERS = {
    ("POST", "suspend"): 1,
    ("POST", "resume"): 1,
    ("POST", "cancel"): 1,
    ("POST", "quarantine"): 1,
    ("POST", "release"): 1,
    ("POST", "pause"): 1,
    ("POST", "unpause"): 1,
    ("POST", "reset-breaker"): 1,
    ("POST", "redrive"): 1,
    ("DELETE", "tokens"): 1,
    ("PUT", "quotas"): 1,
    ("POST", "sessions"): 1,
}
"""Every request of the visit that changes something, by the last word of its path."""


@contextmanager
def job_that_runs(deployment: Deployment) -> Iterator[str]:
    """A job of one instance that prints markup and runs until it is stopped."""
    spec = {
        "workload": "ordered",
        "nnodes": 1,
        "n_gpus_per_node": 8,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": COMMAND,
        "checkpoint_dir": str(deployment.directory / "ordered"),
        "suspend_grace_s": 2,
        "user": "ana",
    }
    job_id = str(deployment.operator.submit(spec)["job_id"])
    wait_until(lambda: deployment.operator.job(job_id)["status"] == "RUNNING")
    yield job_id


def changes(tab: Visit) -> list[tuple[str, str]]:
    """Return the requests so far that change something: the method, and the last word of the path without ids."""
    tab.page.evaluate("0")  # the driver delivers events during its own calls only
    words = {word for _, word in ORDERS}
    paths = [(method, url.partition("?")[0].split("/")) for method, url, _ in tab.requests if method != "GET"]
    return [(method, next(part for part in reversed(path) if part in words)) for method, path in paths]


def give(tab: Visit, button: Any, *, needed: bool = False, **fields: str) -> None:
    """Give an order. Escape and "back" send nothing, an incomplete dialog cannot be sent, and two presses send once.

    Args:
        tab: the tab.
        button: opens the dialog of the order.
        needed: whether the order is possible only with `fields`.
        fields: what is typed, by the name of the field.
    """
    dialog, before = tab.page.get_by_role("dialog"), changes(tab)
    send = dialog.locator("button[type=submit]")
    button.click()
    dialog.locator(".back:focus").wait_for()
    tab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    button.click()
    dialog.get_by_role("button", name="Back").click()
    dialog.wait_for(state="detached")
    button.click()
    send.wait_for()
    if needed:
        assert send.is_disabled()
        send.evaluate(TWICE)
    for name, value in fields.items():
        dialog.locator(f"input[name={name}]").fill(value)
    assert changes(tab) == before
    send.evaluate(TWICE)
    dialog.wait_for(state="detached")
    assert len(changes(tab)) == len(before) + 1


def test_every_order_has_its_effect_once(
    visit: Callable[..., Visit], deployment: Deployment, healed: Healed, tmp_path: Path, opened_tabs: Any
) -> None:
    """And the visit leaves no secret anywhere. `healed` has left an instance that the circuit breaker counts."""
    become_idle(deployment)
    har = tmp_path / "orders.har"
    with opened_tabs(deployment.console_url) as open_:
        tab = open_(record_har_path=str(har), record_har_content="embed")
        tab.page.set_default_timeout(PATIENCE_MS)
        tab.sign_in(deployment.token)
        with job_that_runs(deployment) as job_id:
            about_a_job(tab, deployment, job_id)
        about_an_instance(tab, deployment)
        about_the_fleet(tab, deployment)
        about_quotas_and_tokens(tab, deployment)
        assert {each: changes(tab).count(each) for each in {*changes(tab), *ORDERS}} == ORDERS
        assert tab.page.evaluate("window.__ran") is None
    assert leaks_of_har(har, [tab]) == []


def about_a_job(tab: Visit, deployment: Deployment, job_id: str) -> None:
    """Suspend, resume and cancel."""
    page = tab.page
    status = page.locator(".head .status")
    tab.go(f"#/jobs/{job_id}?tab=log")
    page.locator("pre.log", has_text=MARKUP).wait_for()
    give(tab, page.get_by_role("button", name="Suspend"), reason=MARKUP)
    status.get_by_text("suspended").wait_for()
    job = deployment.operator.job(job_id)
    assert (job["status"], job["held"]) == ("SUSPENDED", True)
    assert any(MARKUP in each["reason"] for each in job["history"])
    page.get_by_role("link", name="Why").click()
    page.locator("td", has_text=MARKUP).first.wait_for()

    give(tab, page.get_by_role("button", name="Resume"))
    status.get_by_text("running").wait_for()
    assert deployment.operator.job(job_id)["status"] == "RUNNING"

    give(tab, page.get_by_role("button", name="Cancel", exact=True), needed=True, typed=job_id[-4:])
    page.locator(".act", has_text="The job has ended").wait_for()
    assert deployment.operator.job(job_id)["status"] == "CANCELED"


def about_an_instance(tab: Visit, deployment: Deployment) -> None:
    """Quarantine and release, the latter from the page of the fleet, after the reconciler has listed the instance."""
    page, operator = tab.page, deployment.operator
    wait_until(lambda: all(one["status"] == "AVAILABLE" and not one["claims"] for one in operator.instances()))
    instance_id = str(next(iter(operator.instances()))["instance_id"])
    tab.go(f"#/instances/{instance_id}")
    page.locator(".act", has_text="may get jobs").wait_for()
    assert page.get_by_role("button", name="Release").is_disabled()
    give(tab, page.get_by_role("button", name="Quarantine"), needed=True, reason=MARKUP)
    page.locator(".act", has_text="until an operator releases it").wait_for()
    page.locator("p.reason", has_text=MARKUP).wait_for()
    record = operator.instance(instance_id)
    assert record["status"] == "QUARANTINED"
    assert [one["to"] for one in record["history"][-2:]] == ["AVAILABLE", "QUARANTINED"]
    assert MARKUP in record["history"][-1]["reason"]

    page.get_by_role("link", name="Instances", exact=True).click()
    page.locator("input[name=status][value=QUARANTINED]").check()
    page.locator("tbody tr", has_text=instance_id).get_by_text(MARKUP).wait_for()
    assert "status=QUARANTINED" in page.url

    deployment.reconcile()
    tab.go("#/fleet")
    row = page.get_by_label("Instances that need a person").get_by_role("row").filter(has_text=MARKUP)
    tab.until_shown(row)
    assert instance_id in row.inner_text()
    give(tab, row.get_by_role("button", name="Release"))
    wait_until(lambda: operator.instance(instance_id)["status"] == "AVAILABLE")
    tab.go(f"#/instances/{instance_id}?tab=checks")
    page.get_by_role("button", name="Document").first.click()
    page.locator("article.document", has_text="HEALTHY").wait_for()
    page.locator("article.document summary").click()
    page.locator("article.document pre", has_text='"outcome": "HEALTHY"').wait_for()


def about_the_fleet(tab: Visit, deployment: Deployment) -> None:
    """Pause, permit, close the circuit breaker, and redrive a dead letter."""
    page, operator = tab.page, deployment.operator
    tab.go("#/fleet")
    give(tab, page.get_by_role("button", name="Pause repairs"), needed=True, reason=MARKUP)
    page.get_by_label("Pause", exact=True).get_by_text(MARKUP).wait_for()
    assert operator.fleet()["pause"]["because"] == MARKUP
    give(tab, page.get_by_role("button", name="Permit repairs"))
    page.get_by_text("Repairs are not paused.").wait_for()
    assert operator.fleet()["pause"] is None

    assert operator.fleet()["breaker"]["blamed"] != {}
    deployment.reconcile()
    close = page.get_by_label("Circuit breaker", exact=True).get_by_role("button")
    tab.until_shown(close.and_(page.locator("button:not([disabled])")))
    give(tab, close)
    close.and_(page.locator("button[disabled]")).wait_for()
    assert operator.fleet()["breaker"]["blamed"] == {}

    queues = sandbox.client("sqs", deployment.state["endpoint_url"], deployment.state)
    (url,) = [each for each in queues.list_queues()["QueueUrls"] if "SchedulerDeadLetters" in each]
    queues.send_message(QueueUrl=url, MessageBody="#tick", MessageGroupId="tick", MessageDeduplicationId="one letter")

    def letters() -> int:
        (queue,) = [one for one in operator.dead_letters()["queues"] if one["queue"] == "scheduler"]
        return int(queue["letters"])

    assert letters() == 1
    row = page.get_by_label("Dead letters").get_by_role("row").filter(has_text="scheduler")
    tab.until_shown(row)
    give(tab, row.get_by_role("button", name="Redrive"), needed=True, typed="1")
    page.locator(".announcements p", has_text="1 letters were sent again, 0 stay").wait_for()
    assert letters() == 0
    page.get_by_text("No dead letters.").wait_for()


def about_quotas_and_tokens(tab: Visit, deployment: Deployment) -> None:
    """Change a limit, and revoke a token."""
    page, operator = tab.page, deployment.operator
    operator.put_quotas({"instances": {"ana/*/*": 1}}, operator.quotas()["revision"])
    before = operator.quotas()
    tab.go("#/queue")
    edit, dialog = page.get_by_role("button", name="Change the limits"), page.get_by_role("dialog")
    limit = dialog.get_by_label("Instances", exact=True)
    for leave in (lambda: page.keyboard.press("Escape"), lambda: dialog.get_by_role("button", name="Back").click()):
        edit.click()
        limit.fill("7")
        leave()
        dialog.wait_for(state="detached")
    assert operator.quotas() == before
    edit.click()
    limit.fill("7")
    dialog.get_by_text("1 → 7").wait_for()
    dialog.get_by_role("button", name="Save").evaluate(TWICE)
    dialog.wait_for(state="detached")
    after = operator.quotas()
    assert after["limits"]["instances"] == {"ana/*/*": 7}
    operator.put_quotas({}, after["revision"])

    issued = operator.issue_user_token("dora@example.org", "viewer")
    tab.go("#/users")
    page.locator("tbody tr", has_text="dora@example.org").get_by_role("link").click()
    row = page.locator("tbody tr", has_text=issued["id"])
    give(tab, row.get_by_role("button", name="Revoke"))
    row.get_by_text("revoked").wait_for()
    (listed,) = [one for one in operator.user_tokens("dora@example.org")["tokens"] if one["id"] == issued["id"]]
    assert listed["live"] is False
