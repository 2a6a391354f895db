"""What each role may do on the page, and what the API refuses to its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browser.conftest import Deployment, Visit, become_idle
from tests.console.browser.healing import Healed
from tests.console.browser.pages import places
from tests.console.browser.queued import SPEC, full_quota
from tests.console.browser.test_orders import changes, give
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.console]
ORDERS = ("suspend", "resume", "cancel", "quarantine", "release", "pause", "permit", "close the breaker", "redrive")
ORDERS += ("revoke", "change the limits", "check (dry run)", "submit")
"""The words of the buttons of orders, in small letters."""


def possible_orders(tab: Visit) -> list[str]:
    """Return the words of the buttons of orders on the page that can be pressed."""
    buttons: list[str] = tab.page.evaluate(
        "[...document.querySelectorAll('main button:enabled')].map((one) => one.innerText)"
    )
    return [words for words in buttons if words.lower().startswith(ORDERS)]


def test_a_viewer_sees_every_page_and_orders_nothing(
    visit: Callable[..., Visit], deployment: Deployment, healed: Healed
) -> None:
    """No page errs and no button of an order can be pressed. The page asks for nothing that a viewer may not read."""
    operator = deployment.operator
    tab = visit()
    answers: list[tuple[str, int]] = []
    tab.page.on("response", lambda answer: answers.append((answer.url, answer.status)))
    tab.sign_in(deployment.token, viewer=True)
    for place in places(healed):
        tab.see(place)
        assert tab.page.get_by_role("alert").count() == 0, place
        assert possible_orders(tab) == [], place
        assert tab.page.get_by_role("checkbox", name="Select").count() == 0, place
    assert [each for each in answers if each[1] >= 400] == []
    assert changes(tab) == [("POST", "sessions")]

    job, instance = healed.job_id, healed.sick
    before = (
        operator.job(job)["status"],
        operator.instance(instance)["status"],
        operator.quotas(),
        operator.fleet()["pause"],
    )
    refused = [
        deployment.call(method, path, tab.session(), json=body).status_code
        for method, path, body in (
            *(("POST", f"/jobs/{job}/{order}", {}) for order in ("suspend", "resume", "cancel")),
            ("POST", "/jobs", SPEC),
            ("POST", f"/instances/{instance}/quarantine", {"because": "no"}),
            ("POST", f"/instances/{instance}/release", {}),
            ("POST", "/fleet/pause", {"because": "no"}),
            ("POST", "/fleet/unpause", {}),
            ("POST", "/fleet/reset-breaker", {}),
            ("POST", "/dead-letters/redrive", {}),
            ("GET", "/dead-letters", None),
            ("PUT", "/quotas", {}),
            ("GET", "/users", None),
            ("POST", "/users/eve/tokens", {}),
            ("DELETE", "/users/eve/tokens/one", None),
            ("POST", f"/instances/{instance}/tokens", {}),
        )
    ]
    assert set(refused) == {403}, refused
    after = (
        operator.job(job)["status"],
        operator.instance(instance)["status"],
        operator.quotas(),
        operator.fleet()["pause"],
    )
    assert after == before


def test_a_user_orders_about_own_jobs_alone(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The own job is suspended; that of another user cannot be, on the page and past it."""
    become_idle(deployment)
    operator = deployment.operator
    issued = operator.issue_user_token("hal", "user")
    with full_quota(deployment):
        own, other = (operator.submit(SPEC | {"user": user})["job_id"] for user in ("hal", "eve"))
        wait_until(lambda: operator.job(own)["status"] == "PENDING_RESOURCES")
        tab = visit()
        tab.go(f"#/jobs/{other}?tab=why")
        tab.sign_in(str(issued["token"]))
        buttons = tab.page.locator(".orders button")
        buttons.first.wait_for()
        for button in buttons.all():
            assert button.is_disabled() and "Only its user or an operator" in str(button.get_attribute("title"))
        for order in ("suspend", "resume", "cancel"):
            assert deployment.call("POST", f"/jobs/{other}/{order}", tab.session(), json={}).status_code == 403
        tab.go(f"#/jobs/{own}?tab=why")
        give(tab, tab.page.get_by_role("button", name="Suspend"))
        assert operator.job(own)["held"] is True
        for place in ("#/fleet", f"#/instances/{next(iter(operator.instances()))['instance_id']}", "#/queue"):
            tab.see(place)
            assert possible_orders(tab) in ([], ["Check (dry run)"]), place
        operator.cancel(other)
    operator.revoke_user_token("hal", issued["id"])


def test_a_session_never_rises_above_its_parent(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """Not even when the session is typed into the sign-in again."""
    tab: Any = visit()
    tab.sign_in(deployment.token, viewer=True)
    first = tab.session()
    tab.page.get_by_role("button", name="Sign out").click()
    tab.page.locator("input[name=token]").wait_for()
    tab.sign_in(first)
    assert "(viewer)" in tab.page.locator("header.bar").inner_text()
    for role in ("user", "operator"):
        assert deployment.call("POST", "/sessions", tab.session(), json={"role": role}).status_code == 403
