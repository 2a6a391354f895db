"""The list of instances and the page of an instance: what they show, and what their orders do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from sandbox import sandbox
from tests.console.browser.conftest import Deployment, Visit, become_idle
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
MARKUP = "<img src=x onerror=alert(1)>"


@pytest.fixture
def instance(deployment: Deployment) -> Iterator[str]:
    """An available instance without a job, which is available again after the test."""
    become_idle(deployment)
    found = next(one["instance_id"] for one in deployment.operator.instances() if one["status"] == "AVAILABLE")
    yield found
    if deployment.operator.instance(found)["status"] == "QUARANTINED":
        deployment.operator.release(found)
    wait_until(lambda: deployment.operator.instance(found)["status"] == "AVAILABLE")


def orders_sent(tab: Visit) -> list[str]:
    """The last part of the address of each order about an instance that the tab has sent."""
    return [url.rsplit("/", 1)[-1] for method, url, _ in tab.requests if method == "POST" and "/instances/" in url]


def test_an_instance_is_quarantined_and_released_through_the_page(
    visit: Callable[..., Visit], deployment: Deployment, instance: str
) -> None:
    """Each order has its effect once; the way back and Escape send nothing. The reason is text on every page."""
    tab = visit()
    tab.go(f"#/instances/{instance}")
    tab.sign_in(deployment.state["operator_token"])
    page, status = tab.page, lambda: deployment.operator.instance(instance)["status"]
    page.locator(".act", has_text="may get jobs").wait_for()
    assert page.get_by_role("button", name="Release").is_disabled()

    page.get_by_role("button", name="Quarantine").click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    assert "No job runs on it" in dialog.inner_text()
    assert dialog.get_by_role("button", name="Quarantine").is_disabled(), "without a reason"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert (orders_sent(tab), status()) == ([], "AVAILABLE")

    page.get_by_role("button", name="Quarantine").click()
    dialog.locator("input[name=reason]").fill(MARKUP)
    dialog.get_by_role("button", name="Quarantine").evaluate("(button) => { button.click(); button.click(); }")
    dialog.wait_for(state="detached")
    assert (orders_sent(tab), status()) == (["quarantine"], "QUARANTINED")
    changes = [one for one in deployment.operator.instance(instance)["history"] if one["to"] == "QUARANTINED"]
    assert len([one for one in changes if MARKUP in one["reason"]]) == 1
    page.locator(".act", has_text="until an operator releases it").wait_for()
    page.locator("p.reason", has_text=MARKUP).wait_for()

    page.get_by_role("link", name="Instances").click()
    page.locator("input[name=status][value=QUARANTINED]").check()
    row = page.locator("tbody tr", has_text=instance)
    assert MARKUP in row.inner_text() and "status=QUARANTINED" in page.url
    assert page.locator("main img").count() == 0
    row.get_by_role("link", name=instance).click()

    page.get_by_role("button", name="Release").click()
    dialog.get_by_role("button", name="Release").click()
    dialog.wait_for(state="detached")
    assert orders_sent(tab) == ["quarantine", "release"]
    wait_until(lambda: status() == "AVAILABLE")
    page.locator(".head .status", has_text="available").wait_for()

    page.get_by_role("link", name="Checks").click()
    page.get_by_role("button", name="Document").first.click()
    page.locator("article.document", has_text="HEALTHY").wait_for()
    page.locator("article.document summary").click()
    document = page.locator("article.document pre").inner_text()
    assert '"outcome": "HEALTHY"' in document and instance in document


def test_a_fault_is_shown_with_its_check(visit: Callable[..., Visit], deployment: Deployment, instance: str) -> None:
    """The history tells why it was rebooted, and the document of the check has the finding."""
    sandbox.fault(deployment.directory, instance, "xid79")
    tab = visit()
    tab.go(f"#/instances/{instance}?tab=history")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    page = tab.page
    page.locator("tbody tr", has_text="XID 79").first.wait_for()
    wait_until(lambda: deployment.operator.instance(instance)["status"] == "AVAILABLE")
    page.get_by_role("link", name="Checks").click()
    failed = page.locator("tbody tr", has_text="REBOOT").last
    failed.get_by_role("button", name="Document").click()
    page.locator("article.document td", has_text="79").first.wait_for()


def test_a_viewer_sees_an_instance_and_can_order_nothing(
    visit: Callable[..., Visit], deployment: Deployment, instance: str
) -> None:
    """Each button is disabled and says why; no view of it errs; tokens are for operators. Charts draw reports."""
    report: dict[str, Any] = {"gpus": [{"uuid": f"GPU-{number}", "utilization": 90 + number} for number in range(8)]}
    report["token"] = deployment.state["node_tokens"][instance]
    httpx.post(f"{deployment.state['api_url']}/api/v1/report_gpu/", json=report).raise_for_status()
    tab = visit()
    tab.go(f"#/instances/{instance}")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    page = tab.page
    page.locator(".orders button").first.wait_for()
    for button in page.locator(".orders button").all():
        assert button.is_disabled() and "Sign in as" in str(button.get_attribute("title"))
    for name in ("GPUs", "Checks", "Jobs", "Tokens", "History"):
        page.locator("nav.tabs").get_by_role("link", name=name, exact=True).click()
        page.locator(f"a[aria-current=page]:text-is('{name}')").wait_for()
        assert page.get_by_role("alert").count() == 0
        if name == "GPUs":
            page.locator("td", has_text="97 %").first.wait_for()
            page.locator("figure.chart canvas").first.wait_for()
            page.locator("details summary", has_text="Values as a table").click()
            assert "97 %" in page.locator("details tbody").inner_text()
            page.get_by_role("link", name="7 days").click()  # the longest span that the API accepts
            page.locator("a[aria-current=page]:text-is('7 days')").wait_for()
            page.locator("figure.chart canvas").first.wait_for()
            assert page.get_by_role("alert").count() == 0
        if name == "Tokens":
            page.get_by_text("Sign in as an operator to see the tokens").wait_for()
    assert not [url for _, url, _ in tab.requests if url.endswith("/tokens")]
