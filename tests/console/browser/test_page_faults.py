"""Pages in front of answers that a real deployment seldom gives: late, refused, old, or of another question.

The deployment is a small fake server (`console/fake`), and each test answers the requests that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from console.fake.model import Size
from console.fake.server import FakeServer, running
from tests.console.browser.conftest import Visit

pytestmark = [pytest.mark.slow, pytest.mark.console]
Visiting = Callable[..., Visit]
INSTANCE = "i-0aaa00000000000a1"
JOB_ID, INCIDENT_ID = "sft-20261121-000000-0001", "sft-20261121-000000-0001--a01"
BUSY = {"status": 429, "headers": {"Retry-After": "1"}, "body": ""}


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeServer]:
    """The server."""
    with running(Size(instances=3, jobs=0, events_a_second=0)) as server:
        yield server


@pytest.fixture
def visit(opened_tabs: Callable[..., AbstractContextManager[Visiting]], fake: FakeServer) -> Iterator[Visiting]:
    """Opens tabs and signs in."""
    with opened_tabs(fake.url) as open_:

        def visit_(place: str = "#/users", **context: Any) -> Visit:
            tab = open_(**context)
            tab.go(place)
            tab.sign_in("any text")
            return tab

        yield visit_


def ago(**span: float) -> str:
    """A time in the past, as the API writes it."""
    return (datetime.now(UTC) - timedelta(**span)).strftime("%Y-%m-%dT%H:%M:%SZ")


def row(**changes: Any) -> dict[str, Any]:
    """A job in a list."""
    return {
        "job_id": JOB_ID,
        "status": "QUEUED",
        "reason": "waits",
        "attempt": 0,
        "attempts_max": 3,
        "user": "ana",
        "group": "",
        "priority": "NORMAL",
        "asked_priority": "NORMAL",
        "backend": "ecs",
        "nnodes": 2,
        "n_gpus_per_node": 8,
        "origin": "API",
        "queued_at": ago(minutes=5),
        "status_at": ago(minutes=5),
        "incident_id": None,
        "held": False,
        "short_of": None,
        **changes,
    }


def job(**changes: Any) -> dict[str, Any]:
    """A job, as its page reads it."""
    more: dict[str, Any] = {"deadline_at": None, "diagnosis": None, "failure": None, "instances": [], "history": []}
    attempts = [{"attempt": number, "status": "FAILED", "started_at": ago(hours=1)} for number in (1, 2)]
    return row(attempts=attempts, **more) | changes


def queue(as_of: str) -> dict[str, Any]:
    """The snapshot of a queue in which no job waits."""
    none = {"jobs": 0, "instances": 0, "gpus": 0}
    lists = ("groups", "waiting", "running", "quotas", "reservations", "unreadable")
    totals = [{"priority": "NORMAL", "running": none, "queued": none}]
    return {**{name: [] for name in lists}, "as_of": as_of, "next_cursor": None, "totals": totals}


def answer(tab: Visit, path: str, *answers: Any) -> list[str]:
    """Answer the requests to a path: the first with the first, and so on; further requests with the last.

    An answer that is no dictionary with a status is the body of a 200.

    Returns:
        The methods of the requests so far.
    """
    seen: list[str] = []

    def respond(route: Any) -> None:
        given = answers[min(len(seen), len(answers) - 1)]
        seen.append(route.request.method)
        route.fulfill(**(given if isinstance(given.get("status"), int) else {"json": given}))

    tab.page.route(lambda url: url.partition("?")[0].endswith(path), respond)
    return seen


def hold(tab: Visit, path: str) -> list[Any]:
    """Keep the requests to a path without an answer. The returned routes are for the test to fulfill."""
    held: list[Any] = []

    def keep(route: Any) -> None:
        held.append(route)

    tab.page.route(lambda url: url.partition("?")[0].endswith(path), keep)
    return held


def held_request(tab: Visit, held: list[Any], number: int) -> Any:
    """Wait for a request that `hold` keeps.

    Args:
        tab: tab of the page. The driver delivers requests during its own calls only.
        held: what `hold` returned.
        number: position of the request, from 0.

    Raises:
        AssertionError: the page did not send the request within 200 looks.
    """
    for _ in range(200):
        if len(held) > number:
            return held[number]
        tab.page.wait_for_timeout(30)
    raise AssertionError(f"the page sent {len(held)} requests, not {number + 1}")


def passes(tab: Visit, ms: int) -> None:
    """Let time pass on the clock of the page, which `tab.page.clock.install()` has stopped."""
    for _ in range(ms // 1_000):
        tab.page.clock.run_for(1_000)
    tab.page.wait_for_timeout(50)  # the driver delivers requests during its own calls only


def problem(status: int, detail: str) -> dict[str, Any]:
    """A refusal of the API."""
    return {"status": status, "json": {"status": status, "code": "no_log", "detail": detail}}


def test_a_page_of_an_older_build_asks_for_a_reload(visit: Visiting) -> None:
    """Its file is gone. The other pages go on."""
    tab = visit()
    tab.page.route("**/console/assets/*.js", lambda route: route.fulfill(status=404, body=""))
    tab.page.route("**/console", lambda route: route.fulfill(body='<script src="./console/assets/index-newer.js">'))
    tab.go("#/diagnose")
    tab.page.get_by_role("alert").get_by_text("A newer console is there").wait_for()
    tab.go("#/")
    tab.page.locator("main h1", has_text="Overview").wait_for()
    tab.go("#/diagnose")
    reload = tab.page.get_by_role("alert").get_by_role("button", name="Reload")
    reload.wait_for()
    tab.page.unroute_all()
    reload.click()
    tab.page.locator("main h1", has_text="Diagnose").wait_for()


def test_a_page_whose_file_cannot_be_reached_says_so(visit: Visiting) -> None:
    """It waits for the connection. Older browsers keep the failure of an import: a reload is offered then."""
    tab = visit(own=True)
    tab.page.context.set_offline(True)
    tab.go("#/diagnose")
    tab.page.get_by_text("This part could not be loaded. Trying again.").wait_for()
    tab.page.context.set_offline(False)
    reload = tab.page.get_by_role("alert").get_by_role("button", name="Reload")
    page = tab.page.locator("main h1", has_text="Diagnose")
    reload.or_(page).wait_for()
    if reload.is_visible():
        reload.click()
    page.wait_for()


def test_what_is_read_once_is_tried_again_until_the_api_answers(visit: Visiting) -> None:
    """A job that has ended is not polled, and the limits of the quotas are read when their dialog opens."""
    tab = visit()
    seen = answer(tab, f"/jobs/{JOB_ID}", BUSY, job(status="SUCCEEDED"))
    tab.go(f"#/jobs/{JOB_ID}?tab=spec")
    tab.page.locator(".banner").wait_for()
    tab.page.locator("h1", has_text=JOB_ID).wait_for()
    assert seen == ["GET", "GET"]
    limits = {"instances": {"ana/*/*": 3}, "max_running_jobs": None, "max_running_jobs_per_user": None}
    seen = answer(tab, "/quotas", BUSY, {"limits": limits, "revision": 1})
    answer(tab, "/queue", queue(ago(minutes=1)))
    tab.go("#/queue")
    tab.page.get_by_role("button", name="Change the limits").click()
    assert tab.page.get_by_role("dialog").get_by_label("Instances", exact=True).input_value() == "3"
    assert seen == ["GET", "GET"]


def test_a_queue_that_nobody_writes_is_called_old(visit: Visiting) -> None:
    """Also while no job waits in it: the scheduler writes every five minutes then, too."""
    tab = visit()
    for minutes, look in ((5, ""), (7, "late"), (16, "stopped")):
        answer(tab, "/queue", queue(ago(minutes=minutes)))
        tab.see("#/queue")
        tab.page.locator(".freshness").wait_for()
        assert (tab.page.locator(".freshness").get_attribute("class") or "").split()[1:] == look.split()
        tab.see("#/users")


def test_the_dialog_of_an_order_outlives_the_list(visit: Visiting) -> None:
    """The jobs have left the list meanwhile; the dialog still shows what was chosen, and sends it."""
    tab = visit(own=True)
    tab.page.clock.install()
    answer(tab, "/jobs", {"jobs": [row()], "next_cursor": None, "unreadable": []}, {"jobs": [], "next_cursor": None})
    posts = answer(tab, "/cancel", job(status="CANCELED"))
    tab.go("#/jobs?state=waiting")
    tab.page.get_by_label("Select all jobs of this page").check()
    tab.page.get_by_role("button", name="Cancel", exact=True).click()
    passes(tab, 12_000)
    tab.page.get_by_text("No job matches these filters.").wait_for()
    dialog = tab.page.get_by_role("dialog")
    dialog.locator("input[name=typed]").fill("1")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    dialog.get_by_role("button", name="Close").click()
    dialog.wait_for(state="detached")
    assert posts == ["POST"]


def test_a_dialog_stays_until_its_order_is_answered(visit: Visiting) -> None:
    """Neither Escape nor "back" takes away the place where the answer appears. Then the focus returns."""
    tab = visit("#/fleet")
    sent = hold(tab, "/fleet/pause")
    pause = tab.page.get_by_role("button", name="Pause repairs")
    pause.click()
    dialog = tab.page.get_by_role("dialog")
    dialog.locator("input[name=reason]").fill("a new driver")
    dialog.locator("button[type=submit]").click()
    for _ in range(3):
        tab.page.keyboard.press("Escape")
        tab.page.wait_for_timeout(30)
    assert dialog.is_visible() and dialog.get_by_role("button", name="Back").is_disabled()
    held_request(tab, sent, 0).fulfill(**problem(409, "the circuit breaker is open"))
    dialog.get_by_role("alert").get_by_text("the circuit breaker is open").wait_for()
    tab.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert pause.evaluate("(button) => button === document.activeElement")


def test_the_dialog_of_the_limits_stays_until_they_are_saved(visit: Visiting) -> None:
    """As that of every order."""
    tab = visit()
    limits = {"instances": {"ana/*/*": 3}, "max_running_jobs": None, "max_running_jobs_per_user": None}
    answer(tab, "/quotas", {"limits": limits, "revision": 1})
    answer(tab, "/queue", queue(ago(minutes=1)))
    tab.go("#/queue")
    tab.page.get_by_role("button", name="Change the limits").click()
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_label("Instances", exact=True).fill("5")
    held = hold(tab, "/quotas")
    dialog.get_by_role("button", name="Save").click()
    for _ in range(3):
        tab.page.keyboard.press("Escape")
        tab.page.wait_for_timeout(30)
    assert dialog.is_visible()
    held_request(tab, held, 0).fulfill(json={"limits": limits, "revision": 2})
    dialog.wait_for(state="detached")
    tab.page.get_by_text("saved as revision 2").wait_for()


def test_a_log_that_will_not_appear_is_asked_for_once(visit: Visiting) -> None:
    """The attempt is over. While it runs, its log may appear."""
    tab = visit(own=True)
    tab.page.clock.install()
    seen = answer(tab, "/logs", problem(404, "rank 0 of attempt 1 has no known task"))
    answer(tab, f"/jobs/{JOB_ID}", job(status="RUNNING", attempt=2))
    tab.go(f"#/jobs/{JOB_ID}?tab=log&attempt=1")
    tab.page.get_by_role("alert").get_by_text("has no known task").wait_for()
    passes(tab, 60_000)
    assert seen == ["GET"]
    tab.page.locator("select[name=attempt]").select_option("2")
    passes(tab, 25_000)
    assert len(seen) >= 3


def test_a_log_waits_as_long_as_the_api_asks(visit: Visiting) -> None:
    """`Retry-After` holds for the log, too."""
    tab = visit(own=True)
    tab.page.clock.install()
    lines = {"lines": [{"at": None, "text": "step 1"}], "next_cursor": None}
    seen = answer(tab, "/logs", {**BUSY, "headers": {"Retry-After": "300"}}, lines)
    answer(tab, f"/jobs/{JOB_ID}", job(status="SUCCEEDED", attempt=2))
    tab.go(f"#/jobs/{JOB_ID}?tab=log")
    tab.page.locator(".banner").wait_for()
    passes(tab, 120_000)
    assert seen == ["GET"]
    tab.page.clock.run_for(200_000)
    tab.page.locator("pre.log", has_text="step 1").wait_for()


def incident(**changes: Any) -> dict[str, Any]:
    """An open incident of the job, as the API shows it."""
    thread: dict[str, Any] = dict.fromkeys(("cause", "closed_at", "confidence", "gpu_h_lost", "outcome", "instance_id"))
    thread |= {name: [] for name in ("attempts", "events", "instances", "phases")}
    thread |= {"incident_id": INCIDENT_ID, "job_id": JOB_ID, "state": "open", "opened_at": ago(minutes=9), "gpus": 16}
    thread |= {"decided": False, "left_out": 0, "passed_checks": {"instances": 0, "named": []}, "reason": ""}
    return {**thread, "user": "ana", "priority": "LOW", **changes}


def event(version: int, after: str | None, reason: str, **changes: Any) -> dict[str, Any]:
    """An event about the instance."""
    of: dict[str, Any] = dict.fromkeys(("before", "attempt", "check_id", "message", "diagnosis", "failure", "job_id"))
    of |= {"id": f"{INSTANCE}/{version}/instance_state_changed", "kind": "instance_state_changed", "at": ago(minutes=5)}
    of |= {"instance_id": INSTANCE, "incident_id": f"{INSTANCE}/1", "after": after, "reason": reason, "gpus": 8}
    return {**of, **changes}


def test_an_incident_says_what_happens_now_and_which_instance_needs_an_operator(visit: Visiting) -> None:
    """The last change, and not the first. The job itself needs nobody."""
    tab = visit()
    told = {"severity": "SEV2", "subject": f"{INSTANCE}: quarantined, needs an operator"}
    asked = event(3, None, "", kind="operator_action_required", message=told)
    history = [event(1, "CHECKING", "an XID"), event(2, "QUARANTINED", "must be replaced"), asked]
    answer(tab, f"/jobs/{JOB_ID}", job(status="RUNNING", incident_id=INCIDENT_ID))
    answer(tab, f"/incidents/{INCIDENT_ID}", incident(reason="an XID", events=history))
    tab.go(f"#/incidents/{INCIDENT_ID}")
    tab.page.locator(".reason", has_text="Now:").get_by_text("must be replaced").wait_for()
    tab.page.locator(".act", has_text="No. The job runs.").get_by_text(
        f"An operator must also see to {INSTANCE}"
    ).wait_for()
    own = [{**each, "incident_id": INCIDENT_ID} for each in history]
    answer(tab, f"/incidents/{INCIDENT_ID}", incident(job_id=None, events=own))
    tab.go("#/jobs")
    tab.go(f"#/incidents/{INCIDENT_ID}")
    tab.page.locator(".act", has_text="then release it on its page").wait_for()
    answer(tab, f"/incidents/{INCIDENT_ID}", incident(job_id=None, events=[*own, event(4, "VERIFYING", "released")]))
    tab.go("#/jobs")
    tab.go(f"#/incidents/{INCIDENT_ID}")
    tab.page.locator(".reason", has_text="released").wait_for()
    assert tab.page.get_by_text("then release it on its page").count() == 0


def test_a_job_that_does_not_start_by_itself_says_who_must_act(visit: Visiting) -> None:
    """On its page and on that of its open incident."""
    tab = visit()
    answer(tab, f"/incidents/{INCIDENT_ID}", incident())
    says = {"cluster": "Yes. The cluster is too small", "permission": "Yes. gpu-recovery lacks", "quota": "Only if"}
    for short_of, sentence in says.items():
        answer(tab, f"/jobs/{JOB_ID}", job(status="PENDING_RESOURCES", short_of=short_of, incident_id=INCIDENT_ID))
        for place in (f"#/jobs/{JOB_ID}?tab=spec", f"#/incidents/{INCIDENT_ID}"):
            tab.go(place)
            tab.page.locator(".act", has_text=sentence).wait_for()


def test_an_order_about_a_waiting_job_speaks_of_no_instances(visit: Visiting) -> None:
    """It holds none."""
    tab = visit()
    answer(tab, f"/jobs/{JOB_ID}", job())
    tab.go(f"#/jobs/{JOB_ID}?tab=spec")
    for name in ("Suspend", "Cancel"):
        tab.page.get_by_role("button", name=name, exact=True).click()
        tab.page.get_by_role("dialog").get_by_text("holds no instances").wait_for()
        tab.page.keyboard.press("Escape")


def test_a_verdict_is_shown_under_its_own_question_alone(visit: Visiting) -> None:
    """Neither an answer that comes late nor the choice of another attempt changes that."""
    tab = visit("#/diagnose")
    asked = hold(tab, "/diagnoses")
    found: dict[str, Any] = {"findings": [], "verdict": None, "cause": None}
    lines = tab.page.locator("textarea[name=lines]")
    lines.fill("the first question")
    tab.page.get_by_role("button", name="Judge the lines").click()
    tab.page.locator("input[name=job]").fill(JOB_ID)
    tab.page.get_by_role("button", name="Diagnose", exact=True).click()
    tab.page.get_by_text(f"Judging {JOB_ID}").wait_for()
    held_request(tab, asked, 1).fulfill(**problem(404, "there is no such job"))
    tab.page.get_by_role("alert").get_by_text("there is no such job").wait_for()
    asked[0].fulfill(json=found)
    tab.page.wait_for_timeout(100)
    assert tab.page.get_by_text("Nothing in this log").count() == 0

    answer(tab, f"/jobs/{JOB_ID}", job(status="SUCCEEDED", attempt=2))
    tab.go(f"#/jobs/{JOB_ID}?tab=diagnosis")
    tab.page.get_by_role("button", name="Diagnose this attempt").click()
    held_request(tab, asked, 2).fulfill(json=found)
    verdict = tab.page.get_by_text("Nothing in this log")
    verdict.wait_for()
    tab.page.locator("select[name=attempt]").select_option("1")
    verdict.wait_for(state="detached")


def test_a_decision_of_another_day_has_its_date(visit: Visiting) -> None:
    """A time of day alone would be read as today's."""
    tab = visit()
    decisions = [
        {"at": ago(days=days), "from": None, "to": "QUEUED", "attempt": 0, "reason": f"{days} days ago", "event": ""}
        for days in (0, 3)
    ]
    answer(tab, "/explain", {"pending": None, "decisions": decisions})
    answer(tab, f"/jobs/{JOB_ID}", job())
    tab.go(f"#/jobs/{JOB_ID}?tab=why")
    today, older = (
        tab.page.locator("tr", has_text=f"{days} days ago").locator("time").first.inner_text() for days in (0, 3)
    )
    assert str(datetime.now(UTC).year) in older and str(datetime.now(UTC).year) not in today


def test_the_title_of_the_tab_says_what_it_shows(visit: Visiting) -> None:
    """In the language of the page."""
    tab = visit("#/queue", locale="zh-CN")
    tab.page.locator("header.bar").wait_for()
    assert tab.page.title() == "队列 · gpu-recovery"
    tab.go(f"#/jobs/{JOB_ID}")
    tab.page.wait_for_function("(title) => document.title === title", arg=f"{JOB_ID} · 作业 · gpu-recovery")


def test_only_the_servers_sentences_are_marked_as_english(visit: Visiting) -> None:
    """A screen reader pronounces each part in its language."""
    tab = visit(locale="zh-CN")
    answer(tab, f"/jobs/{JOB_ID}", job())
    answer(tab, "/suspend", job(status="SUSPENDED", reason="suspended by ana"))
    tab.go(f"#/jobs/{JOB_ID}?tab=spec")
    tab.page.get_by_role("button", name="挂起").click()
    tab.page.get_by_role("dialog").locator("button[type=submit]").click()
    told = tab.page.locator(".announcements p")
    told.wait_for()
    assert told.locator("[lang=en]").inner_text() == "suspended by ana"
    assert tab.page.locator(".announcements[lang], .announcements p[lang]").count() == 0
