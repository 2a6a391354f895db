"""Every page in front of recorded answers: in Chinese without English labels, and on a telephone without cut parts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.console.browser.conftest import Visit
from tests.console.browser.examples import PLACES, answer_with_examples

pytestmark = [pytest.mark.slow, pytest.mark.console]
PHONE = {"width": 390, "height": 844}
LABELS = """
() => {
  const named = ["aria-label", "placeholder"];
  const records = ["instances", "jobs", "incidents", "users"].map((kind) => `a[href^="#/${kind}/"]`);
  const skipped = ["noscript, script, [lang=en], code, pre, .id, time, .who", ...records].join(", ");
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  for (let node = walk.nextNode(); node !== null; node = walk.nextNode()) {
    const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
    if (element.closest(skipped) !== null || !element.checkVisibility()) continue;
    if (node.nodeType === Node.TEXT_NODE) found.push(node.textContent);
    else for (const name of named) found.push(node.getAttribute(name) ?? "");
  }
  return found;
}
"""
"""The texts and names of the page that are neither marked as English nor names of records."""
WORD = re.compile(r"[A-Za-z][A-Za-z_-]+")
NAMES = (
    *("gpu-recovery", "GPU", "CPU", "API", "ECS", "EC", "PCI", "PCIe", "XID", "ECC", "ETTR", "JSON", "YAML"),
    *("Markdown", "KiB", "GiB", "DRAINING", "Ray", "UTC", "GMT", "NAME", "value", "id", "rank", "agent", "Tab"),
)
"""Names that Chinese texts keep: of products, formats and units, and terms of the glossary without a translation."""
DATA = re.compile(
    r"[im]+-[0-9a-f]{8,}|(?:\S*/)?\S*sft-\d\S*|team-vision/\S+|use1-az\d|us-east-1\w?|rack[ -]\d+|a100|GPU-\w+"
    r"|\b(?:ana|bob|eve|low|job)\S*|laptop|\b[0-9a-f]{6,}\b|user\d+|fake operator|H100|NVIDIA|\d+:\S*"
)
"""Names of records in texts that the page makes of them."""
WIDTHS = """
() => {
  const page = document.documentElement;
  const found = page.scrollWidth > page.clientWidth ? [`the page: ${page.scrollWidth} px`] : [];
  for (const one of document.querySelectorAll("main button, main a[role=button], header button")) {
    if (!one.checkVisibility({ visibilityProperty: true })) continue;
    const { left, right, height } = one.getBoundingClientRect();
    if (left < 0 || right > page.clientWidth) found.push(`outside: ${one.outerHTML.slice(0, 90)}`);
    if (height < 43.5 && !one.matches("header *")) found.push(`${height} px high: ${one.outerHTML.slice(0, 90)}`);
  }
  for (const one of document.querySelectorAll("main table")) {
    const box = one.closest(".scroll") ?? one;
    if (box.getBoundingClientRect().right > page.clientWidth + 1) found.push(`a table: ${box.outerHTML.slice(0, 90)}`);
  }
  for (const one of document.querySelectorAll("main p, main dd, main td, main li, main h1, main h2, main label")) {
    if (one.closest("pre, .scroll, .unseen, .heatmap .card") !== null || !one.checkVisibility()) continue;
    const { display, overflowX } = getComputedStyle(one);
    if (one.scrollWidth > one.clientWidth + 1 && display !== "inline" && overflowX === "visible")
      found.push(`text runs out: ${one.outerHTML.slice(0, 90)}`);
  }
  return found;
}
"""
"""What is wider than the screen, outside of it, or too low for a finger."""


def walked(opened_tabs: Any, url: str, locale: str) -> dict[str, tuple[list[str], list[str]]]:
    """Return the words that are neither Chinese nor names, and what is too wide, of every page on a telephone."""
    found = {}
    with opened_tabs(url) as open_:
        tab: Visit = open_(locale=locale, **PHONE)
        answer_with_examples(tab.page)
        tab.sign_in("any text")
        for place in PLACES:
            tab.see(place)
            tab.page.wait_for_load_state("networkidle")
            assert tab.page.locator("[role=alert]").count() == 0, (place, tab.page.locator("main").inner_text())
            texts = [DATA.sub("", text) for text in tab.page.evaluate(LABELS)]
            words = sorted({word for text in texts for word in WORD.findall(text)} - {*NAMES})
            found[place] = (words, tab.page.evaluate(WIDTHS))
    return found


@pytest.fixture(scope="module")
def chinese(opened_tabs: Any, examples_url: str) -> dict[str, tuple[list[str], list[str]]]:
    """Every page in Chinese."""
    return walked(opened_tabs, examples_url, "zh-CN")


def test_a_chinese_page_has_no_label_in_another_language(chinese: dict[str, tuple[list[str], list[str]]]) -> None:
    """Codes of the API are translated. Sentences of the server are marked as English."""
    assert {place: words for place, (words, _) in chinese.items() if words} == {}


def test_every_page_fits_a_telephone(chinese: dict[str, tuple[list[str], list[str]]]) -> None:
    """No page scrolls sideways, no text runs out of its box, and every button can be reached with a finger."""
    assert {place: wide for place, (_, wide) in chinese.items() if wide} == {}


@pytest.mark.full
def test_every_english_page_fits_a_telephone(opened_tabs: Any, examples_url: str) -> None:
    """English words are longer than Chinese."""
    assert {place: wide for place, (_, wide) in walked(opened_tabs, examples_url, "en-GB").items() if wide} == {}
