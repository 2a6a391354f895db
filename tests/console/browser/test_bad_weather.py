"""The console when the API is busy, away or refuses, and when nobody looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browser.conftest import Deployment, Visit, offline
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
JOBS = "**/api/v2/jobs?*"


def asked(tab: Visit) -> int:
    """How many requests for a list of jobs the tab has sent."""
    tab.page.evaluate("0")  # the driver delivers events during its own calls only
    return sum("/api/v2/jobs?" in url for _, url, _ in tab.requests)


def refresh(tab: Visit) -> None:
    """Press "refresh now"."""
    tab.page.get_by_role("button", name="Refresh now").click()


def test_while_the_api_is_away_the_page_keeps_its_data_and_says_how_old_it_is(
    visit: Callable[..., Visit], deployment: Deployment
) -> None:
    """The banner goes when the API answers again. Retry-After is obeyed: no request is sent before it is over."""
    tab = visit()
    tab.go("#/jobs")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.page.locator("main h1").wait_for()
    wait_until(lambda: asked(tab) >= 1)
    answers: list[Any] = []

    def busy(route: Any) -> None:
        answers.append(route.request.url)
        route.fulfill(status=429, headers={"Retry-After": "3600"}, body="")

    tab.page.route(JOBS, busy)
    refresh(tab)
    tab.page.locator(".banner").wait_for()
    assert "s old" in tab.page.locator(".banner").inner_text()
    for _ in range(3):
        refresh(tab)
    assert len(answers) == 1
    assert tab.page.locator("main h1").count() == 1


def test_a_cut_connection_is_tried_again(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """Without a reload."""
    tab = visit()
    tab.go("#/jobs")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.page.locator("main h1").wait_for()
    with offline(tab):
        refresh(tab)
        tab.page.locator(".banner").wait_for()
    tab.page.locator(".banner").wait_for(state="detached", timeout=130_000)


def test_a_session_that_ends_leads_to_the_sign_in_and_back(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The token is revoked in the middle. The address stays."""
    token = deployment.operator.issue_user_token("eve", "user")
    tab = visit()
    tab.go("#/jobs?user=eve")
    tab.sign_in(token["token"])
    tab.page.locator("main h1").wait_for()
    deployment.operator.revoke_user_token("eve", token["id"])

    def refused() -> bool:
        if tab.page.locator("input[name=token]").count() == 0:
            refresh(tab)
        return bool(tab.page.locator("input[name=token]").count())

    wait_until(refused)  # functions remember a token for a minute
    assert "revoked" in tab.page.get_by_role("alert").inner_text()
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    assert tab.page.url.endswith("#/jobs?user=eve")


def test_a_hidden_tab_asks_for_nothing(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """Its clock runs for five minutes. It asks at once when it is seen again."""
    tab = visit()
    tab.page.clock.install()
    tab.go("#/jobs")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.page.locator("main h1").wait_for()
    wait_until(lambda: asked(tab) >= 1)
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true});"
    tab.page.evaluate(hide + " document.dispatchEvent(new Event('visibilitychange')); }", True)
    before = len(tab.requests)
    tab.page.clock.run_for(300_000)
    assert len(tab.requests) == before
    tab.page.evaluate(hide + " document.dispatchEvent(new Event('visibilitychange')); }", False)
    wait_until(lambda: tab.page.evaluate("1") and len(tab.requests) > before)


def test_an_unknown_status_is_shown_by_its_own_name(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """A newer deployment may have statuses that an open tab does not know."""
    tab = visit()

    def changed(route: Any) -> None:
        body = route.fetch().json()
        row = dict.fromkeys(("deadline_at", "incident_id", "short_of", "next_run_at"))
        row |= {"job_id": "j-1", "status": "TELEPORTING", "reason": "", "attempt": 1, "attempts_max": 3, "user": ""}
        row |= {"priority": "LOW", "nnodes": 1, "n_gpus_per_node": 8, "status_at": "2026-11-21T09:00:00Z"}
        row |= {"queued_at": "2026-11-21T09:00:00Z", "group": "", "attempts_counted": 1}
        route.fulfill(json={**body, "jobs": [row]})

    tab.page.route(JOBS, changed)
    tab.go("#/jobs")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.page.locator(".status", has_text="TELEPORTING").wait_for()
