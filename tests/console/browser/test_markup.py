"""Markup in every text that an answer has: it is shown as text, and nothing of it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browser.conftest import Visit
from tests.console.browser.examples import PLACES, answer_with_examples
from tests.console.browser.healing import MARKUP

pytestmark = [pytest.mark.slow, pytest.mark.console]
FREE = (
    *("reason", "because", "user", "workload", "sentence", "text", "message", "note", "subject", "issued_by", "by"),
    *("command", "checkpoint_dir", "group", "rack", "evidence", "where", "detail", "image", "entrypoint", "asked_by"),
)
"""Fields whose content a person or a program chooses."""


def poisoned(value: Any, name: str = "") -> Any:
    """Return an answer with markup in every text that a person or a program chooses."""
    if isinstance(value, dict):
        return {key: poisoned(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [poisoned(each, name) for each in value]
    return f"{value} {MARKUP}" if isinstance(value, str) and name in FREE else value


def test_markup_is_shown_as_text_on_every_page(opened_tabs: Any, examples_url: str) -> None:
    """Whatever the API lets through: names, reasons, lines of a log. The policy has nothing to forbid."""
    shown: dict[str, bool] = {}
    with opened_tabs(examples_url) as open_:
        tab = open_()
        answer_with_examples(tab.page, alter=poisoned)
        tab.sign_in("any text")
        for place in PLACES:
            tab.see(place)
            if place.endswith(("tab=log", "tab=why", "tab=history")) or "/incidents/" in place:
                tab.page.locator("main").get_by_text(MARKUP).first.wait_for()
            shown[place] = MARKUP in tab.page.locator("main").inner_text()
            assert tab.page.locator("main img, main script").count() == 0, place
            assert tab.page.evaluate("window.__ran") is None, place
        assert sum(shown.values()) >= len(shown) // 2, shown
        assert tab.violated == []


def test_the_watch_for_markup_can_fail(examples: Callable[..., Visit]) -> None:
    """The same text as markup tries to run: the policy forbids it, and the visit records that."""
    tab = examples()
    tab.page.evaluate(
        """(text) => {
          const policy = Object.getOwnPropertyDescriptor(Element.prototype, "innerHTML");
          try { policy.set.call(document.body, text); } catch { return; }
        }""",
        MARKUP,
    )
    tab.page.wait_for_function("() => window.__violations.length > 0")
    found = list(tab.violated)
    tab.violated.clear()
    assert any("trusted-types" in each for each in found), found
