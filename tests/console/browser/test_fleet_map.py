"""The fleet map and the event feed of the overview: which square shows what, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.wire.json_body import time_text

from console.fake.model import Size
from console.fake.server import FakeServer, running
from tests.console.browser.fake_fleet import (
    DRAWN,
    EVENTS,
    MAP,
    OVERVIEW,
    Open,
    StandingClock,
    asked,
    canvas,
    refresh,
    seek,
    tabs,
)
from tests.console.browser.visit import Visit
from tests.console.browser.windows import Windows

pytestmark = [pytest.mark.slow, pytest.mark.console]
SIZE = Size(instances=400, jobs=40, events_a_second=0)
COUNT_DRAWINGS = """
window.drawings = 0;
const put = CanvasRenderingContext2D.prototype.putImageData;
CanvasRenderingContext2D.prototype.putImageData = function (...given) {
  if (this.canvas.closest(".area")) window.drawings += 1;
  return put.apply(this, given);
};
"""


@pytest.fixture
def clock() -> StandingClock:
    """The time of the deployment."""
    return StandingClock.of_today()


@pytest.fixture
def fake(clock: StandingClock) -> Iterator[FakeServer]:
    """The deployment."""
    with running(SIZE, clock=clock) as server:
        yield server


@pytest.fixture
def open_(windows: Windows, fake: FakeServer) -> Iterator[Open]:
    """Opens tabs."""
    with tabs(windows, fake) as opens:
        yield opens


def ids(fake: FakeServer) -> list[str]:
    """The instances in the order of the map."""
    with fake.lock:
        return list(fake.deployment.members()["ids"])


def in_use(fake: FakeServer) -> str:
    """An instance with a job."""
    with fake.lock:
        return next(name for name, record in fake.deployment.instances.items() if record.claims)


def move(fake: FakeServer, instance_id: str, times: int = 1) -> None:
    """Let an instance change its status, with an event each time."""
    with fake.lock:
        fake.deployment.advance(fake.clock())
        for _ in range(times):
            fake.deployment.move(instance_id)


def says(cursor: Any, words: str) -> None:
    """Wait until the element that describes an instance has the words."""
    cursor.and_(cursor.page.locator(f"[aria-label*='{words}']")).wait_for(state="attached")


def test_a_square_changes_with_the_next_look_at_the_events(open_: Open, fake: FakeServer) -> None:
    """Five seconds after a change of status its square shows it. Neither the map nor the overview is asked for that."""
    tab = open_(clocked=True)
    canvas(tab)
    cursor = seek(tab, in_use(fake))
    says(cursor, "in use")
    before = asked(tab)
    move(fake, in_use(fake))
    tab.page.clock.run_for(5_100)
    says(cursor, "checking")
    after = asked(tab) - before
    assert (after[EVENTS], after[MAP], after[OVERVIEW]) == (1, 0, 0)


def test_a_tab_without_input_looks_at_the_events_every_half_minute(open_: Open) -> None:
    """From ten minutes without input on."""
    tab = open_(clocked=True)
    canvas(tab)
    tab.page.clock.fast_forward(600_001)
    with tab.page.expect_response("**/api/v2/events*"):
        tab.page.clock.run_for(30_000)  # what was due before the ten minutes, and one look after them
    before = asked(tab)[EVENTS]
    for _ in range(24):
        tab.page.clock.run_for(5_000)
        tab.page.wait_for_timeout(50)  # answers come in real time
    assert 3 <= asked(tab)[EVENTS] - before <= 4


def test_a_refresh_turns_no_square_back(open_: Open, fake: FakeServer) -> None:
    """The map that is read again is older than the events. Nothing is drawn for it, and the squares stay."""
    tab = open_(prepare=lambda page: page.add_init_script(COUNT_DRAWINGS))
    canvas(tab)
    moved = ids(fake)[:40]
    for instance_id in moved:
        move(fake, instance_id)
    refresh(tab)
    cursors = {name: str(seek(tab, name).get_attribute("aria-label")) for name in (moved[0], moved[-1])}
    with fake.lock:
        states = {name: fake.deployment.instances[name].status.value.lower() for name in cursors}
    assert all(states[name] in label for name, label in cursors.items())
    drawings = tab.page.evaluate("window.drawings")
    refresh(tab)
    assert tab.page.evaluate("window.drawings") == drawings
    says(seek(tab, moved[0]), states[moved[0]])


def test_a_map_that_is_older_than_the_last_is_not_shown(open_: Open, fake: FakeServer, clock: StandingClock) -> None:
    """Several processes answer, and each keeps the map for some seconds."""
    tab = open_()
    canvas(tab)
    with fake.lock:
        old = fake.deployment.map(gpu=False)
    clock.passes(61)
    name = in_use(fake)
    with fake.lock:  # without an event: maps alone show it
        working = fake.deployment.instances[name]
        fake.deployment.instances[name] = replace(
            working, status=InstanceStatus.CHECKING, status_at=clock.now, version=working.version + 1
        )
    refresh(tab)
    cursor = seek(tab, name)
    says(cursor, "checking")
    tab.page.route("**/api/v2/fleet/map*", lambda route: route.fulfill(json=old))
    refresh(tab)
    says(cursor, "checking")


def event(fake: FakeServer, name: str, version: int, before: str, after: str, ago_s: float = 0) -> dict[str, Any]:
    """An event about an instance, as the job API answers with it."""
    at = time_text(fake.clock().__class__.fromtimestamp(fake.clock().timestamp() - ago_s, fake.clock().tzinfo))
    absent = dict.fromkeys(("job_id", "attempt", "incident_id", "check_id", "failure", "diagnosis", "message"))
    name_of_event = f"{name}/{version}/instance_state_changed"
    told = {"id": name_of_event, "at": at, "kind": "instance_state_changed", "instance_id": name}
    return {**absent, **told, "before": before, "after": after, "reason": f"because of {version}"}


def tell(tab: Visit, events: list[dict[str, Any]]) -> None:
    """Let the feed answer with these events, and read it."""
    tab.page.unroute("**/api/v2/events*")
    answer = {"events": events, "next_cursor": "7"}
    tab.page.route("**/api/v2/events*", lambda route: route.fulfill(json=answer))
    refresh(tab)


def test_events_may_come_twice_late_and_in_any_order(open_: Open, fake: FakeServer, clock: StandingClock) -> None:
    """The square shows the event with the highest version. The next map but one is shown as it is."""
    tab = open_()
    canvas(tab)
    name = in_use(fake)
    cursor = seek(tab, name)
    clock.passes(30)
    checks = event(fake, name, 2, "AVAILABLE", "CHECKING")
    reboots = event(fake, name, 3, "CHECKING", "REBOOTING", ago_s=1)  # the clocks of two functions differ
    tell(tab, [reboots, reboots, event(fake, name, 1, "CHECKING", "QUARANTINED", ago_s=4_000_000)])
    says(cursor, "rebooting")
    tell(tab, [checks, reboots, checks])
    says(cursor, "rebooting")
    listed = tab.page.get_by_label("Events", exact=True).first.get_by_role("listitem").filter(has_text=name)
    assert [row.split("\n")[-1] for row in listed.all_inner_texts()] == [
        "because of 2",
        "because of 3",
        "because of 1",
    ]
    clock.passes(31)
    refresh(tab)  # this map may have been listed before the event
    says(cursor, "rebooting")
    clock.passes(61)
    refresh(tab)
    says(cursor, "in use")
    with fake.lock:
        assert fake.deployment.instances[name].status.value == "AVAILABLE"


def test_an_event_of_the_second_in_which_the_status_began_is_not_newer(open_: Open, fake: FakeServer) -> None:
    """The map has whole seconds. An event that does not begin at the status which the map shows came before it."""
    name = in_use(fake)
    move(fake, name)
    with fake.lock:
        fake.deployment.events.clear()  # the event of the status itself comes late
    tab = open_()
    canvas(tab)
    cursor = seek(tab, name)
    tell(tab, [event(fake, name, 0, "VERIFYING", "QUARANTINED")])
    tab.page.get_by_label("Events", exact=True).first.get_by_text("because of 0").wait_for()
    says(cursor, "checking")


def test_a_tab_that_was_away_reads_the_events_page_by_page(open_: Open, fake: FakeServer, clock: StandingClock) -> None:
    """Each page begins where the last has ended, and the last page ends the look."""
    tab = open_()
    canvas(tab)
    before = len(tab.requests)
    for name in ids(fake)[:100]:
        move(fake, name, 5)  # 500 events; a page has 200
    clock.passes(40)
    refresh(tab)
    tab.page.wait_for_timeout(200)
    urls = [url for _, url, _ in tab.requests[before:] if "/api/v2/events?" in url]
    after = [int(parse_qs(urlsplit(url).query)["after"][0]) for url in urls]
    assert after == sorted(set(after)) and len(after) == 3


def test_the_events_stay_while_nobody_follows_them(open_: Open, fake: FakeServer, clock: StandingClock) -> None:
    """The map goes on. With "follow" the newest are there at once."""
    tab = open_()
    canvas(tab)
    first, second = ids(fake)[:2]
    section = tab.page.get_by_label("Events", exact=True).first
    move(fake, first)
    refresh(tab)
    section.get_by_text(first).wait_for()
    section.get_by_label("Follow").uncheck()
    clock.passes(1)
    move(fake, second)
    refresh(tab)
    says(seek(tab, second), "checking")
    assert second not in section.inner_text()
    section.get_by_label("Follow").check()
    section.locator("li:first-child", has_text=second).wait_for()


def test_the_mode_stays_when_the_map_is_read_again(open_: Open) -> None:
    """The mode GPU asks for other columns; the map is there all the time."""
    tab = open_()
    canvas(tab)
    tab.page.evaluate("document.querySelector('.heatmap').dataset.same = 'yes'")
    choice = tab.page.locator("input[name=mode][value=gpu]")
    choice.check()
    tab.page.locator(".heatmap .legend").get_by_text("≤ 20 %").wait_for()
    refresh(tab)
    assert choice.is_checked() and tab.page.locator(".heatmap[data-same]").count() == 1
    assert tab.page.locator(".heatmap .legend").get_by_text("≤ 20 %").count() == 1


def test_the_map_says_how_old_it_is(open_: Open, fake: FakeServer, clock: StandingClock) -> None:
    """The map has a time of its own: its writer may be late while the overview is new."""
    tab = open_()
    canvas(tab)
    with fake.lock:
        old = fake.deployment.map(gpu=False)
    section = tab.page.get_by_label("Fleet map", exact=True)
    section.get_by_text("as of").wait_for()
    assert section.locator(".freshness.stopped").count() == 0
    tab.page.route("**/api/v2/fleet/map*", lambda route: route.fulfill(json=old))
    clock.passes(301)
    refresh(tab)
    section.locator(".freshness.stopped").wait_for()
    assert tab.page.locator("main > .headline .freshness.stopped").count() == 0


def test_cursor_and_card_stay_on_their_instance_when_others_leave(
    open_: Open, fake: FakeServer, clock: StandingClock
) -> None:
    """The instances behind one that leaves have other positions afterwards."""
    tab = open_()
    canvas(tab)
    members = ids(fake)
    seek(tab, members[50])
    tab.page.locator(".heatmap .card").get_by_text(members[50]).wait_for()
    with fake.lock:
        for name in members[10:13]:
            fake.deployment.leave(name)
    clock.passes(61)
    refresh(tab)
    tab.page.locator(f"{DRAWN}[data-drawn='{len(members) - 3}']").wait_for()
    assert members[50] in str(tab.page.locator(".heatmap .cursor").get_attribute("aria-label"))
    assert members[50] in tab.page.locator(".heatmap .card").inner_text()
    tab.page.locator(".heatmap .cursor").focus()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_url(f"**#/instances/{members[50]}")


def test_the_card_has_the_reason_of_the_status_that_it_shows(
    open_: Open, fake: FakeServer, clock: StandingClock
) -> None:
    """The status changes while the card is open, and again while nobody has read the events."""
    tab = open_()
    canvas(tab)
    name = in_use(fake)
    seek(tab, name)
    card = tab.page.locator(".heatmap .card")
    card.get_by_text("works", exact=True).wait_for()
    clock.passes(2)
    move(fake, name)
    refresh(tab)
    card.get_by_text("kernel log: XID_79").wait_for()
    assert "checking" in card.inner_text() and "works" not in card.inner_text()
    tab.page.locator("input[type=search]").fill("")
    clock.passes(2)
    move(fake, name)
    other = ids(fake)[7]
    seek(tab, other)
    tab.page.locator(".heatmap .card", has_text=other).wait_for()
    seek(tab, name)
    refresh(tab)
    card.get_by_text("row remapping is pending").wait_for()
    assert "rebooting" in card.inner_text() and "XID_79" not in card.inner_text()


@pytest.mark.parametrize("ratio", [1.25, *(pytest.param(each, marks=pytest.mark.full) for each in (1.1, 3))])
def test_a_cell_has_whole_pixels_of_the_screen(open_: Open, fake: FakeServer, ratio: float) -> None:
    """The canvas has one pixel for each of the screen, so nothing is blurred; and the pointer finds its instance."""
    tab = open_(width=1003, ratio=ratio)
    drawn = canvas(tab)
    for canvases in (".heatmap .area canvas", ".heatmap .legend canvas"):
        shown, held = tab.page.evaluate(
            "(selector) => { const it = document.querySelector(selector);"
            " return [it.getBoundingClientRect().width * devicePixelRatio, it.width]; }",
            canvases,
        )
        assert shown == pytest.approx(held, abs=0.05)
    cursor = seek(tab, ids(fake)[123])
    box, area = cursor.bounding_box(), drawn.bounding_box()
    tab.page.locator("input[type=search]").fill("")
    drawn.hover(position={"x": box["x"] - area["x"] + 2, "y": box["y"] - area["y"] + 2})
    tab.page.locator(".heatmap .card", has_text=ids(fake)[123]).wait_for()


def test_the_fleet_page_releases_with_the_dialog_of_the_instance_page(open_: Open, fake: FakeServer) -> None:
    """Both name the job that still works on the instance."""
    name = in_use(fake)
    with fake.lock:
        working = fake.deployment.instances[name]
        fake.deployment.instances[name] = replace(working, status=InstanceStatus.QUARANTINED, reason="loose cable")
    tab = open_("#/fleet")
    tab.page.get_by_role("row").filter(has_text=name).filter(has_text="loose cable").get_by_role(
        "button", name="Release"
    ).first.click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_text(min(working.claims)).wait_for()
    assert name in dialog.inner_text()
    dialog.locator(".back").click()
