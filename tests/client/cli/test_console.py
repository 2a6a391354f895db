"""`gpu-recovery console`: the address of the page, and a session to paste."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import Result

from tests.client.conftest import TOKEN, URL, problem

SESSION = "grs_eyJ1Ijoi.c2ln"
ANSWER = {"session": SESSION, "user": "ana", "role": "viewer", "expires_at": "2026-11-21T21:03:00.000Z"}
Run = Callable[..., Result]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, api: Any) -> list[str]:
    """The addresses that the browser was asked to open. The API opens a session."""
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    api.answer = lambda request: httpx.Response(201, json=ANSWER)
    return addresses


def test_it_opens_the_page_and_prints_a_session(run: Run, api: Any, opened: list[str]) -> None:
    """The address has no secret, and the output has no token."""
    result = run("console", "--role", "viewer")
    assert (result.exit_code, opened) == (0, [f"{URL}/console"])
    assert f"Console:  {URL}/console\nSession:  {SESSION}\n" in result.stdout
    assert "ana (viewer)" in result.stdout and TOKEN not in result.output
    (request,) = api.requests
    assert (request.method, request.url.path) == ("POST", "/prod/api/v2/sessions")
    assert json.loads(request.content) == {"role": "viewer"}


@pytest.mark.parametrize("arguments", [("--no-browser",), ("--json",)])
def test_a_script_opens_no_browser(run: Run, api: Any, opened: list[str], arguments: tuple[str, ...]) -> None:
    """The role is that of the token without the option."""
    result = run("console", *arguments)
    assert (result.exit_code, opened) == (0, [])
    assert json.loads(api.requests[0].content) == {}
    if arguments == ("--json",):
        assert json.loads(result.stdout) == {"console_url": f"{URL}/console", **ANSWER}


def test_a_refusal_opens_nothing(run: Run, api: Any, opened: list[str]) -> None:
    """Its sentence is printed."""
    api.answer = lambda request: problem(403, "role_too_low", "the token has the role viewer")
    result = run("console", "--role", "operator")
    assert (result.exit_code, opened) == (1, [])
    assert "the token has the role viewer" in result.stderr
