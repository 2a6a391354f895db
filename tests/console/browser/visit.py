"""A tab with a page of the console, and the record of what happens in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.console.browser.windows import Windows
from tests.sandbox.patience import PATIENCE_S, wait_until

SESSION_KEY = "gpu-recovery session"
VIOLATIONS = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  const line = `${event.violatedDirective}: ${event.blockedURI} ${event.sample}`;
  window.__violations.push(line);
  window.__violated?.(line);
});
"""
"""Script that collects violations of the Content Security Policy, and reports each to a `Visit.of` at once."""
DRAWN = """
async () => {
  for (let turn = 0; turn < 3; turn += 1) {
    await new Promise((resolve) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = resolve;
      port2.postMessage(0);
    });
  }
}
"""
"""Waits until the page has drawn what the present address asks for. Its own timers may be stopped."""
TWICE = "(button) => { button.click(); button.click(); }"
"""Two presses before the page is drawn again."""


@dataclass
class Visit:
    """A tab with a page of the console, and the record of what happens in it.

    errors:     exceptions of the page.
    violated:   violations of the Content Security Policy, also those before a reload.
    requests:   (method, URL, headers) of every request.
    bodies:     the body of every request that has one.
    printed:    lines of the browser's console.
    loads:      number of times that a document was loaded.
    tokens:     tokens that were typed into the sign-in.
    sessions:   sessions that the sign-in has opened.
    """

    page: Any
    url: str
    errors: list[str] = field(default_factory=list)
    violated: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    loads: int = 0
    tokens: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, page: Any, url: str) -> Visit:
        """Return the record of a new tab."""
        tab = cls(page, url)
        page.set_default_timeout(PATIENCE_S * 1_000)

        def requested(request: Any) -> None:
            tab.requests.append((request.method, request.url, request.headers))
            if request.post_data:
                tab.bodies.append(request.post_data)

        def loaded(_: Any) -> None:
            tab.loads += 1

        page.expose_binding("__violated", lambda _, line: tab.violated.append(line))
        page.add_init_script(VIOLATIONS)
        page.on("pageerror", lambda error: tab.errors.append(str(error)))
        page.on("console", lambda line: tab.printed.append(f"{line.type}: {line.text}"))
        page.on("request", requested)
        page.on("domcontentloaded", loaded)
        return tab

    def go(self, place: str = "#/") -> None:
        """Open a place of the console, without a reload if the console is open already."""
        self.page.goto(f"{self.url}{place}")

    def sign_in(self, token: str, *, viewer: bool = False) -> None:
        """Exchange a token for a session on the page of the sign-in."""
        self.tokens.append(token)
        self.page.locator("input[name=token]").fill(token)
        self.page.locator("input[name=role]").nth(0 if viewer else 1).check()
        self.page.locator("form button[type=submit]").click()
        self.page.locator("header.bar").wait_for()
        self.sessions.append(self.session())

    def session(self) -> str:
        """Return the text of the present session."""
        return str(self.page.evaluate(f"JSON.parse(sessionStorage.getItem('{SESSION_KEY}')).text"))

    def sent(self, method: str, part: str) -> list[str]:
        """Return the addresses of the requests with this method and with `part` in their address."""
        self.page.evaluate("0")  # the driver delivers events during its own calls only
        return [url for each, url, _ in self.requests if each == method and part in url]

    def refresh(self) -> None:
        """Press "refresh now"."""
        self.page.locator("header.bar button", has_text="↻").click()

    def refresh_by_script(self) -> None:
        """Press "refresh now" without giving the button the focus."""
        self.page.locator("header.bar button", has_text="↻").evaluate("(button) => button.click()")

    def until_shown(self, what: Any) -> None:
        """Press "refresh now" until the next snapshot shows something."""

        def is_shown() -> bool:
            self.refresh()
            self.page.wait_for_timeout(300)
            return bool(what.count())

        wait_until(is_shown, lambda: self.page.locator("main").inner_text())

    def see(self, place: str) -> None:
        """Open a place, and wait for its content."""
        self.go(place)
        self.settle()

    def settle(self) -> None:
        """Wait for the content of the present place: a heading, and nothing that is still loaded."""
        self.page.evaluate(DRAWN)
        self.page.locator("main h1").first.wait_for()
        self.page.locator(".skeleton").first.wait_for(state="detached")

    def violations(self) -> list[str]:
        """Return the violations of the Content Security Policy so far."""
        found: list[str] = self.page.evaluate("window.__violations")
        return found

    def faults(self) -> list[str]:
        """Return what must not have happened: exceptions, violations of the policy, and secrets that leave."""
        leaked = [f"a secret is in {place}" for place in self.leaks()]
        return [*self.errors, *self.violated, *leaked]

    def leaks(self) -> list[str]:
        """Return the places that hold a token or a session and must not.

        A token stands in the header of one request, which opens the session. A session stands in that header of other
        requests, and in the storage of the tab.
        """
        stored = self.page.evaluate("JSON.stringify([{...localStorage}, document.cookie, location.href, name])")
        of_tab = str(self.page.evaluate("JSON.stringify({...sessionStorage})"))
        everywhere = {
            "the document": self.page.content(),
            "a field": str(
                self.page.evaluate(
                    "JSON.stringify([...document.querySelectorAll('input, textarea')].map((each) => each.value))"
                )
            ),
            "the storage": stored,
            "the console": str(self.printed),
            "an address": str([url for _, url, _ in self.requests]),
            "a body": str(self.bodies),
            "a header": str([each | {"authorization": ""} for _, _, each in self.requests]),
        }
        secrets = [*self.tokens, *self.sessions]
        found = [place for place, text in everywhere.items() if any(secret in text for secret in secrets)]
        tokens = [token for token in self.tokens if token not in self.sessions]
        found += ["the storage of the tab" for token in tokens if token in of_tab]
        opening = f"{self.url.removesuffix('/console')}/api/v2/sessions"
        for _, url, headers in self.requests:
            sent = headers.get("authorization", "")
            if url != opening and any(token in sent for token in tokens):
                found.append(f"the header of {url}")
            if not url.startswith(self.url.removesuffix("/console")) and sent:
                found.append(f"the header of {url}, which is another site")
        return found


