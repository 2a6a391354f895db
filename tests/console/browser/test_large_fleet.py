"""10,000 instances and 50,000 jobs with five events a second: what the page draws, holds and asks for.

The deployment is a fake server (`console/fake`). Wall-clock budgets are measured in `benchmarks/console.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from console.fake.model import Size
from console.fake.server import FakeServer, running
from tests.console.browser.fake_fleet import (
    EVENTS,
    MAP,
    MEMBERS,
    OVERVIEW,
    Open,
    StandingClock,
    asked,
    canvas,
    elements,
    refresh,
    tabs,
)
from tests.console.browser.visit import Visit
from tests.console.browser.windows import Windows
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
ELEMENTS_MAX = 3_000
FIRST_SIGHT = {"GET /console", "POST /api/v2/sessions", OVERVIEW, MAP, MEMBERS, EVENTS}
SIZE = Size()
AXE = Path(__file__).parents[3] / "console" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def clock() -> StandingClock:
    """The time of the deployment."""
    return StandingClock.of_today()


@pytest.fixture(scope="module")
def fake(clock: StandingClock) -> Iterator[FakeServer]:
    """The server."""
    with running(SIZE, clock=clock) as server:
        yield server


@pytest.fixture
def visit(windows: Windows, fake: FakeServer) -> Iterator[Open]:
    """Opens tabs and signs in."""
    with tabs(windows, fake) as opens:
        yield opens


def inked(tab: Visit) -> dict[str, int]:
    """How many pixels of the canvas have each colour."""
    counted: dict[str, int] = tab.page.evaluate(
        """() => {
          const canvas = document.querySelector(".heatmap .area canvas");
          const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const data = new Uint32Array(image.data.buffer);
          const counts = {};
          for (const value of data) counts[value] = (counts[value] ?? 0) + 1;
          return counts;
        }"""
    )
    return counted


def of_colour(colour: str) -> str:
    """The number of an opaque colour in `inked`."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return str(255 << 24 | blue << 16 | green << 8 | red)


def test_the_map_of_ten_thousand_is_drawn(visit: Open, fake: FakeServer) -> None:
    """Each instance has its cell, in the colours of its status, and the page holds few elements."""
    tab = visit()
    assert int(canvas(tab).get_attribute("data-drawn")) == SIZE.instances
    with fake.lock:
        totals = fake.deployment.limits()["totals"]
    legend = tab.page.locator(".heatmap .legend").inner_text()
    assert f"in use\n{totals['instances_in_use'] // 1000}," in legend
    counts = inked(tab)
    cell = 7 * 7  # of 8 pixels one is the gap
    assert counts[of_colour("#005a8c")] >= cell * (totals["instances_in_use"] - 100)
    assert counts[of_colour("#1b1b1b")] > 0  # quarantined
    assert elements(tab) <= ELEMENTS_MAX


def test_the_first_sight_takes_one_request_of_a_kind(visit: Open) -> None:
    """The page, its files, the session, overview, map, members and events: once each, and no list of records."""
    tab = visit()
    canvas(tab)
    requests = asked(tab)
    files = {name for name in requests if name.startswith("GET /console/")}
    assert set(requests) - files == FIRST_SIGHT
    assert set(requests.values()) == {1} and len(files) <= 4


def test_the_answers_that_are_polled_are_small(visit: Open, fake: FakeServer) -> None:
    """Bytes as sent: the members come once, and an answer that has not changed has none."""
    sizes: dict[str, int] = {}

    def measured(response: Any) -> None:
        sizes[urlsplit(response.url).path] = int(response.headers.get("content-length", 0))

    tab = visit(prepare=lambda page: page.on("response", measured))
    canvas(tab)
    assert sizes["/api/v2/overview"] <= 20_000
    assert sizes["/api/v2/fleet/map"] <= 60_000
    assert sizes["/api/v2/fleet/members"] <= 130_000
    before = asked(tab)
    refresh(tab)
    assert sizes["/api/v2/fleet/map"] == sizes["/api/v2/overview"] == 0
    assert (asked(tab) - before)[MEMBERS] == 0


def test_an_event_changes_its_cell_alone(visit: Open, clock: StandingClock) -> None:
    """The events between two maps change the squares that they name, and no others."""
    tab = visit()
    drawn = canvas(tab)
    assert int(drawn.get_attribute("data-drawn")) == SIZE.instances
    clock.passes(2)  # ten events
    refresh(tab)
    tab.page.locator(f".area canvas:not([data-drawn='{SIZE.instances}'])").wait_for()
    assert 0 < int(drawn.get_attribute("data-drawn")) <= 10


def test_following_the_events_asks_for_little_and_adds_no_elements(visit: Open, clock: StandingClock) -> None:
    """A minute with five events a second: twelve looks at the feed, four at the overview, at most two at the map."""
    tab = visit(clocked=True)
    canvas(tab)
    before, held = asked(tab), elements(tab)
    for _ in range(12):
        clock.passes(5)
        with tab.page.expect_response("**/api/v2/events*"):
            tab.page.clock.run_for(5_000)
        tab.page.wait_for_timeout(50)  # answers come in real time
    asks = asked(tab) - before
    assert 11 <= asks[EVENTS] <= 13 and 3 <= asks[OVERVIEW] <= 5 and asks[MAP] <= 2
    assert set(asks) <= {EVENTS, OVERVIEW, MAP}
    assert elements(tab) <= min(ELEMENTS_MAX, held + 200)


