"""The overview and the fleet page in front of a real deployment: what they show, and the effect of each order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.browser.conftest import Deployment, Visit, become_idle
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]


@pytest.fixture
def operator(visit: Callable[..., Visit], deployment: Deployment) -> Visit:
    """A tab of an operator, after the reconciler has written a map of the three instances."""
    tab = visit()
    tab.sign_in(deployment.state["operator_token"])

    def mapped() -> bool:
        tab.page.get_by_role("button", name="Refresh now").click()
        tab.page.wait_for_timeout(500)
        return tab.page.locator(".heatmap .area canvas[data-drawn]").count() == 1

    wait_until(mapped)
    return tab


def order(tab: Visit, name: str, reason: str = "") -> None:
    """Give an order: open its dialog, and send it."""
    tab.page.get_by_role("button", name=name, exact=True).click()
    dialog = tab.page.get_by_role("dialog")
    if reason:
        dialog.locator("input[name=reason]").fill(reason)
    dialog.locator("button[type=submit]").click()
    dialog.wait_for(state="detached")


def test_the_map_shows_the_instances_of_the_deployment(operator: Visit, deployment: Deployment) -> None:
    """Three cells that are free, with a count and the time of the snapshot."""
    become_idle(deployment)
    section = operator.page.get_by_label("Fleet map", exact=True)

    def is_free() -> bool:
        operator.page.get_by_role("button", name="Refresh now").click()
        return section.locator(".legend").inner_text().split()[:2] == ["free", "3"]

    wait_until(is_free)
    assert "as of" in operator.page.locator(".headline").inner_text()
    assert "0 / 24" in operator.page.get_by_label("GPUs", exact=True).inner_text()


def test_repairs_are_paused_and_permitted_through_the_page(operator: Visit, deployment: Deployment) -> None:
    """The effect is there once, with the operator's reason; "back" and Escape do nothing."""
    operator.go("#/fleet")
    page = operator.page
    page.get_by_role("button", name="Pause repairs").click()
    page.locator("dialog .back:focus").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.get_by_role("button", name="Pause repairs").click()
    assert page.get_by_role("dialog").locator("button[type=submit]").is_disabled()  # without a reason
    page.get_by_role("button", name="Back").click()
    assert deployment.operator.fleet()["pause"] is None
    order(operator, "Pause repairs", "a new driver")
    page.get_by_text("a new driver").wait_for()
    assert deployment.operator.fleet()["pause"]["because"] == "a new driver"
    order(operator, "Permit repairs")
    page.get_by_text("Repairs are not paused.").wait_for()
    assert deployment.operator.fleet()["pause"] is None
    posted = [url for method, url, _ in operator.requests if method == "POST" and "/fleet/" in url]
    assert [url.rsplit("/", 1)[1] for url in posted] == ["pause", "unpause"]


def test_an_instance_that_needs_a_person_is_released_from_the_fleet_page(
    operator: Visit, deployment: Deployment
) -> None:
    """It is listed with its reason after the next cycle of the reconciler."""
    instance_id = str(next(iter(deployment.operator.instances()))["instance_id"])
    deployment.operator.quarantine(instance_id, "loose cable")
    operator.go("#/fleet")
    row = operator.page.get_by_label("Instances that need a person").get_by_role("row").filter(has_text="loose cable")

    def listed() -> bool:
        operator.page.get_by_role("button", name="Refresh now").click()
        operator.page.wait_for_timeout(500)
        return bool(row.count() == 1)

    wait_until(listed)
    assert instance_id in row.inner_text()
    row.get_by_role("button", name="Release").click()
    operator.page.get_by_role("dialog").locator("button[type=submit]").click()
    wait_until(lambda: deployment.operator.instance(instance_id)["status"] != "QUARANTINED")


def test_a_viewer_sees_the_page_and_gives_no_order(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The buttons are there and say what they need; the page asks for nothing that a viewer may not read."""
    tab = visit()
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.go("#/fleet")
    button = tab.page.get_by_role("button", name="Pause repairs")
    button.wait_for()
    assert button.is_disabled() and "operator" in str(button.get_attribute("title"))
    assert not [url for _, url, _ in tab.requests if url.endswith("/dead-letters")]
