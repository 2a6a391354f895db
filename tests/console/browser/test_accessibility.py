"""Every page by axe in every variant, by keyboard alone, enlarged, without colours, and while it refreshes itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.console.browser.axe import violations
from tests.console.browser.conftest import Visit
from tests.console.browser.examples import PLACES, places_of_orders

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
FOLLOW = """
() => {
  window.__focused = [];
  document.addEventListener("focusin", ({ target: one }) => {
    const part = one.type === "file" ? "::file-selector-button" : null;
    const styles = [getComputedStyle(one), getComputedStyle(one, part)];
    const ringed = styles.some((style) => style.outlineStyle !== "none" || style.boxShadow !== "none");
    window.__focused.push([one.dataset.step ?? "", ringed, one.outerHTML.slice(0, 120)]);
  });
}
"""
"""Notes each control that gets the focus: its mark, whether a ring shows the focus, and its first characters."""
LEFT_OUT = """
(reached) => [...document.querySelectorAll("[data-step]")]
  .filter((one) => !reached.includes(one.dataset.step)).map((one) => one.outerHTML.slice(0, 120))
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
def tab(examples: Callable[..., Visit]) -> Visit:
    """A tab of an operator."""
    return examples()


def expected(place: str) -> str:
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
def test_no_page_breaks_a_rule(tab: Visit, language: str, theme: str, width: int) -> None:
    """WCAG 2.2 at level AA on every page with content, and no sideways scrolling."""
    turned(tab, language, theme, width)
    found = {}
    for place in PLACES:
        tab.see(place)
        tab.page.locator(expected(place)).first.wait_for()
        found[place] = violations(tab)
        if (sideways := tab.page.evaluate(SIDEWAYS)) > 0:
            found[place].append(f"{sideways} px too wide")
    assert {place: each for place, each in found.items() if each} == {}


@pytest.mark.parametrize(("locale", "dark", "width"), [("en-GB", False, 1280), ("zh-CN", True, 390)])
def test_the_sign_in_breaks_no_rule(opened_tabs: Any, examples_url: str, locale: str, dark: bool, width: int) -> None:
    """Also with its alert."""
    with opened_tabs(examples_url) as open_:
        tab = open_(width, locale, dark=dark)
        tab.page.route("**/sessions", lambda route: route.fulfill(status=401, json={"detail": "this is no token"}))
        sign_in_breaks_no_rule(tab)


def sign_in_breaks_no_rule(tab: Visit) -> None:
    """Show the alert of the sign-in."""
    tab.page.locator("input[name=token]").fill("wrong")
    tab.page.locator("form button[type=submit]").click()
    tab.page.get_by_role("alert").wait_for()
    assert violations(tab) == []


def test_axe_finds_what_is_planted(tab: Visit) -> None:
    """Else an empty list would say nothing."""
    tab.see("#/diagnose")
    tab.page.evaluate("document.querySelector('main').append(document.createElement('button'))")
    assert [each for each in violations(tab) if each.startswith("button-name")]


def test_every_page_is_used_with_the_keyboard_alone(tab: Visit) -> None:
    """Tab reaches every control in its order, each shows that it has the focus, and none holds the focus."""
    page = tab.page
    page.evaluate(FOLLOW)
    for place in PLACES:
        tab.see(place)
        page.locator(expected(place)).first.wait_for()
        page.evaluate("document.activeElement?.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
        steps, pressed = page.evaluate(CONTROLS), 0
        reached: set[str] = set()
        while len(reached) < steps and pressed < 3 * steps + 10:  # a chart that is drawn late adds controls
            presses = steps - len(reached)
            for _ in range(presses):
                page.keyboard.press("Tab")
            pressed += presses
            for step, ringed, element in page.evaluate("window.__focused.splice(0)"):
                if step:
                    assert ringed, f"{place}: no ring on {element}"
                    reached.add(step)
        assert page.evaluate(LEFT_OUT, sorted(reached)) == [], place


def test_a_refresh_leaves_the_focus_where_it_is(tab: Visit) -> None:
    """Also when the answer has changed. The focus is on the last control of the content."""
    page = tab.page
    for place in PLACES:
        tab.see(place)
        page.locator(expected(place)).first.wait_for()
        focused = page.evaluate(FOCUS_LAST)
        tab.refresh_by_script()
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(50)
        kept = page.evaluate("document.activeElement === window.__focused && window.__focused.isConnected")
        assert kept or not focused, f"{place}: {focused}"


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.full)])
def test_forced_colours_leave_every_status_readable(tab: Visit, theme: str) -> None:
    """Words and signs stay, and the text has the system's colours."""
    page = tab.page
    page.emulate_media(forced_colors="active", color_scheme=theme)
    for place in ("#/jobs", *(place for place in places_of_orders() if "/jobs/" not in place)):
        tab.see(place)
        page.locator("main .status").first.wait_for()
        for status in page.locator("main .status").all()[:10]:
            assert status.locator(".sign").inner_text().strip() != ""
            assert status.inner_text().strip() != status.locator(".sign").inner_text().strip()
        assert [each for each in violations(tab) if not each.startswith("color-contrast")] == [], place


def test_the_page_is_readable_at_twice_its_size(tab: Visit) -> None:
    """A window of 1280 px at 200 % has 640 px for the page: nothing is cut off, and nothing scrolls sideways."""
    tab.page.set_viewport_size({"width": 640, "height": 400})
    too_wide = {}
    for place in PLACES:
        tab.see(place)
        tab.page.locator(expected(place)).first.wait_for()
        if (sideways := tab.page.evaluate(SIDEWAYS)) > 0:
            too_wide[place] = sideways
    assert too_wide == {}
