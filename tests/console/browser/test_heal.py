"""A GPU fault heals itself, and the pages follow by themselves: the map, the job's timeline, the list of incidents."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from sandbox import sandbox
from tests.console.browser.conftest import Deployment, Visit
from tests.console.browser.healing import READ_EVERY_S, Decision, Healed, Seen, seen
from tests.console.browser.visit import leaks_of_har

pytestmark = [pytest.mark.slow, pytest.mark.console]
LOOKS_MAX = round(6 / READ_EVERY_S)
"""Looks at the API from the one that finds a state until the page shows it: those of six seconds.

The page asks every five seconds. On a busy machine the looks take longer, as the requests of the page do.
"""
LOOKS = {
    "CHECKING": "checking #8f5e00",
    "QUARANTINED": "quarantined #1b1b1b",
    "REBOOTING": "rebooting #c04e00",
    "VERIFYING": "verifying #a8547f",
    "AVAILABLE": "in use #005a8c",
}
"""Words and colour of the square of an instance of the job, by the status of the instance."""
PHASES = {
    "STOPPING": "stopping",
    "DIAGNOSING": "checking its instances",
    "RECOVERING": "waiting to be started again",
    "SUBMITTING": "starting",
    "SUBMITTED": "tasks started",
    "RUNNING": "running",
}
REMEMBERED_S = 60
"""Seconds for which a function remembers that a token is valid."""


def looks_until(healed: Healed, decision: Decision, shown_at: float) -> int:
    """Return how often the API was looked at from the time that it told of a decision until the page showed it."""
    return bisect_right(healed.looks, shown_at) - bisect_right(healed.looks, decision.readable_at)


def shown_at(seen: list[Seen], looks: str) -> float:
    """Return when a page first showed something that ends so."""
    return next(each.at for each in seen if each.what.endswith(looks))


def lasting(healed: Healed) -> list[Decision]:
    """Return the decisions whose status a page that asks every five seconds cannot miss.

    On a busy machine a status that is over in less time may pass between two requests of the page.
    """
    pairs = pairwise(healed.about_instance)
    return [one for one, following in pairs if looks_until(healed, one, following.readable_at) > LOOKS_MAX] + [
        healed.about_instance[-1]
    ]


def test_the_square_of_the_instance_follows_its_repair(healed: Healed) -> None:
    """In use, checked, rebooted, verified, in use again: in words, and in the colour of the pixels."""
    shown = [each.what.removeprefix(f"{healed.sick} ") for each in healed.square]
    drawn = [what for n, what in enumerate(shown) if what in LOOKS.values() and what not in shown[:n][-1:]]
    expected = [LOOKS["AVAILABLE"], *(LOOKS[decision.status] for decision in healed.about_instance)]
    rest = iter(expected)
    assert all(what in rest for what in drawn), (drawn, expected)
    assert (drawn[0], drawn[-1]) == (expected[0], expected[-1])
    assert {LOOKS["REBOOTING"], *(LOOKS[decision.status] for decision in lasting(healed))} <= set(drawn)
    after = [each for each in healed.square if each.at >= healed.about_instance[0].at]
    late = {
        decision.status: looks_until(healed, decision, shown_at(after, LOOKS[decision.status]))
        for decision in lasting(healed)
    }
    assert {status: looks for status, looks in late.items() if looks > LOOKS_MAX} == {}


def test_the_link_of_the_e_mail_leads_to_the_answer(healed: Healed, deployment: Deployment, opened_tabs: Any) -> None:
    """An operator opens the link, signs in, and reads whether to act without scrolling."""
    (mail, *_) = [mail for mail in sandbox.read_mailbox(deployment.directory) if healed.incident_id in mail["body"]]
    (link,) = re.findall(r"^Console: (\S+)$", mail["body"], re.MULTILINE)
    console, _, place = link.partition("#")
    with opened_tabs(console) as opened:
        tab = opened()
        tab.go(f"#{place}")
        tab.sign_in(deployment.token)
        answer = tab.page.get_by_text("Must you act?")
        answer.wait_for()
        assert "No." in answer.locator("xpath=..").inner_text()
        box = answer.bounding_box()
        assert box is not None and box["y"] + box["height"] < tab.page.viewport_size["height"] / 2


def test_the_bar_of_the_job_runs_breaks_and_runs(healed: Healed) -> None:
    """Each phase is drawn, and none is taken away while the page reads the next."""
    bars = [each for each in healed.bar if each.at >= healed.about_job[0].at]
    phases = re.split(r" > | \| ", healed.bar[-1].what)
    expected = [PHASES[decision.status] for decision in healed.about_job]
    assert phases[-len(expected) - 1 :] == ["running", *expected]
    before = len(phases) - len(expected)
    for number, decision in enumerate(healed.about_job, before + 1):
        drawn = next(each.at for each in bars if len(re.split(r" > | \| ", each.what)) >= number)
        assert looks_until(healed, decision, drawn) <= LOOKS_MAX, decision
    assert all(healed.bar[n].what.startswith(each.what) for n, each in enumerate(healed.bar[:-1], 1))


def test_the_incident_opens_and_closes_in_the_list(healed: Healed) -> None:
    """It is in the part of the open ones, then in that of the closed ones."""
    opened, closed = healed.incident
    row = f"Open: {healed.incident_id} "
    shown = [each for each in healed.incidents if row in each.what]
    gone = next(each.at for each in healed.incidents if each.at > shown[-1].at)
    assert looks_until(healed, opened, shown[0].at) <= LOOKS_MAX
    assert looks_until(healed, closed, gone) <= LOOKS_MAX
    assert f"Closed: {healed.incident_id} ✓recovered" in healed.incidents[-1].what


def test_no_page_was_loaded_again_and_none_erred(healed: Healed) -> None:
    """One document for each tab. Nothing was thrown, and no line of the policy was broken."""
    assert [tab.loads for tab in healed.tabs] == [1] * len(healed.tabs)
    assert healed.faults == []


def test_a_session_ends_with_its_token(healed: Healed) -> None:
    """At the latest when the functions have forgotten the token. The tab then shows the sign-in."""
    tab = healed.ending
    tab.page.locator("input[name=token]").wait_for()
    tab.page.wait_for_timeout(200)  # several records of what the page shows
    accepted = [sent_at for sent_at, status in healed.answers if status in (200, 304)]
    assert max(accepted) <= healed.revoked_at + REMEMBERED_S
    assert [each.what for each in seen(tab)] == ["page", "sign-in"]
    assert 401 in [status for _, status in healed.answers]
    assert tab.faults() == []
    tab.page.context.close()


def test_no_secret_is_in_the_archive_of_the_recovery(healed: Healed) -> None:
    """Addresses, headers, bodies and cookies of every request and answer of all tabs."""
    assert leaks_of_har(healed.har, healed.tabs) == []


def test_the_incident_tells_its_story(visit: Callable[..., Visit], deployment: Deployment, healed: Healed) -> None:
    """On its page, as Markdown, and on the timeline of the job that it interrupted."""
    tab = visit(own=True)
    page = tab.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=deployment.console_url)
    tab.go("#/incidents?state=closed")
    tab.sign_in(deployment.token)
    page.get_by_role("region", name="Closed").get_by_role("link", name=healed.incident_id).click()
    page.locator("h1", has_text=healed.incident_id).wait_for()
    page.locator(".head .status", has_text="recovered").wait_for()
    page.locator(".act", has_text="No. This incident is over").wait_for()
    thread = page.locator(".thread")
    for said in ("recovery started", "Verdict", "checking", "recovery succeeded"):
        thread.get_by_text(said).first.wait_for()
    thread.get_by_role("link", name=healed.sick).first.wait_for()
    page.locator(".verdict", has_text=healed.sick).wait_for()

    page.get_by_role("button", name="Copy as Markdown").click()
    page.get_by_text("Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(f"# Incident {healed.incident_id}\n")
    assert re.search(rf"^- \d{{4}}-.*Z {healed.sick}; .*CHECKING", copied, re.MULTILINE), copied
    assert "- State: recovered" in copied

    page.get_by_role("link", name="timeline").click()
    for attempt in (1, 2):
        lanes = page.get_by_role("region", name=f"Attempt {attempt}", exact=True)
        lanes.get_by_role("img", name=re.compile("^running")).first.wait_for()
    first = page.get_by_role("region", name="Attempt 1", exact=True)
    failure = first.locator(".piece.failure")
    failure.focus()
    page.locator(".told", has_text="was ended by").wait_for()
    assert page.locator(".told").inner_text() == failure.get_attribute("title")
    first.get_by_role("img", name=re.compile(f"^{healed.sick}: checking")).wait_for()
    page.get_by_text("Show as table").click()
    page.locator("details tr", has_text=healed.sick).first.wait_for()


def test_the_page_of_the_instance_has_the_check_that_found_the_fault(
    visit: Callable[..., Visit], deployment: Deployment, healed: Healed
) -> None:
    """The history tells why it was rebooted, and the document of the check has the finding."""
    tab = visit()
    tab.go(f"#/instances/{healed.sick}?tab=history")
    tab.sign_in(deployment.token, viewer=True)
    tab.page.locator("tbody tr", has_text="XID 79").first.wait_for()
    tab.page.get_by_role("link", name="Checks").click()
    failed = tab.page.locator("tbody tr", has_text="REBOOT").last
    failed.get_by_role("button", name="Document").click()
    tab.page.locator("article.document td", has_text="79").first.wait_for()
