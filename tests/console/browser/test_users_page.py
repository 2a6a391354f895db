"""The page of users: a token is issued, shown once and revoked; a viewer sees none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.console.browser.conftest import Deployment, Visit

pytestmark = [pytest.mark.slow, pytest.mark.console]
MARKUP = "<b>laptop</b>"


def test_a_token_is_issued_shown_once_and_revoked(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """It opens the API until it is revoked, and stands nowhere once it is hidden."""
    tab = visit()
    tab.go("#/users")
    tab.sign_in(deployment.state["operator_token"])
    page = tab.page
    page.locator("input[name=name]").fill("dora@example.org")
    page.get_by_role("button", name="Open").click()
    page.locator("h1", has_text="dora@example.org").wait_for()
    page.locator("select[name=role]").select_option("viewer")
    page.locator("input[name=note]").fill(MARKUP)
    page.get_by_role("button", name="Issue a token").evaluate("(button) => { button.click(); button.click(); }")
    token = page.locator("input[name=new-token]").input_value()

    def tokens() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = deployment.operator.user_tokens("dora@example.org")["tokens"]
        return listed

    def opens() -> int:
        me = httpx.get(f"{deployment.state['api_url']}/api/v2/me", headers={"Authorization": f"Bearer {token}"})
        return me.status_code

    assert token.startswith("gru_") and opens() == 200
    (listed,) = tokens()
    assert (listed["role"], listed["note"]) == ("viewer", MARKUP)
    page.get_by_role("button", name="I have it").click()
    page.locator("input[name=new-token]").wait_for(state="detached")
    page.locator("td", has_text=MARKUP).wait_for()
    kept = str(page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])"))
    assert token not in page.content() + kept + str(tab.printed) + str([url for _, url, _ in tab.requests])
    assert page.locator("main b").count() == 0

    page.get_by_role("link", name="All users").click()
    row = page.locator("tbody tr", has_text="dora@example.org")
    assert "viewer" in row.inner_text()
    row.get_by_role("link").click()
    page.get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Back").click()
    dialog.wait_for(state="detached")
    assert [one["live"] for one in tokens()] == [True]
    page.get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke").click()
    dialog.wait_for(state="detached")
    page.locator("td", has_text="revoked").wait_for()
    assert [one["live"] for one in tokens()] == [False]
    assert [method for method, url, _ in tab.requests if "/tokens" in url and method != "GET"] == ["POST", "DELETE"]


def test_a_viewer_sees_no_user(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The page says what it takes, and asks the API for nothing."""
    tab = visit()
    tab.go("#/users/ana")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.page.get_by_text("Sign in as an operator to see users").wait_for()
    assert not [url for _, url, _ in tab.requests if "/api/v2/users" in url]
