"""Every page by axe in every variant, by keyboard alone, enlarged, without colours, and while it refreshes itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from console.fake.model import Size
from console.fake.server import running
from tests.console.browser.axe import violations
from tests.console.browser.conftest import Deployment, Visit
from tests.console.browser.healing import Healed
from tests.console.browser.pages import places

pytestmark = [pytest.mark.slow, pytest.mark.console]
VARIANTS = list(product(("en", "zh"), ("light", "dark"), (1280, 390)))
DIAGONAL = [("en", "light", 1280), ("zh", "dark", 390)]
"""Two variants in which each language, theme and width occurs."""
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CONTROLS = """
() => {
  const drawn = (one) => one.checkVisibility({ visibilityProperty: true });
  const shown = (one) => drawn(one) && !one.matches(":disabled") && one.tabIndex >= 0;
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
  const controls = all.filter((one) => shown(one) && (one.type !== "radio" || one.checked));
  controls.forEach((one, at) => (one.dataset.step = String(at)));
  return controls.length;
}
"""
"""Marks and counts the controls of the page. Of a group of radio buttons, Tab reaches the chosen one."""
FOCUSED = """
() => {
  const one = document.activeElement;
  const part = one.type === "file" ? "::file-selector-button" : null;
  const styles = [getComputedStyle(one), getComputedStyle(one, part)];
  const ringed = styles.some((style) => style.outlineStyle !== "none" || style.boxShadow !== "none");
  return [one.dataset.step ?? "", ringed, one.outerHTML.slice(0, 120)];
}
"""
"""The mark of the control with the focus, whether a ring shows that, and its first characters."""
LEFT_OUT = """
(reached) => [...document.querySelectorAll("[data-step]")]
  .filter((one) => !reached.includes(one.dataset.step)).map((one) => one.outerHTML.slice(0, 120))
"""
PATTERNS = """
() => Object.fromEntries([...document.querySelectorAll(".heatmap .legend canvas")].map((canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return [canvas.dataset.look, data.filter((_, at) => at % 4 === 3).join("")];
}))
"""
"""Which pixels of each square of the legend are inked, whatever their colour."""
SIGNS = """
() => [...document.querySelectorAll(".heatmap tbody .status")]
  .map((one) => [one.title, one.querySelector(".sign").textContent])
