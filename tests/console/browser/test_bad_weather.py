"""The console when the API is busy, away or refuses, when answers are old or strange, and when nobody looks.

The clock of each tab is stopped, so that minutes of the page take no time here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.console.browser.conftest import Visit
from tests.console.browser.examples import INSTANCE, JOB, answer_with_examples

pytestmark = [pytest.mark.slow, pytest.mark.console]
API = "**/api/v2/**"
REQUESTS_MAX = 8
"""Requests of a tab in two minutes without an answer."""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
MIDDLE = "Math.random = () => 0.5"
"""Script that takes the middle of each random pause."""


def passes(tab: Visit, seconds: int) -> None:
    """Let time pass on the clock of the page. Answers arrive meanwhile."""
    for _ in range(seconds):
        tab.page.clock.run_for(1_000)


def settled(tab: Visit) -> int:
    """Return the number of requests to the API so far, when no answer is under way."""
    tab.page.wait_for_load_state("networkidle")
    return len(tab.sent("GET", "/api/v2/"))


def asks_again(tab: Visit, before: int) -> bool:
    """Whether the page sends another request to the API after the first `before`, within 200 looks."""
    for _ in range(200):
        if len(tab.sent("GET", "/api/v2/")) > before:
            return True
        tab.page.wait_for_timeout(30)  # the driver delivers requests during its own calls only
    return False


@pytest.fixture
def jobs(opened_tabs: Any, examples_url: str) -> Iterator[Visit]:
    """A tab with the list of jobs, whose clock is stopped."""
    with opened_tabs(examples_url) as open_:
        tab = open_(own=True)
        answer_with_examples(tab.page)
        tab.page.add_init_script(MIDDLE)
        tab.page.clock.install()
        tab.page.reload()
        tab.go("#/jobs")
        tab.sign_in("any text", viewer=True)
        tab.page.get_by_role("link", name=JOB).first.wait_for()
        yield tab


def busy(route: Any) -> None:
    """Answer that the API is busy, and for how long."""
    route.fulfill(status=429, headers={"Retry-After": "40"}, body="")


def unavailable(route: Any) -> None:
    """Answer that the API is not there."""
    route.fulfill(status=503, body="")


def cut(route: Any) -> None:
    """Cut the connection."""
    route.abort("connectionreset")


DEFAULT = ((busy, "#/jobs"), (unavailable, "#/"), (cut, "#/jobs"))
"""Each weather and each page once."""


@pytest.mark.parametrize(
    ("weather", "place"),
    [
        pytest.param(weather, place, marks=() if (weather, place) in DEFAULT else pytest.mark.full)
        for weather in (busy, unavailable, cut)
        for place in ("#/jobs", "#/")
    ],
)
def test_while_the_api_is_away_the_data_stays_and_few_requests_are_sent(
    jobs: Visit, weather: Callable[[Any], None], place: str
) -> None:
    """The banner says how old the data is. "Refresh now" sends nothing before its time. It goes by itself."""
    page = jobs.page
    jobs.see(place)
    data = page.get_by_role("link", name=JOB).first if place == "#/jobs" else page.locator(".heatmap .legend")
    data.first.wait_for()
    before = settled(jobs)
    page.route(API, weather)
    jobs.refresh()
    page.locator(".banner").wait_for()
    passes(jobs, 3 if weather is busy else 0)
    first = len(jobs.sent("GET", "/api/v2/"))
    for _ in range(3):
        jobs.refresh()
    assert len(jobs.sent("GET", "/api/v2/")) == first
    passes(jobs, 120)
    assert 1 < len(jobs.sent("GET", "/api/v2/")) - before <= REQUESTS_MAX
    assert "min old" in page.locator(".banner").inner_text()
    assert data.first.is_visible()
    page.unroute(API)
    for _ in range(150):
        if page.locator(".banner").count() == 0:
            break
        passes(jobs, 1)
    page.locator(".banner").wait_for(state="detached")
    assert data.first.is_visible() and jobs.loads == 2


def test_a_refusal_in_the_middle_leads_to_the_sign_in_and_back(jobs: Visit) -> None:
    """The server's sentence is shown. After the sign-in, the same place has its data again."""
    page = jobs.page
    jobs.see(f"#/jobs?q={JOB}&state=all")
    page.get_by_role("link", name=JOB).first.wait_for()
    refusal = {"status": 401, "code": "unauthorized", "detail": "the session has ended", "title": "", "type": ""}
    page.route(API, lambda route: route.fulfill(status=401, json=refusal))
    jobs.refresh()
    page.get_by_role("alert").get_by_text("the session has ended").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    page.unroute(API)
    jobs.sign_in("any text", viewer=True)
    page.get_by_role("link", name=JOB).first.wait_for()
    assert page.url.endswith(f"#/jobs?q={JOB}&state=all")


