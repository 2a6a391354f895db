"""A real Chromium in front of a whole deployment: what the tests of the console share.

The browser is Debian's package `chromium` (`CHROMIUM` names another binary). Without a browser the tests are skipped.
With `GPU_RECOVERY_NEEDS_BROWSER=1`, as in CI, a missing browser is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.sandbox.patience import wait_until

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
NEEDED = os.environ.get("GPU_RECOVERY_NEEDS_BROWSER") == "1"
POLICY = {"poll_interval_s": 5, "pending_retry_s": 5, "reboot_settle_s": 4, "reboot_timeout_s": 60}
VIOLATIONS = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.__violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
"""
"""Script that collects violations of the Content Security Policy."""


@dataclass
class Visit:
    """A tab with a page of the console, and what must not happen in it.

    errors:   exceptions of the page.
    requests: (method, URL, headers) of every request.
    printed:  lines of the browser's console.
    """

    page: Any
    url: str
    errors: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def go(self, place: str = "#/") -> None:
        """Open a place of the console, without a reload if the console is open already."""
        self.page.goto(f"{self.url}{place}")

    def sign_in(self, token: str, *, viewer: bool = False) -> None:
        """Exchange a token for a session on the page of the sign-in."""
        self.page.locator("input[name=token]").fill(token)
        self.page.locator("input[name=role]").nth(0 if viewer else 1).check()
        self.page.locator("form button[type=submit]").click()
        self.page.locator("header.bar").wait_for()

    def violations(self) -> list[str]:
        """Return the violations of the Content Security Policy so far."""
        found: list[str] = self.page.evaluate("window.__violations")
        return found


@dataclass(frozen=True)
class Deployment:
    """A sandbox: its folder, the addresses and tokens, and a client in the role operator."""

    directory: Path
    state: dict[str, Any]
    operator: RecoveryClient

    @property
    def console_url(self) -> str:
        """Address of the console."""
        return str(self.state["console_url"])


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests."""
    if not CHROMIUM and not NEEDED:
        pytest.skip("no Chromium: install the package chromium, or name the binary in CHROMIUM")
    assert CHROMIUM, "GPU_RECOVERY_NEEDS_BROWSER is 1, and there is no chromium"
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # only these tests need the browser's driver

    arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def deployment(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A sandbox with three instances, each with its agent."""
    directory = tmp_path_factory.mktemp("console")
    try:
        state = sandbox.up(directory, instances=3, gpus=8, policy=POLICY, agents=True)
        with RecoveryClient(state["api_url"], state["operator_token"]) as operator:
            wait_until(lambda: len(list(operator.instances())) == 3)
            yield Deployment(directory, state, operator)
    finally:
        sandbox.down(directory)


@pytest.fixture
def opened_tabs(browser: Any) -> Callable[[str], AbstractContextManager[Callable[..., Visit]]]:
    """Opens tabs at the console of an address: `open_(width=1280, locale="en-GB", dark=False)`.

    A page that throws, or breaks the policy, fails.
    """

    @contextmanager
    def opened_tabs_(url: str) -> Iterator[Callable[..., Visit]]:
        opened: list[tuple[Any, Visit]] = []

        def open_(width: int = 1280, locale: str = "en-GB", *, dark: bool = False, height: int = 800) -> Visit:
            context = browser.new_context(
                viewport={"width": width, "height": height}, locale=locale, color_scheme="dark" if dark else "light"
            )
            context.add_init_script(VIOLATIONS)
            page = context.new_page()
            tab = Visit(page, url)
            page.on("pageerror", lambda error: tab.errors.append(str(error)))
            page.on("console", lambda line: tab.printed.append(f"{line.type}: {line.text}"))
            page.on("request", lambda request: tab.requests.append((request.method, request.url, request.headers)))
            opened.append((context, tab))
            tab.go()
            return tab

        yield open_
        for context, tab in opened:
            found, errors = tab.violations(), tab.errors
            context.close()
            assert (found, errors) == ([], [])

    return opened_tabs_


@pytest.fixture
def visit(opened_tabs: Any, deployment: Deployment) -> Iterator[Callable[..., Any]]:
    """Opens tabs at the console of the deployment."""
    with opened_tabs(deployment.console_url) as open_:
        yield open_


def become_idle(deployment: Deployment) -> None:
    """End every job, and wait until every instance is available again. Other tests use the same deployment."""
    ended = ("SUCCEEDED", "FAILED", "CANCELED")
    for job in list(deployment.operator.jobs()):
        if job["status"] not in ended:
            deployment.operator.cancel(job["job_id"])
    for instance in list(deployment.operator.instances()):
        if instance["status"] == "QUARANTINED":
            deployment.operator.release(instance["instance_id"])

    def is_idle() -> bool:
        return all(job["status"] in ended for job in deployment.operator.jobs()) and all(
            instance["status"] == "AVAILABLE" and not instance["claims"] for instance in deployment.operator.instances()
        )

    wait_until(is_idle)


@contextmanager
def offline(tab: Visit) -> Iterator[None]:
    """Cut the connection of a tab for the duration of the block."""
    tab.page.context.set_offline(True)
    try:
        yield
    finally:
        tab.page.context.set_offline(False)
