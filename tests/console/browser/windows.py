"""Tabs of shared browser contexts. A tab in a context that is open costs 1 s of processor time, a new context 2.5 s.

Each test has its own tabs, and with them its own document, session, routes, scripts and media. The tabs of a language
and a density share one context. After each tab its local storage, its cache and its permissions are emptied. A cookie,
an open tab, a stopped clock or a cut connection fails the test, and no other test gets that context.

A test that stops the clock, cuts the connection, grants a permission or records an archive changes its whole context.
Its tabs are opened with `own=True`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

AS_NEW = """
() => [
  ...(Date.now.toString().includes("[native code]") ? [] : ["the clock is stopped"]),
  ...(navigator.onLine ? [] : ["the connection is cut"]),
]
"""
"""What a test has changed in the whole context: the clock and the connection."""
EMPTY = "() => { if (origin !== 'null') localStorage.clear(); }"
"""Empties the storage that tabs share. A blank tab has none, and the storage of a session ends with its tab."""


@dataclass(frozen=True)
class Window:
    """A shared context. `idle` is a blank tab that keeps its window open, and `cdp` the connection to it."""

    context: Any
    idle: Any
    cdp: Any

    @classmethod
    def of(cls, context: Any) -> Window:
        """Return the window of a new context."""
        idle = context.new_page()
        return cls(context, idle, context.new_cdp_session(idle))

    def remains(self) -> list[str]:
        """Empty the cache. Return what the closed tabs have left in the context."""
        self.cdp.send("Network.clearBrowserCache")
        self.context.clear_permissions()
        tabs = [page.url for page in self.context.pages if page is not self.idle]
        cookies = [str(cookie["name"]) for cookie in self.context.cookies()]
        return [*self.idle.evaluate(AS_NEW), *(f"cookie {name}" for name in cookies), *(f"tab {url}" for url in tabs)]


class Windows:
    """Opens tabs, and takes them back."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self._shared: dict[tuple[str, float], Window] = {}

    def tab(
        self,
        width: int = 1280,
        height: int = 800,
        *,
        locale: str = "en-GB",
        dark: bool = False,
        ratio: float = 1,
        own: bool = False,
        **further: Any,
    ) -> Any:
        """Return a new blank tab.

        Args:
            width: CSS pixels.
            height: CSS pixels.
            locale: language of the browser.
            dark: whether the user prefers dark colours.
            ratio: pixels of the screen for one CSS pixel.
            own: whether the tab has a context of its own. `further` needs one.
            further: options of the context.
        """
        of_context = {"locale": locale, "device_scale_factor": ratio, **further}
        size = {"width": width, "height": height}
        if own or further:
            page = self._browser.new_context(viewport=size, **of_context).new_page()
        else:
            if (locale, ratio) not in self._shared:
                self._shared[locale, ratio] = Window.of(self._browser.new_context(viewport=size, **of_context))
            page = self._shared[locale, ratio].context.new_page()
            page.set_viewport_size(size)
        page.emulate_media(color_scheme="dark" if dark else "light")
        return page

    def close(self, *tabs: Any) -> list[str]:
        """Close the tabs of a test. Return what they have left in shared contexts, which are closed then, too."""
        from playwright.sync_api import Error  # noqa: PLC0415  # only these tests need the browser's driver

        found = []
        for key, window in list(self._shared.items()):
            own = [tab for tab in tabs if tab.context is window.context]
            if not own:
                continue
            try:
                for tab in own:
                    tab.evaluate(EMPTY)
                    tab.close()
                remains = window.remains()
            except Error as error:  # a tab that has crashed; the other contexts are closed, too
                remains = [f"{type(error).__name__}: {error}"]
            if remains:
                del self._shared[key]
                window.context.close()
            found += remains
        for context in {id(tab.context): tab.context for tab in tabs if not tab.is_closed()}.values():
            context.close()
        return found

    def end(self) -> None:
        """Close the shared contexts."""
        for window in self._shared.values():
            window.context.close()
        self._shared.clear()