def test_the_keyboard_walks_the_map(visit: Open, fake: FakeServer) -> None:
    """The slash finds an instance, arrows move, the element says where it is, and Enter opens the instance."""
    tab = visit()
    canvas(tab)
    with fake.lock:
        ids = fake.deployment.members()["ids"]
    cursor = tab.page.locator(".heatmap .cursor")

    def is_at(number: int) -> None:
        tab.page.locator(f".heatmap .cursor[aria-label*='{ids[number]}']").wait_for(state="attached")

    tab.page.keyboard.press("/")
    tab.page.locator("input[type=search]:focus").wait_for()
    tab.page.keyboard.type(ids[4_321])
    is_at(4_321)
    cursor.focus()
    tab.page.keyboard.press("ArrowRight")
    is_at(4_322)
    tab.page.keyboard.press("ArrowDown")
    tab.page.locator(f".heatmap .cursor:not([aria-label*='{ids[4_322]}'])").wait_for(state="attached")
    below = str(cursor.get_attribute("aria-label"))
    assert not any(ids[near] in below for near in (4_321, 4_322, 4_323))
    tab.page.keyboard.press("ArrowUp")
    is_at(4_322)
    tab.page.locator(".heatmap [aria-live]", has_text=ids[4_322]).wait_for(state="attached")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(f"**#/instances/{ids[4_322]}")


def test_the_card_names_what_the_pointer_is_on(visit: Open, fake: FakeServer) -> None:
    """Id, status, place and job from the map; the reason of the status from the record, when the pointer stays."""
    tab = visit()
    canvas(tab).hover(position={"x": 3, "y": 23})  # the first cell below the caption of its zone
    card = tab.page.locator(".heatmap .card")
    with fake.lock:
        first = fake.deployment.members()["ids"][0]
        record = fake.deployment.instances[first]
    card.get_by_text(record.reason, exact=True).wait_for()
    shown = card.inner_text()
    assert first in shown and record.rack in shown and all(job in shown for job in record.claims)


def test_each_mode_draws_every_cell_in_looks_of_its_own(visit: Open) -> None:
    """Utilisation, job and age."""
    tab = visit()
    canvas(tab)
    seen = [inked(tab)]
    for mode, in_legend in (("job", "each job has its own"), ("age", "less than"), ("gpu", "≤ 20 %")):
        tab.page.locator(f"input[name=mode][value={mode}]").check()
        tab.page.locator(".heatmap .legend").get_by_text(in_legend).first.wait_for()
        wait_until(lambda: inked(tab) not in seen)  # the canvas is drawn in the next frame
        seen.append(inked(tab))
        assert sum(count for colour, count in seen[-1].items() if colour != "0") > SIZE.instances


def test_the_table_shows_a_hundred_rows_at_a_time(visit: Open) -> None:
    """What needs a look comes first."""
    tab = visit()
    canvas(tab)
    tab.page.get_by_role("button", name="Show as a table").click()
    rows = tab.page.locator(".heatmap tbody tr")
    assert rows.count() == 100 and "quarantined" in rows.first.inner_text()
    tab.page.get_by_role("button", name="Next 100").click()
    assert rows.count() == 100 and "quarantined" not in rows.first.inner_text()
    assert elements(tab) <= ELEMENTS_MAX


def test_a_narrow_page_scrolls_in_one_direction(visit: Open) -> None:
    """At 390 px neither page is wider than the screen."""
    tab = visit(width=390)
    canvas(tab)
    for place in ("#/", "#/fleet"):
        tab.go(place)
        tab.page.locator("main h1").wait_for()
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_fleet_page_holds_few_elements_and_reads_no_records(visit: Open) -> None:
    """The limits come from the snapshot."""
    tab = visit("#/fleet")
    tab.page.get_by_role("heading", name="Circuit breaker").wait_for()
    assert elements(tab) <= ELEMENTS_MAX
    requests = asked(tab)
    assert requests["GET /api/v2/fleet/limits"] == 1 and requests["GET /api/v2/fleet"] == 0


@pytest.mark.parametrize(
    ("dark", "locale", "width"), [(False, "en-GB", 1280), pytest.param(True, "zh-CN", 390, marks=pytest.mark.full)]
)
def test_both_pages_follow_wcag(windows: Windows, fake: FakeServer, dark: bool, locale: str, width: int) -> None:
    """No finding of axe at level AA of WCAG 2.2, with the focus on the map."""
    tab = Visit(windows.tab(width, 900, locale=locale, dark=dark), fake.url)
    tab.go()
    tab.sign_in("any text")
    for place in ("#/", "#/fleet"):
        tab.go(place)
        tab.page.locator("main h1").wait_for()
        if place == "#/":
            canvas(tab)
            tab.page.locator(".heatmap .cursor").focus()
        tab.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = tab.page.evaluate(
            "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })"
        )
        assert [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]] == []
    assert windows.close(tab.page) == []
