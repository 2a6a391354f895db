"""The overview and the fleet page in front of a real deployment: what they show, and the effect of each order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.browser.conftest import INSTANCES, Deployment, Visit, become_idle
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]


@pytest.fixture
def operator(visit: Callable[..., Visit], deployment: Deployment) -> Visit:
    """A tab of an operator, after the reconciler has written a map of the instances."""
    tab = visit()
    tab.sign_in(deployment.state["operator_token"])

    deployment.reconcile()

    def mapped() -> bool:
        tab.page.get_by_role("button", name="Refresh now").click()
        tab.page.wait_for_timeout(200)
        return tab.page.locator(".heatmap .area canvas[data-drawn]").count() == 1

    wait_until(mapped)
    return tab


def test_the_map_shows_the_instances_of_the_deployment(operator: Visit, deployment: Deployment) -> None:
    """Cells that are free, with a count and the time of the snapshot."""
    become_idle(deployment)
    deployment.reconcile()
    section = operator.page.get_by_label("Fleet map", exact=True)

    def is_free() -> bool:
        operator.page.get_by_role("button", name="Refresh now").click()
        if "as of" not in operator.page.locator("main > .headline").inner_text():
            return False  # the overview reads another snapshot than the map
        return section.locator(".legend").inner_text().split()[:2] == ["free", str(INSTANCES)]

    wait_until(is_free)
    assert "as of" in operator.page.locator("main > .headline").inner_text()
    operator.until_shown(operator.page.get_by_label("GPUs", exact=True).get_by_text(f"0 / {8 * INSTANCES}"))


def test_a_viewer_sees_the_page_and_gives_no_order(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The buttons are there and say what they need; the page asks for nothing that a viewer may not read."""
    tab = visit()
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.go("#/fleet")
    button = tab.page.get_by_role("button", name="Pause repairs")
    button.wait_for()
    assert button.is_disabled() and "operator" in str(button.get_attribute("title"))
    assert not [url for _, url, _ in tab.requests if url.endswith("/dead-letters")]
