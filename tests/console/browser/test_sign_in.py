"""The sign-in: a token becomes a session, and is kept nowhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.console.browser.conftest import Deployment, Visit

pytestmark = [pytest.mark.slow, pytest.mark.console]


def test_the_token_is_exchanged_and_forgotten(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """It stands in one header of one request; the session stands in later headers and in the tab's storage."""
    tab, token = visit(own=True), deployment.state["operator_token"]
    tab.sign_in(token)
    tab.page.locator("main h1").wait_for()
    with_token = [url for _, url, headers in tab.requests if token in str(headers)]
    assert with_token == [f"{deployment.console_url.removesuffix('/console')}/api/v2/sessions"]
    session = tab.page.evaluate("JSON.parse(sessionStorage.getItem('gpu-recovery session')).text")
    everywhere = tab.page.content() + str(tab.printed) + str([url for _, url, _ in tab.requests])
    kept = str(tab.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"))
    assert session.startswith("grs_")
    assert token not in everywhere + kept and session not in everywhere
    assert session in kept and session not in str(tab.page.evaluate("JSON.stringify({...localStorage})"))


def test_a_wrong_token_is_refused_in_words(visit: Callable[..., Visit]) -> None:
    """The server's sentence is shown, and the page stays."""
    tab = visit(own=True)
    tab.page.locator("input[name=token]").fill("wrong")
    tab.page.locator("form button[type=submit]").click()
    alert = tab.page.get_by_role("alert")
    alert.wait_for()
    assert "token" in alert.inner_text()
    assert tab.page.locator("header.bar").count() == 0


def test_signing_out_leads_back_to_the_same_place(visit: Callable[..., Visit], deployment: Deployment) -> None:
    """The address stays, so the next sign-in opens the page that was open."""
    tab = visit(own=True)
    tab.go("#/jobs?user=ana")
    tab.sign_in(deployment.state["operator_token"], viewer=True)
    assert "(viewer)" in tab.page.locator("header.bar").inner_text()
    tab.page.get_by_role("button", name="Sign out").click()
    tab.page.locator("input[name=token]").wait_for()
    assert tab.page.evaluate("sessionStorage.length") == 0
    tab.sign_in(deployment.state["operator_token"])
    assert tab.page.url.endswith("#/jobs?user=ana")
    assert tab.page.locator("input[name=user]").input_value() == "ana"


def test_the_page_speaks_the_language_of_the_browser(visit: Callable[..., Visit]) -> None:
    """Chinese for a Chinese browser; the document says so to screen readers."""
    tab = visit(locale="zh-CN")
    assert tab.page.get_by_role("button", name="登录").count() == 1
    assert tab.page.evaluate("document.documentElement.lang") == "zh"
