"""A recovery that is watched through the page: what each page showed at which time, and what was decided when."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox import sandbox
from tests.console.browser.visit import TWICE, Visit
from tests.sandbox.patience import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from tests.console.browser.conftest import Deployment

PATIENCE_MS = PATIENCE_S * 1_000
READ_EVERY_S = 0.4
"""Seconds between two looks of the reader at the API. A look itself takes longer while the machine is busy."""
MARKUP = "<img src=x onerror=window.__ran=1>"
"""Text that runs a script if a page takes it for markup."""
PROGRAM = (
    f"import time; print({MARKUP!r}, flush=True); "
    "[(print('step', n, flush=True), time.sleep(0.2)) for n in range(10_000)]"
)
"""A training program in one line, as the form takes it: one argument a line."""
COMMAND = ["gpu-recovery-run", "--", "python", "-uc", PROGRAM]
SQUARE = """
() => {
  const cursor = document.querySelector(".heatmap .cursor");
  const canvas = document.querySelector(".heatmap .area canvas");
  if (cursor === null || canvas === null) return "";
  const said = /(i-[0-9a-f]+), ([^,]+), since/.exec(cursor.getAttribute("aria-label"));
  const scale = canvas.width / canvas.clientWidth;
  const [, x, y] = /translate\\(([\\d.]+)px, ([\\d.]+)px\\)/.exec(cursor.style.transform).map(Number);
  const size = (parseFloat(cursor.style.width) + 1) * scale;
  const image = canvas.getContext("2d").getImageData(x * scale, y * scale, size, size).data;
  const counts = {};
  for (let at = 0; at < image.length; at += 4) {
    if (image[at + 3] !== 255) continue;
    const colour = [0, 1, 2].map((part) => image[at + part].toString(16).padStart(2, "0")).join("");
    counts[colour] = (counts[colour] ?? 0) + 1;
  }
  const [ink] = Object.entries(counts).sort((one, other) => other[1] - one[1])[0] ?? [""];
  return `${said?.[1]} ${said?.[2]} #${ink}`;
}
"""
"""The instance under the map's cursor, its state in words, and the colour of most pixels of its square."""
BAR = """
() => {
  const lanes = [...document.querySelectorAll(".gantt .lane")].filter((lane) => lane.querySelector(".piece.phase"));
  const words = (piece) => piece.querySelector("span").textContent.replace(/^\\S+ /, "").trim();
  return lanes.map((lane) => [...lane.querySelectorAll(".piece.phase")].map(words).join(" > ")).join(" | ");
}
"""
"""The phases of the job's bar in words: an attempt, and then the next."""
LIST = r"""
() => [...document.querySelectorAll("main section")]
  .flatMap((section) => [...section.querySelectorAll("tbody tr")].map((row) => {
    const [state, id] = [...row.querySelectorAll("td")].map((cell) => cell.innerText.trim());
    return `${section.ariaLabel}: ${id} ${state}`;
  }))
  .join("\n")
"""
"""The rows of the list of incidents: the name of the part, the incident and its state."""
SIGN_IN = """() => document.querySelector("input[name=token]") === null ? "page" : "sign-in" """
"""Whether the tab shows a page or the sign-in."""
RECORD = """
  window.__seen = [];
  const record = () => {
    const what = look();
    if (window.__seen.at(-1)?.what !== what) window.__seen.push({at: Date.now() / 1000, what});
  };
  record();
  setInterval(record, 50);
"""
"""Script that records what `look` returns, and when it changes."""


@dataclass(frozen=True)
class Seen:
    """What a page showed from a time on (seconds since the epoch, by the clock of this computer)."""

    at: float
    what: str


@dataclass(frozen=True)
class Decision:
    """A decision about a record: its status, the time of the decision, and the time from which the API told of it."""

    status: str
    at: float
    readable_at: float


@dataclass(frozen=True)
class Healed:
    """A job whose GPU fault was healed, and what the pages showed meanwhile.

    about_instance, about_job: the changes of status after the fault, oldest first.
    incident:  the incident's two decisions, "open" and "closed".
    square, bar, incidents: what the map, the timeline of the job and the list of incidents showed.
    looks:     times of the looks at the API past the page.
    ending:    a tab that is still open, whose token was revoked at `revoked_at`, and the answers to its requests.
    tabs:      the other tabs, which are closed. `faults` is what they must not have done.
    har:       the HTTP archive of these tabs.
    """

    job_id: str
    sick: str
    incident_id: str
    about_instance: list[Decision]
    about_job: list[Decision]
    incident: list[Decision]
    square: list[Seen]
    bar: list[Seen]
    incidents: list[Seen]
    looks: list[float]
    revoked_at: float
    answers: list[tuple[float, int]]
    """Time of the request, and status of the answer."""
    ending: Visit = field(repr=False)
    tabs: list[Visit] = field(repr=False)
    faults: list[str] = field(repr=False)
    har: Path = field(repr=False)