def changed(tab: Visit, path: str, change: Callable[[Any], Any]) -> None:
    """Change the answers to the requests of a path."""

    def respond(route: Any) -> None:
        answer = route.fetch()
        headers = {name: text for name, text in answer.headers.items() if name not in ("etag", "content-length")}
        route.fulfill(status=200, headers=headers, body=json.dumps(change(answer.json())))

    tab.page.route(lambda url: url.partition("?")[0].endswith(path), respond)


def test_a_snapshot_that_is_old_is_called_old(opened_tabs: Any, examples_url: str) -> None:
    """After two minutes and after five, on the overview and on the page of the fleet."""
    written = datetime.now(UTC)

    def older(answer: Any) -> Any:
        return answer | ({"as_of": written.isoformat()} if "as_of" in answer else {})

    with opened_tabs(examples_url) as open_:
        tab = open_()
        answer_with_examples(tab.page, alter=older)
        tab.sign_in("any text", viewer=True)
        for minutes, look in ((0, ""), (3, "late"), (6, "stopped")):
            written = datetime.now(UTC) - timedelta(minutes=minutes)
            for place in ("#/", "#/fleet"):
                tab.see(place)
                shown = tab.page.locator(".headline .freshness").first
                shown.wait_for()
                assert (shown.get_attribute("class") or "").split()[1:] == look.split()
                assert ("reconciler" in shown.inner_text()) == bool(look)


def test_an_unknown_status_is_shown_by_its_own_name(opened_tabs: Any, examples_url: str) -> None:
    """A newer deployment may have statuses that an open tab does not know: of jobs, of instances, and on the map."""

    def other(answer: Any) -> Any:
        for rows in (answer.get("jobs", []), answer.get("instances", [])):
            for row in rows:
                row["status"] = "TELEPORTING"
        return answer

    def on_the_map(answer: Any) -> Any:
        return answer | {"statuses": ["TELEPORTING" for _ in answer["statuses"]]}

    with opened_tabs(examples_url) as open_:
        tab = open_()
        answer_with_examples(tab.page, alter=other)
        changed(tab, "/fleet/map", on_the_map)
        tab.sign_in("any text", viewer=True)
        tab.page.locator(".heatmap .legend", has_text="TELEPORTING").wait_for()
        for place in ("#/jobs", "#/instances"):
            tab.see(place)
            tab.page.locator("main .status", has_text="TELEPORTING").first.wait_for()


def test_a_hidden_tab_asks_for_nothing(jobs: Visit) -> None:
    """For five minutes, on each page that asks by itself. It asks at once when it is seen again."""
    for place in ("#/jobs", "#/", "#/queue", "#/incidents", "#/fleet", "#/instances", f"#/instances/{INSTANCE}"):
        jobs.see(place)
        jobs.page.evaluate(HIDE, True)
        before = settled(jobs)
        jobs.page.clock.run_for(300_000)
        jobs.page.wait_for_timeout(100)
        assert settled(jobs) == before, place
        jobs.page.evaluate(HIDE, False)
        assert asks_again(jobs, before), place
