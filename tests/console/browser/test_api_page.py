"""Swagger UI of the API in the browser, under the policy of the console."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.browser.conftest import Deployment
from tests.console.browser.visit import VIOLATIONS
from tests.sandbox.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.console]


def test_the_page_of_the_api_shows_every_tag_and_calls_the_api(browser: Any, deployment: Deployment) -> None:
    """Nothing breaks the policy; a reader who enters a token can try an operation."""
    context = browser.new_context()
    context.add_init_script(VIOLATIONS)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_S * 1_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{deployment.state['api_url']}/api/v2/docs")
    page.locator("#operations-tag-me").wait_for()
    assert page.locator(".opblock-tag").count() > 10
    page.locator("button.authorize").first.click()
    page.locator(".auth-container input").fill(deployment.state["operator_token"])
    page.locator(".auth-btn-wrapper button.authorize").click()
    page.locator(".auth-btn-wrapper button.btn-done").click()
    page.locator("#operations-tag-me").click()
    page.locator("#operations-me-read_caller").click()
    page.locator("#operations-me-read_caller .try-out__btn").click()
    page.locator("#operations-me-read_caller button.execute").click()
    page.locator("#operations-me-read_caller .live-responses-table .response-col_status", has_text="200").wait_for()
    assert (page.evaluate("window.__violations"), errors) == ([], [])
    context.close()
