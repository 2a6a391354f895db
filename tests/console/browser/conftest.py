"""A real Chromium in front of a whole deployment: what the tests of the console share.

The browser is Debian's package `chromium` (`CHROMIUM` names another binary). Without a browser the tests are skipped.
With `GPU_RECOVERY_NEEDS_BROWSER=1`, as in CI, a missing browser is a failure.

All tests share one browser, and most share a context of it (`windows`). Tests of what the API does share one
deployment, and one recovery that was watched through the page (`healed`). Tests of the page alone read recorded answers
(`examples`), which take no processor time.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.console.browser.examples import answer_with_examples, console_url
from tests.console.browser.healing import Healed, watch_a_recovery
from tests.console.browser.visit import Visit, checked_visits
from tests.console.browser.windows import Windows
from tests.sandbox.patience import wait_until

__all__ = ["Deployment", "Visit", "become_idle", "offline"]
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or ""
NEEDED = os.environ.get("GPU_RECOVERY_NEEDS_BROWSER") == "1"
POLICY = {
    "poll_interval_s": 5,
    "pending_retry_s": 5,
    "reboot_settle_s": 4,
    "reboot_timeout_s": 60,
    "recovered_after_s": 5,
    "breaker_window_s": 3_600,
    "hold_retry_interval_s": 2,
}
CLUSTER_OPTIONS = ("--timings", '{"boot_s": 7}')
"""A reboot takes longer than the time within which the page must show it."""
INSTANCES = 4
ENDED = ("SUCCEEDED", "FAILED", "CANCELED")


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

    @property
    def token(self) -> str:
        """The operator token."""
        return str(self.state["operator_token"])

    def call(self, method: str, path: str, token: str = "", **how: Any) -> httpx.Response:
        """Send a request to the API past the page, as the operator or with another token or session."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.request(method, f"{self.state['api_url']}/api/v2{path}", headers=headers, timeout=60, **how)

    def reconcile(self) -> None:
        """Run a reconcile cycle now, so that the console snapshots are those of the present records."""
        functions = sandbox.client("lambda", self.state["endpoint_url"], self.state)
        names = [each["FunctionName"] for each in functions.list_functions()["Functions"]]
        (name,) = [each for each in names if "reconciler" in each.lower()]
        functions.invoke(FunctionName=name, Payload="{}")

    def incident(self, incident_id: str) -> dict[str, Any]:
        """Return an incident; {} if it is not known yet."""
        answer = self.call("GET", f"/incidents/{incident_id}")
        return dict(answer.json()) if answer.status_code == 200 else {}


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
    """A sandbox with four instances, each with its agent."""
    directory = tmp_path_factory.mktemp("console")
    try:
        state = sandbox.up(
            directory, instances=INSTANCES, gpus=8, policy=POLICY, agents=True, cluster_options=CLUSTER_OPTIONS
        )
        with RecoveryClient(state["api_url"], state["operator_token"]) as operator:
            wait_until(lambda: len(list(operator.instances())) == INSTANCES)
            yield Deployment(directory, state, operator)
    finally:
        sandbox.down(directory)


@pytest.fixture(scope="package")
def healed(browser: Any, deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Healed:
    """A GPU fault that was healed, watched through the page. All other tests find its job and its incident."""
    become_idle(deployment)
    return watch_a_recovery(browser, deployment, tmp_path_factory.mktemp("healed"))


@pytest.fixture(scope="session")
def windows(browser: Any) -> Iterator[Windows]:
    """The contexts that tests share."""
    made = Windows(browser)
    yield made
    made.end()


@pytest.fixture(scope="session")
def opened_tabs(windows: Windows) -> Callable[[str], AbstractContextManager[Callable[..., Visit]]]:
    """Opens tabs at the console of an address: `open_(width=1280, locale="en-GB", dark=False, own=False)`.

    A page that throws, breaks the policy, or shows or keeps a token or a session where it must not, fails.
    """

    @contextmanager
    def opened_tabs_(url: str) -> Iterator[Callable[..., Visit]]:
        with checked_visits(windows) as opened:

            def open_(
                width: int = 1280, locale: str = "en-GB", *, dark: bool = False, height: int = 800, **further: Any
            ) -> Visit:
                page = windows.tab(width, height, locale=locale, dark=dark, **further)
                opened.append(Visit.of(page, url))
                opened[-1].go()
                return opened[-1]

            yield open_

    return opened_tabs_


@pytest.fixture(scope="session")
def examples_url() -> Iterator[str]:
    """The address of a console whose answers are recorded, without a deployment."""
    with console_url() as address:
        yield address


@pytest.fixture
def examples(opened_tabs: Any, examples_url: str) -> Iterator[Callable[..., Visit]]:
    """Opens tabs in front of recorded answers, signed in: `open_(place="#/", viewer=False, **how)`."""
    with opened_tabs(examples_url) as open_:

        def open_examples(place: str = "#/", *, viewer: bool = False, **how: Any) -> Visit:
            tab: Visit = open_(**how)
            answer_with_examples(tab.page)
            tab.go(place)
            tab.sign_in("any text", viewer=viewer)
            return tab

        yield open_examples


@pytest.fixture
def visit(opened_tabs: Any, deployment: Deployment) -> Iterator[Callable[..., Visit]]:
    """Opens tabs at the console of the deployment."""
    with opened_tabs(deployment.console_url) as open_:
        yield open_


def become_idle(deployment: Deployment) -> None:
    """End every job, and wait until every instance is available again. Other tests use the same deployment."""
    operator = deployment.operator
    for job in list(operator.jobs()):
        if job["status"] not in ENDED:
            operator.cancel(job["job_id"])

    def is_idle() -> bool:
        for instance in operator.instances():
            if instance["status"] == "QUARANTINED":
                operator.release(instance["instance_id"])
        return all(job["status"] in ENDED for job in operator.jobs()) and all(
            instance["status"] == "AVAILABLE" and not instance["claims"] and instance["held"] is None
            for instance in operator.instances()
        )

    wait_until(is_idle, lambda: [list(operator.jobs()), list(operator.instances())])


@contextmanager
def offline(tab: Visit) -> Iterator[None]:
    """Cut the connection of a tab for the duration of the block."""
    tab.page.context.set_offline(True)
    try:
        yield
    finally:
        tab.page.context.set_offline(False)
