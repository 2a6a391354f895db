"""Shared browser contexts: a tab finds its context as new, and what a test leaves in it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.console.browser.windows import Windows

pytestmark = [pytest.mark.slow, pytest.mark.console]
LEFT: dict[str, Callable[[Any], Any]] = {
    "the clock is stopped": lambda page: page.clock.install(),
    "the connection is cut": lambda page: page.context.set_offline(True),
    "cookie kept": lambda page: page.evaluate("document.cookie = 'kept=1'"),
    "tab about:blank": lambda page: page.context.new_page(),
}
"""What a test may leave in a context, and how."""


@contextmanager
def own_windows(browser: Any) -> Iterator[Windows]:
    """Windows of one test, without the contexts that other tests use."""
    windows = Windows(browser)
    try:
        yield windows
    finally:
        windows.end()


def opened(windows: Windows, url: str) -> Any:
    """Return a tab with the console."""
    page = windows.tab()
    page.goto(url)
    return page


def test_what_a_tab_leaves_in_its_context_is_told(browser: Any, examples_url: str) -> None:
    """The next tab has another context then."""
    with own_windows(browser) as windows:
        for told, leave in LEFT.items():
            page = opened(windows, examples_url)
            context = page.context
            leave(page)
            assert windows.close(page) == [told]
            other = windows.tab()
            assert other.context is not context
            assert windows.close(other) == []


def test_a_tab_shares_its_context_and_nothing_else(browser: Any, examples_url: str) -> None:
    """Neither storage nor routes, scripts, media or size. The size and the colours are those that are asked for."""
    with own_windows(browser) as windows:
        page = opened(windows, examples_url)
        context = page.context
        page.evaluate("localStorage.setItem('one', 1); sessionStorage.setItem('one', 1)")
        page.add_init_script("window.planted = 1")
        page.route("**/*", lambda route: route.abort())
        page.emulate_media(forced_colors="active", color_scheme="dark")
        page.set_viewport_size({"width": 300, "height": 300})
        assert windows.close(page) == []
        other = opened(windows, examples_url)
        assert other.context is context
        seen = "[localStorage.length, sessionStorage.length, typeof planted, innerWidth, innerHeight]"
        assert other.evaluate(seen) == [0, 0, "undefined", 1280, 800]
        assert not other.evaluate("matchMedia('(forced-colors: active), (prefers-color-scheme: dark)').matches")
        assert windows.close(other) == []
        dark = windows.tab(390, 700, dark=True)
        assert dark.evaluate("[innerWidth, innerHeight]") == [390, 700]
        assert dark.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        assert windows.close(dark) == []


def test_a_context_of_its_own_is_closed_with_its_tab(browser: Any) -> None:
    """Nobody gets it afterwards, so it may be in any state."""
    with own_windows(browser) as windows:
        page = windows.tab(own=True)
        page.clock.install()
        context = page.context
        assert windows.close(page) == [] and page.is_closed()
        assert context not in browser.contexts