def seconds(text: str) -> float:
    """Return a time of the API in seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()


class Reader(threading.Thread):
    """Reads the API past the page, so that a slow deployment is not taken for a slow page.

    told:  (record, status) or (incident, state), and the time of the look that found it first.
    looks: the time of each look.
    """

    def __init__(self, deployment: Deployment, incident_id: str) -> None:
        super().__init__(daemon=True)
        self.told: dict[tuple[str, str], float] = {}
        self.looks: list[float] = []
        self._deployment, self._incident_id, self._over = deployment, incident_id, threading.Event()

    def run(self) -> None:
        """Read the events of the incident, and its state, until the end."""
        while not self._over.wait(READ_EVERY_S):
            thread = self._deployment.incident(self._incident_id)
            now = time.time()
            self.looks.append(now)
            for event in thread.get("events", []):
                self.told.setdefault((str(event["instance_id"] or event["job_id"]), str(event["after"])), now)
            if thread:
                self.told.setdefault((self._incident_id, str(thread["state"])), now)

    def end(self) -> None:
        """End the thread."""
        self._over.set()
        self.join()

    def decisions(self, record: str, history: list[tuple[str, str]]) -> list[Decision]:
        """Return the changes of status of a record, from (time, status) of its history."""
        changes = [(at, status) for n, (at, status) in enumerate(history) if n == 0 or status != history[n - 1][1]]
        return [
            Decision(status, seconds(at), max(seconds(at), self.told.get((record, status), 0)))
            for at, status in changes
        ]


def watch_a_recovery(browser: Any, deployment: Deployment, folder: Path) -> Healed:
    """Submit a job from the form, break a GPU of it, and watch the pages until it runs again and all is in use.

    A fourth tab has a session whose token is revoked at the beginning. It stays open.
    """
    har, operator = folder / "healed.har", deployment.operator
    context, tabs = _signed_in_tabs(browser, deployment, har)
    ending, answers, revoked_at = tab_of_a_revoked_token(browser, deployment)
    overview, job, incidents = tabs
    job_id = submit_from_the_form(job, deployment)
    job.page.locator(".head .status", has_text="running").wait_for(timeout=PATIENCE_MS)
    sick = str(operator.job(job_id)["instances"][-1])
    find_on_the_map(overview, deployment, sick)
    overview.page.locator(".heatmap .cursor[aria-label*='in use']").wait_for(timeout=PATIENCE_MS, state="attached")
    for tab, look in zip(tabs, (SQUARE, BAR, LIST), strict=False):
        tab.page.evaluate(f"() => {{ const look = {look}; {RECORD} }}")
    incident_id = f"{job_id}--a01"
    reader = Reader(deployment, incident_id)
    reader.start()
    with finished_after(reader):
        break_and_follow(overview, deployment, sick)
        job.page.locator(".head .status", has_text="running").wait_for(timeout=PATIENCE_MS)
        wait_until(lambda: (incident_id, "closed") in reader.told)
        closed = incidents.page.get_by_role("region", name="Closed").get_by_role("link", name=incident_id)
        closed.wait_for(timeout=PATIENCE_MS)
        listed = incidents.page.get_by_role("region", name="Open").get_by_role("link", name=incident_id)
        listed.wait_for(state="detached", timeout=PATIENCE_MS)  # the two parts of the list are read one by one
    incident = deployment.incident(incident_id)
    begun = seconds(incident["opened_at"]) - 3
    histories = {
        name: [(each["at"], each["to"]) for each in record["history"] if seconds(each["at"]) >= begun]
        for name, record in ((sick, operator.instance(sick)), (job_id, operator.job(job_id)))
    }
    incidents.page.wait_for_timeout(200)  # several records of what the pages show
    faults = [fault for tab in tabs for fault in tab.faults()]
    recorded = [seen(tab) for tab in tabs]
    context.close()
    return Healed(
        job_id=job_id,
        sick=sick,
        incident_id=incident_id,
        about_instance=reader.decisions(sick, histories[sick]),
        about_job=reader.decisions(job_id, histories[job_id]),
        incident=reader.decisions(incident_id, [(incident["opened_at"], "open"), (incident["closed_at"], "closed")]),
        square=recorded[0],
        bar=recorded[1],
        incidents=recorded[2],
        looks=reader.looks,
        revoked_at=revoked_at,
        answers=answers,
        ending=ending,
        tabs=tabs,
        faults=faults,
        har=har,
    )


def tab_of_a_revoked_token(browser: Any, deployment: Deployment) -> tuple[Visit, list[tuple[float, int]], float]:
    """Return a tab that was signed in with a token, the answers to its requests, and when the token was revoked."""
    operator = deployment.operator
    issued = operator.issue_user_token("eve", "user")
    tab = Visit.of(browser.new_context(locale="en-GB").new_page(), deployment.console_url)
    tab.go("#/jobs?user=eve")
    tab.sign_in(str(issued["token"]))
    answers: list[tuple[float, int]] = []
    tab.page.on("response", lambda answer: answers.append((answer.request.timing["startTime"] / 1_000, answer.status)))
    tab.page.evaluate(f"() => {{ const look = {SIGN_IN}; {RECORD} }}")
    operator.revoke_user_token("eve", issued["id"])
    return tab, answers, time.time()


def _signed_in_tabs(browser: Any, deployment: Deployment, har: Path) -> tuple[Any, list[Visit]]:
    """Return a recorded context and three tabs of the operator in it."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        locale="en-GB",
        color_scheme="light",
        record_har_path=str(har),
        record_har_content="embed",
    )
    tabs = [Visit.of(context.new_page(), deployment.console_url) for _ in range(3)]
    for tab, place in zip(tabs, ("#/", "#/submit", "#/incidents"), strict=True):
        tab.go(place)
        tab.sign_in(deployment.token)
    return context, tabs


