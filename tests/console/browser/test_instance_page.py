"""The list of instances and the page of an instance: what they show, and what their orders do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

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
        tab.settle()
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
