"""The page of users: tokens are listed and revoked; a viewer sees none of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.console.browser.conftest import Deployment, Visit

pytestmark = [pytest.mark.slow, pytest.mark.console]
MARKUP = "<b>laptop</b>"
DORA = "lab/dora@example.org"
"""The name of a user may have slashes, which API Gateway decodes in a path."""


def test_tokens_are_listed_and_revoked(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The page shows the command that issues a token, and has no form: the API issues none to a session."""
    issued = deployment.operator.issue_user_token(DORA, "viewer", None, MARKUP)
    tab = visit()
    tab.go("#/users")
    tab.sign_in(deployment.state["operator_token"])
    page = tab.page

    def tokens() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = deployment.operator.user_tokens(DORA)["tokens"]
        return listed

    row = page.locator("tbody tr", has_text=DORA)
    assert "viewer" in row.inner_text()
    row.get_by_role("link").click()
    page.locator("td", has_text=MARKUP).wait_for()
    assert page.locator("main b").count() == 0
    command = page.locator("input[name=command]").input_value()
    assert command == f"gpu-recovery token issue --user {DORA} --role user"
    page.get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Back").click()
    dialog.wait_for(state="detached")
    assert [one["live"] for one in tokens()] == [True]
    page.get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke").evaluate("(button) => { button.click(); button.click(); }")
    dialog.wait_for(state="detached")
    page.locator("td", has_text="revoked").wait_for()
    assert [(one["id"], one["live"]) for one in tokens()] == [(issued["id"], False)]
    assert [method for method, url, _ in tab.requests if "/tokens" in url and method != "GET"] == ["DELETE"]


def test_a_viewer_sees_no_user(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The page says what it takes, and asks the API for nothing."""
    tab = visit()
    tab.go("#/users/ana")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    tab.page.get_by_text("Sign in as an operator to see users").wait_for()
    assert not [url for _, url, _ in tab.requests if "/api/v2/users" in url]