def break_and_follow(overview: Visit, deployment: Deployment, instance_id: str) -> None:
    """Break a GPU of an instance, and follow the repair on the map until the instance is in use again.

    A health check is over in a second here. Each of the two is held until the map has shown the status.
    """
    instances = sandbox.cluster_state(deployment.directory)["instances"]
    folder = next(Path(each["folder"]) for each in instances if each["instance_id"] == instance_id)
    with ExitStack() as check, ExitStack() as verification:
        begun = check.enter_context(held(folder, "check"))
        sandbox.fault(deployment.directory, instance_id, "xid79")
        shows(overview, "checking")
        wait_until(begun.exists)  # the status comes before the process, which would wait for the verification too
        verification.enter_context(held(folder, "verification"))
        check.close()
        shows(overview, "verifying")
    shows(overview, "in use")


@contextmanager
def held(folder: Path, name: str) -> Iterator[Path]:
    """Let the health checks of an instance that begin in this block wait until its end.

    The path that is handed over exists as soon as a check waits.
    """
    python, mark, changed = folder / "bin/python", folder / f"{name}.held", folder / "bin/python.new"
    begun = folder / f"{name}.begun"
    shell, run = python.read_text().split("\n", 1)
    wait = f"while [ -e {shlex.quote(str(mark))} ]; do touch {shlex.quote(str(begun))}; sleep 0.1; done"
    mark.touch()
    changed.write_text(f"{shell}\n{wait}\n{run}")
    changed.chmod(0o755)
    changed.replace(python)  # a check that has begun goes on with the script that it has opened
    try:
        yield begun
    finally:
        mark.unlink()


@contextmanager
def finished_after(reader: Reader) -> Iterator[None]:
    """End the reader after the block."""
    try:
        yield
    finally:
        reader.end()


def shows(tab: Visit, state: str) -> None:
    """Wait until the map's cursor is on a square with this state."""
    tab.page.locator(f".heatmap .cursor[aria-label*=', {state}, ']").wait_for(state="attached", timeout=PATIENCE_MS)


def seen(tab: Visit) -> list[Seen]:
    """Return what the page of a tab has shown so far."""
    return [Seen(**each) for each in tab.page.evaluate("window.__seen")]


def submit_from_the_form(tab: Visit, deployment: Deployment) -> str:
    """Submit a job of all instances from the form of the page, and return its id. The page is then that of the job."""
    page = tab.page
    fields = {
        "workload": "healed",
        "nnodes": str(len(list(deployment.operator.instances()))),
        "n_gpus_per_node": "8",
        "task_definition": sandbox.TRAINING_FAMILY,
        "user": "ana",
        "suspend_grace_s": "5",
        "checkpoint_dir": str(deployment.directory / "healed"),
    }
    for name, value in fields.items():
        page.locator(f"input[name={name}]").fill(value)
    page.locator("textarea[name=command]").fill("\n".join(COMMAND))
    page.get_by_role("button", name="Check (dry run)").click()
    submit = page.get_by_role("button", name="Submit", exact=True)
    page.locator("button:not([disabled])").and_(submit).wait_for()
    submit.evaluate(TWICE)
    page.wait_for_url("**/console#/jobs/*")
    return str(page.url.rpartition("/")[2])


def find_on_the_map(tab: Visit, deployment: Deployment, instance_id: str) -> None:
    """Put the cursor of the map on an instance, once the reconciler has written a map."""
    deployment.reconcile()

    def is_mapped() -> bool:
        tab.refresh()
        tab.page.wait_for_timeout(300)
        return bool(tab.page.locator(".heatmap .area canvas[data-drawn]").count())

    wait_until(is_mapped)
    tab.page.locator(".heatmap input[type=search]").fill(instance_id)
    tab.page.locator(f".heatmap .cursor[aria-label*='{instance_id}']").wait_for(state="attached")
