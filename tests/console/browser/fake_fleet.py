"""Tabs in front of a fake deployment whose clock stands still: nothing happens in it unless a test lets time pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from console.fake.server import FakeServer
from tests.console.browser.visit import Visit, checked_visits
from tests.console.browser.windows import Windows
from tests.sandbox.patience import wait_until

OVERVIEW, MAP, MEMBERS, EVENTS = (
    f"GET /api/v2/{path}" for path in ("overview", "fleet/map", "fleet/members", "events")
)
DRAWN = ".heatmap .area canvas[data-drawn]"


@dataclass
class StandingClock:
    """The time of the deployment: the present time when the clock was made, until `passes` is called."""

    now: datetime

    @classmethod
    def of_today(cls) -> StandingClock:
        """Return a clock that stands at the present second."""
        return cls(datetime.now(UTC).replace(microsecond=0))

    def __call__(self) -> datetime:
        """Return the time of the deployment."""
        return self.now

    def passes(self, seconds: float) -> None:
        """Let time pass, with the events that happen in it."""
        self.now += timedelta(seconds=seconds)


Open = Callable[..., Visit]


@contextmanager
def tabs(windows: Windows, fake: FakeServer) -> Iterator[Open]:
    """Open tabs and sign in. A page that throws, breaks the policy, or keeps a token where it must not, fails.

    The function `open_` takes the place, the width, the pixels of the device for one CSS pixel, whether the browser's
    clock is the test's, and a function that prepares the page before it is opened.
    """
    with checked_visits(windows) as opened:

        def open_(
            place: str = "#/",
            width: int = 1280,
            ratio: float = 1,
            *,
            clocked: bool = False,
            prepare: Callable[[Any], None] = lambda page: None,
        ) -> Visit:
            tab = Visit.of(windows.tab(width, 900, ratio=ratio, own=clocked), fake.url)
            opened.append(tab)
            if clocked:
                tab.page.clock.install()
            prepare(tab.page)
            tab.go(place)
            tab.sign_in("any text")
            return tab

        yield open_


def asked(tab: Visit) -> Counter[str]:
    """Return how often the tab has asked for what, by method and path. It counts what the tab has sent."""
    tab.page.evaluate("0")  # the driver delivers events during its own calls only
    return Counter(f"{method} {urlsplit(url).path}" for method, url, _ in tab.requests)


def refresh(tab: Visit) -> None:
    """Press "refresh now", and wait until the map, the overview and the feed have answered."""
    wanted = [f"/api/v2/{path}" for path in ("overview", "fleet/map", "events")]
    paths: list[str] = []
    # A 304 has no body to finish with, so the beginning of each answer is waited for.
    tab.page.on("response", lambda response: paths.append(urlsplit(response.url).path))
    tab.page.get_by_role("button", name="Refresh now").click()

    def have_answered() -> bool:
        tab.page.evaluate("0")
        return set(wanted) <= set(paths)

    wait_until(have_answered)
    tab.page.wait_for_timeout(50)  # the page draws in the next frames


def canvas(tab: Visit) -> Any:
    """The canvas of the map, once it is drawn."""
    found = tab.page.locator(DRAWN)
    found.wait_for()
    return found


def seek(tab: Visit, instance_id: str) -> Any:
    """Put the cursor of the map on an instance; return the element that describes the instance there."""
    tab.page.locator("input[type=search]").fill(instance_id)
    cursor = tab.page.locator(f".heatmap .cursor[aria-label*='{instance_id}']")
    cursor.wait_for(state="attached")
    return cursor


def elements(tab: Visit) -> int:
    """The number of elements of the page."""
    return int(tab.page.evaluate("document.getElementsByTagName('*').length"))
