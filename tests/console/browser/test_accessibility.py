"""Every page in both languages, both themes and at two widths: WCAG 2.2 AA by axe, and no sideways scrolling."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.console.browser.conftest import Deployment, Visit

pytestmark = [pytest.mark.slow, pytest.mark.console]
AXE = Path(__file__).parents[3] / "console/node_modules/axe-core/axe.min.js"
PLACES = (
    *("#/", "#/jobs", "#/queue", "#/submit", "#/instances", "#/incidents", "#/fleet", "#/users", "#/users/ana"),
    "#/diagnose",
)
INSTANCE_TABS = ("history", "gpus", "checks", "jobs", "tokens")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def violations(tab: Visit) -> list[str]:
    """What axe finds on the page: rule and first element of each violation."""
    result = tab.page.evaluate("(tags) => axe.run(document, {runOnly: {type: 'tag', values: tags}})", RULES)
    return [f"{each['id']}: {each['nodes'][0]['html'][:160]}" for each in result["violations"]]


@pytest.mark.parametrize(("locale", "dark", "width"), list(product(("en-GB", "zh-CN"), (False, True), (1280, 390))))
def test_no_page_breaks_a_rule(
    visit: Callable[..., Visit], deployment: Deployment, locale: str, dark: bool, width: int
) -> None:
    """The sign-in, and then every page."""
    tab = visit(width, locale, dark=dark)
    tab.page.locator("input[name=token]").wait_for()
    found = {"sign in": (tab.page.evaluate(AXE.read_text()), violations(tab))[1]}
    tab.sign_in(deployment.state["operator_token"])
    one = next(deployment.operator.instances())["instance_id"]
    for place in (*PLACES, *(f"#/instances/{one}?tab={name}" for name in INSTANCE_TABS)):
        tab.go(place)
        tab.page.locator("main h1").first.wait_for()
        tab.page.locator(".skeleton").first.wait_for(state="detached")
        found[place] = violations(tab)
        sideways = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert sideways <= 0, place
    assert {place: each for place, each in found.items() if each} == {}
