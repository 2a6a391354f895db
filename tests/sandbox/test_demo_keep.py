"""`make demo KEEP=1`: the sandbox stays open, with a session for the web console."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from sandbox import sandbox
from sandbox.demo import __main__ as demo

STATE = {
    "api_url": "http://127.0.0.1:1/api",
    "operator_token": "t0ken",
    "console_url": "http://127.0.0.1:1/api/console",
}


class Client:
    """Opens a session, and nothing else."""

    def __init__(self, api_url: str, token: str) -> None:
        assert (api_url, token) == (STATE["api_url"], STATE["operator_token"])

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def open_session(self) -> dict[str, Any]:
        return {"session": "grs_a.b"}


def test_it_prints_a_session_and_waits_for_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The token is not printed; Ctrl-C is no failure."""

    def interrupted() -> None:
        assert STATE["console_url"] in capsys.readouterr().out
        raise KeyboardInterrupt

    monkeypatch.setattr(sandbox, "status", lambda directory: {"sandbox": STATE})
    monkeypatch.setattr(demo, "RecoveryClient", Client)
    monkeypatch.setattr(signal, "pause", interrupted)
    demo.keep_open(Path("unused"))
    assert capsys.readouterr().out == "\nThe sandbox is being ended.\n"


def test_the_session_is_printed_and_the_token_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person pastes the session."""
    monkeypatch.setattr(sandbox, "status", lambda directory: {"sandbox": STATE})
    monkeypatch.setattr(demo, "RecoveryClient", Client)
    monkeypatch.setattr(signal, "pause", lambda: None)
    demo.keep_open(Path("unused"))
    printed = capsys.readouterr().out
    assert "grs_a.b" in printed and STATE["operator_token"] not in printed