def leaks_of_har(path: Path, tabs: list[Visit]) -> list[str]:
    """Return where an HTTP archive holds a token or a session of the tabs, except for the headers and the answer.

    The archive has every request and every answer, with headers, cookies and bodies. The one answer that holds a
    session is the answer that opens it.
    """
    tokens = [token for tab in tabs for token in tab.tokens]
    sessions = [session for tab in tabs for session in tab.sessions]
    assert tokens and sessions
    found = []
    for entry in json.loads(path.read_text(encoding="utf-8"))["log"]["entries"]:
        method, url = entry["request"]["method"], entry["request"]["url"]
        opens = method == "POST" and url.endswith("/api/v2/sessions")
        for place, text in _texts(entry):
            permitted = place.endswith("request.headers.authorization") and (
                opens or not any(t in text for t in tokens)
            )
            answer = opens and ".response.content" in place and not any(token in text for token in tokens)
            if any(secret in text for secret in (*tokens, *sessions)) and not (permitted or answer):
                found.append(f"{method} {url}: {place}")
    return found


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Return every text of an entry of an archive with its place; bodies in base64 as they were."""
    if isinstance(value, dict) and "name" in value and "value" in value and isinstance(value["value"], str):
        yield f"{place}.{value['name'].lower()}", value["value"]
    elif isinstance(value, dict):
        if value.get("encoding") == "base64":
            value = value | {"text": base64.b64decode(value["text"]).decode(errors="replace")}
        for name, each in value.items():
            yield from _texts(each, f"{place}.{name}")
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, place)
    elif isinstance(value, str):
        yield place, value


@contextmanager
def checked_visits(windows: Windows) -> Iterator[list[Visit]]:
    """Yield a list for the visits of a test. Close their tabs afterwards, also those of a test that has failed.

    A page with a fault fails the test, and so does a tab that leaves something in its context.
    """
    opened: list[Visit] = []
    found = []
    try:
        yield opened
        found += [each for tab in opened for each in tab.faults()]
    finally:
        found += windows.close(*(tab.page for tab in opened))
    assert found == []