"""
FOCUS_LAST = """
() => {
  const controls = "a[href], button:enabled, input:enabled, [tabindex='0']";
  const all = [...document.querySelectorAll("main :is(" + controls + ")")];
  const last = all.filter((one) => one.checkVisibility()).at(-1);
  last?.focus();
  window.__focused = last;
  return last?.outerHTML.slice(0, 120) ?? "";
}
"""


def turned(tab: Visit, language: str, theme: str, width: int) -> None:
    """Give a tab a language, a theme and a width, without a reload."""
    page = tab.page
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=theme)
    if page.evaluate("document.documentElement.lang") != language:
        page.locator("header.bar button[lang]").click()
    page.locator(f"html[lang={language}]").wait_for()


@pytest.fixture
def tab(visit: Callable[..., Visit], deployment: Deployment) -> Visit:
    """A tab of an operator."""
    opened = visit()
    opened.sign_in(deployment.token)
    return opened


def expected(place: str, healed: Healed) -> str:
    """Return a selector of the content that a page must have before it is judged; "" for the heading alone."""
    if "/incidents/" in place:
        return ".thread li"
    if "tab=timeline" in place:
        return ".gantt .piece"
    if "tab=log" in place:
        return "pre.log"
    if place == "#/":
        return ".heatmap .area canvas[data-drawn]"
    if "tab=gpus" in place:
        return "main table, main figure, main p"
    return {
        "#/jobs": "table.rows tbody tr",
        "#/incidents": "table.rows tbody tr",
        "#/instances": "table.rows tbody tr",
    }.get(place, "main h1")


@pytest.mark.parametrize(
    ("language", "theme", "width"),
    [pytest.param(*each, marks=() if each in DIAGONAL else pytest.mark.full) for each in VARIANTS],
)
def test_no_page_breaks_a_rule(tab: Visit, healed: Healed, language: str, theme: str, width: int) -> None:
    """WCAG 2.2 at level AA on every page with content, and no sideways scrolling."""
    turned(tab, language, theme, width)
    found = {}
    for place in places(healed):
        tab.see(place)
        tab.page.locator(expected(place, healed)).first.wait_for()
        found[place] = violations(tab)
        if (sideways := tab.page.evaluate(SIDEWAYS)) > 0:
            found[place].append(f"{sideways} px too wide")
    assert {place: each for place, each in found.items() if each} == {}


@pytest.mark.parametrize(("locale", "dark", "width"), [("en-GB", False, 1280), ("zh-CN", True, 390)])
def test_the_sign_in_breaks_no_rule(visit: Callable[..., Visit], locale: str, dark: bool, width: int) -> None:
    """Also with its alert."""
    tab = visit(width, locale, dark=dark)
    tab.page.locator("input[name=token]").fill("wrong")
    tab.page.locator("form button[type=submit]").click()
    tab.page.get_by_role("alert").wait_for()
    assert violations(tab) == []


def test_axe_finds_what_is_planted(tab: Visit) -> None:
    """Else an empty list would say nothing."""
    tab.see("#/diagnose")
    tab.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [each for each in violations(tab) if each.startswith("button-name")]


def test_every_page_is_used_with_the_keyboard_alone(tab: Visit, healed: Healed) -> None:
    """Tab reaches every control in its order, each shows that it has the focus, and none holds the focus."""
    page = tab.page
    for place in places(healed):
        tab.see(place)
        page.locator(expected(place, healed)).first.wait_for()
        page.evaluate("document.activeElement?.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
        steps = page.evaluate(CONTROLS)
        reached: set[str] = set()
        for _ in range(3 * steps + 10):  # a chart that is drawn late adds controls
            if len(reached) == steps:
                break
            page.keyboard.press("Tab")
            step, ringed, element = page.evaluate(FOCUSED)
            if step:
                assert ringed, f"{place}: no ring on {element}"
                reached.add(step)
        assert page.evaluate(LEFT_OUT, sorted(reached)) == [], place


def test_a_refresh_leaves_the_focus_where_it_is(tab: Visit, healed: Healed) -> None:
    """Also when the answer has changed. The focus is on the last control of the content."""
    page = tab.page
    for place in places(healed):
        tab.see(place)
        page.locator(expected(place, healed)).first.wait_for()
        focused = page.evaluate(FOCUS_LAST)
        tab.refresh_by_script()
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(50)
        kept = page.evaluate("document.activeElement === window.__focused && window.__focused.isConnected")
        assert kept or not focused, f"{place}: {focused}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_forced_colours_leave_every_status_readable(tab: Visit, healed: Healed, theme: str) -> None:
    """Words and signs stay, and the text has the system's colours."""
    page = tab.page
    page.emulate_media(forced_colors="active", color_scheme=theme)
    for place in ("#/jobs", f"#/incidents/{healed.incident_id}", f"#/instances/{healed.sick}?tab=history"):
        tab.see(place)
        page.locator("main .status").first.wait_for()
        for status in page.locator("main .status").all()[:10]:
            assert status.locator(".sign").inner_text().strip() != ""
            assert status.inner_text().strip() != status.locator(".sign").inner_text().strip()
        assert [each for each in violations(tab) if not each.startswith("color-contrast")] == [], place


def test_the_page_is_readable_at_twice_its_size(tab: Visit, healed: Healed) -> None:
    """A window of 1280 px at 200 % has 640 px for the page: nothing is cut off, and nothing scrolls sideways."""
    tab.page.set_viewport_size({"width": 640, "height": 400})
    too_wide = {}
    for place in places(healed):
        tab.see(place)
        tab.page.locator(expected(place, healed)).first.wait_for()
        if (sideways := tab.page.evaluate(SIDEWAYS)) > 0:
            too_wide[place] = sideways
    assert too_wide == {}


def test_statuses_differ_without_their_colours(opened_tabs: Any) -> None:
    """In the legend of the map, each status has a pattern of its own; in the table, a sign of its own."""
    with running(Size(instances=2_000, jobs=200, events_a_second=0)) as fake, opened_tabs(fake.url) as open_:
        tab = open_()
        tab.sign_in("any text")
        tab.page.locator(".heatmap .area canvas[data-drawn]").wait_for()
        patterns = tab.page.evaluate(PATTERNS)
        assert len(patterns) >= 6 and len(set(patterns.values())) == len(patterns)
        tab.page.get_by_role("button", name="Show as a table").click()
        tab.page.locator(".heatmap tbody .status").first.wait_for()
        signs = dict(tab.page.evaluate(SIGNS))
        assert len(signs) >= 2 and len(set(signs.values())) == len(signs)
