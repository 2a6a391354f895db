"""One POST: its proxy, its certificates, its time."""

from __future__ import annotations

import socket
import ssl
import threading
import urllib.request

import pytest
from gpu_recovery_agent import http_client
from gpu_recovery_agent.http_client import ReportsEndpoint
from gpu_recovery_agent.responses import ResponseKind

from tests.agent.api import Api, ok


def test_a_proxy_of_the_environment_is_used(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes without a way out have one; the address that is asked for is the API's."""
    monkeypatch.setenv("http_proxy", api.url)
    monkeypatch.delenv("no_proxy", raising=False)
    answer = ReportsEndpoint("http://api.localhost/api/v1/reports").post(b"{}", "grn_x")
    assert answer.kind is ResponseKind.ACCEPTED
    assert [one.path for one in api.heard] == ["http://api.localhost/api/v1/reports"]


def test_a_certificate_that_is_not_the_apis_is_refused() -> None:
    """The token goes to nobody who only says that he is the API."""
    (handler,) = (
        one
        for one in ReportsEndpoint("https://h")._opener.handlers  # type: ignore[attr-defined]
        if isinstance(one, urllib.request.HTTPSHandler)
    )
    assert handler._context.verify_mode is ssl.CERT_REQUIRED and handler._context.check_hostname


def test_an_api_that_speaks_no_tls_is_away(api: Api) -> None:
    """There is no falling back to what everybody on the way can read."""
    answer = ReportsEndpoint(api.url.replace("http:", "https:")).post(b"{}", "grn_x")
    assert answer.kind is ResponseKind.UNREACHABLE and "SSL" in answer.why and "grn_x" not in answer.why
    assert api.heard == []


def test_a_server_that_gives_a_byte_now_and_then_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, and the answer never ends."""
    asked = []
    monkeypatch.setattr(http_client.clock, "monotonic_s", lambda: float(len(asked)) * 2 if not asked.append(1) else 0.0)
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65_536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while not done.wait(0.01):
                try:
                    peer.sendall(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    answer = ReportsEndpoint(f"http://127.0.0.1:{listener.getsockname()[1]}/").post(b"{}", "grn_x")
    done.set()
    thread.join()
    listener.close()
    assert answer.kind is ResponseKind.UNREACHABLE and "did not end in time" in answer.why
    assert len(asked) < 10


def test_an_answer_that_is_too_long_is_none(api: Api) -> None:
    """Memory is the node's."""
    api.lasting = ok(filler="x" * (http_client.ANSWER_BYTES_MAX + 1))
    assert ReportsEndpoint(api.url).post(b"{}", "grn_x").kind is ResponseKind.UNREACHABLE
