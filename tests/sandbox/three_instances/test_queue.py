"""Time-sharing as deployed: two users, three priorities, real processes that save, leave and go on."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.errors import RequestRefused

from tests.sandbox.three_instances.conftest import PERMITTED, POLICY
from tests.sandbox.time_sharing import ENDED, Shared

pytestmark = pytest.mark.slow

HURRIES_THEN = '[ "$ATTEMPT" = 1 ] || export STEP_SECONDS=0.01; exec python -m sandbox.trainers.plain_python'
"""Shell command: the steps of the second attempt, which nothing interrupts, take little time."""
ALL = 3
"""Nodes of a job that needs every instance."""
UNTIL_THE_FILE = """
import os, time
while not os.path.exists({path!r}):
    time.sleep(0.1)
"""
IGNORES_EVERYTHING = """
import signal, time
from gpu_recovery_client import training
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    print("step; notice:", training.receive_suspend_command())
    time.sleep(0.2)
"""
RANK_1_ASKS = """
import os, time
from gpu_recovery_client import training
print("step of rank", training.rank())
if os.environ["ATTEMPT"] == "1":
    time.sleep(1)
    if training.rank() == 1:
        training.go_suspend()
    time.sleep(600)
"""


def statuses(view: dict[str, Any]) -> list[str]:
    return [entry["to"] for entry in view["history"] if entry["from"] != entry["to"]]


def test_a_higher_priority_takes_turns_with_a_lower_one_and_no_step_is_lost(shared: Shared, tmp_path: Path) -> None:
    """LOW saves and leaves for HIGH, a NORMAL that came later waits behind it, and LOW goes on with the next step."""
    command = ["gpu-recovery-run", "--", "sh", "-c", HURRIES_THEN]
    low = shared.submit("ana", "low", 400, priority="LOW", nnodes=ALL, command=command)
    shared.runs(low)
    shared.works(low, 1)
    time.sleep(1.5)  # longer than it is protected
    end = tmp_path / "end of high"
    high = shared.program("bob", "high", UNTIL_THE_FILE.format(path=str(end)), priority="HIGH", nnodes=ALL)
    shared.runs(high)
    left = shared.operator.job(low)
    assert left["status"] == "SUSPENDED" and left["attempts_counted"] == 0
    normal = shared.submit("ana", "normal", 10, priority="NORMAL", nnodes=ALL)
    line = [one["job_id"] for one in shared.operator.queue()["waiting"]]
    assert line == [normal, low]
    end.touch()
    shared.succeeds(high)
    shared.succeeds(normal)
    done = shared.succeeds(low)

    turn = ["SUBMITTING", "SUBMITTED", "RUNNING"]
    # STOPPING is left out if both ends arrive together.
    went = [status for status in statuses(done)[1:] if status != "STOPPING"]
    assert went == [*turn, "SUSPENDING", "SUSPENDED", *turn, "SUCCEEDED"]
    assert done["attempt"] == 2 and done["attempts_counted"] == 0
    saved = {int(step) for step in re.findall(r"suspended after step (\d+)", shared.written(low, 1))}
    done_first, done_then = (
        {int(step) for step in re.findall(r"^step (\d+) ", shared.written(low, attempt), re.MULTILINE)}
        for attempt in (1, 2)
    )
    assert saved == {max(done_first)} and min(done_then) == max(done_first) + 1, (saved, done_first, done_then)


def test_a_person_suspends_and_resumes_their_own_job_and_nobody_elses(shared: Shared) -> None:
    """Held until it is resumed, and from the step that it had saved."""
    job_id = shared.submit("ana", "held", 1_000)
    shared.runs(job_id)
    shared.works(job_id, 1)
    with pytest.raises(RequestRefused) as refused:
        shared.users["bob"].suspend(job_id)
    assert refused.value.status in (403, 404)
    shared.users["ana"].suspend(job_id, "the demo needs the machines")
    held = shared.until(job_id, lambda job: job["status"] == "SUSPENDED")
    assert "the demo needs the machines" in held["reason"]
    shared.users["ana"].resume(job_id)
    assert shared.runs(job_id)["attempt"] == 2
    shared.works(job_id, 2)
    assert "resumed from step 0" not in shared.written(job_id, 2)
    shared.users["ana"].cancel(job_id)
    shared.until(job_id, lambda job: job["status"] == "CANCELED")


def test_a_job_over_its_quota_waits_and_says_so(shared: Shared, tmp_path: Path) -> None:
    """One instance for ana: her second job waits although other instances are free, and goes on when she has room."""
    limits = shared.operator.quotas()
    kept = shared.operator.put_quotas({"instances": {**PERMITTED, "ana/*/*": 1}}, limits["revision"])
    try:
        end = tmp_path / "end of first"
        first = shared.program("ana", "first", UNTIL_THE_FILE.format(path=str(end)), nnodes=1)
        second = shared.submit("ana", "second", 10, nnodes=1)
        shared.runs(first)
        waiting = shared.until(second, lambda job: job["status"] == "PENDING_RESOURCES")
        assert "quota" in waiting["reason"]
        told = shared.operator.explain(second)
        assert told["pending"]["short_of"] == "quota"
        end.touch()
        shared.succeeds(first)
        shared.succeeds(second)
    finally:
        shared.operator.put_quotas({"instances": PERMITTED}, kept["revision"])


@pytest.mark.full
def test_two_small_jobs_share_an_instance(shared: Shared, tmp_path: Path) -> None:
    """Half the GPUs each, at the same time, on one machine; a gang of two could have had the other."""
    end = tmp_path / "end of both"
    text = UNTIL_THE_FILE.format(path=str(end))
    jobs = [shared.program("bob", f"half-{n}", text, nnodes=1, n_gpus_per_node=4) for n in range(2)]
    views = [shared.runs(job_id) for job_id in jobs]
    assert views[0]["instances"] == views[1]["instances"]
    end.touch()
    for job_id in jobs:
        shared.succeeds(job_id)


def began(view: dict[str, Any]) -> str:
    """When the job first ran."""
    return str(next(entry["at"] for entry in view["history"] if entry["to"] == "RUNNING"))


@pytest.mark.full
def test_equals_run_in_the_order_in_which_they_were_submitted(shared: Shared, tmp_path: Path) -> None:
    """Whoever they belong to; nobody of them is interrupted, and the line shows that order while they wait."""
    end = tmp_path / "end of the first"
    first = shared.program("bob", "fifo-0", UNTIL_THE_FILE.format(path=str(end)), nnodes=ALL)
    shared.runs(first)
    line = [shared.submit(user, f"fifo-{n}", 3, nnodes=ALL) for n, user in enumerate(("ana", "bob", "ana"), 1)]
    assert [one["job_id"] for one in shared.operator.queue()["waiting"]] == line
    end.touch()
    done = [shared.succeeds(job_id) for job_id in (first, *line)]
    assert [began(view) for view in done] == sorted(began(view) for view in done)
    assert {view["attempt"] for view in done} == {1}


@pytest.mark.full
def test_above_normal_has_its_share_and_then_makes_room_for_its_former_equals(shared: Shared, tmp_path: Path) -> None:
    """Somebody else's job of the priority it had waits until it counts as NORMAL, and not for its end."""
    ran = shared.submit("ana", "share", 250, priority="ABOVE_NORMAL", nnodes=ALL)
    shared.runs(ran)
    shared.works(ran, 1)
    end = tmp_path / "end of the other"
    text = UNTIL_THE_FILE.format(path=str(end))
    other = shared.program("bob", "other", text, priority="ABOVE_NORMAL", nnodes=ALL)
    left = shared.until(ran, lambda job: job["status"] in ("SUSPENDED", *ENDED))
    assert (left["status"], left["suspended_for"]) == ("SUSPENDED", other), [one["reason"] for one in left["history"]]
    assert _seconds_between(left, "RUNNING", "SUSPENDING") >= POLICY["demote_after_s"]
    end.touch()
    assert "PENDING_RESOURCES" in statuses(shared.succeeds(other))
    done = shared.succeeds(ran)
    assert done["attempts_counted"] == 0 and done["attempt"] == 2
    assert (done["priority"], done["asked_priority"]) == ("NORMAL", "ABOVE_NORMAL")


def _seconds_between(view: dict[str, Any], begin: str, end: str) -> float:
    times = {entry["to"]: datetime.fromisoformat(entry["at"]) for entry in reversed(view["history"])}
    return (times[end] - times[begin]).total_seconds()


@pytest.mark.full
def test_own_jobs_of_the_same_priority_never_interrupt_even_a_demoted_one(shared: Shared) -> None:
    """A user gains nothing by submitting the same again."""
    ran = shared.submit("ana", "kept", 130, priority="ABOVE_NORMAL", nnodes=ALL)
    shared.runs(ran)
    own = shared.submit("ana", "again", 3, priority="ABOVE_NORMAL", nnodes=ALL)
    done = shared.succeeds(ran)
    assert _seconds_between(done, "RUNNING", "SUCCEEDED") > 2 * POLICY["demote_after_s"]
    assert done["attempt"] == 1 and "SUSPENDED" not in statuses(done)
    after = shared.succeeds(own)
    assert "PENDING_RESOURCES" in statuses(after) and began(after) > began(done)


def test_a_trainer_that_ignores_its_notice_is_ended_when_its_grace_is_over(shared: Shared) -> None:
    """It is suspended all the same, and not counted; it had heard of it."""
    job_id = shared.program("ana", "deaf", IGNORES_EVERYTHING, nnodes=1, suspend_grace_s=2)
    shared.runs(job_id)
    shared.works(job_id, 1)
    shared.users["ana"].suspend(job_id, "a test")
    left = shared.until(job_id, lambda job: job["status"] == "SUSPENDED")
    assert (left["attempts_counted"], left["attempts_uncounted"]) == (0, {})
    assert "notice: True" in shared.written(job_id, 1)
    assert "the grace period is over: SIGTERM" in shared.written(job_id, 1)
    assert _seconds_between(left, "SUSPENDING", "SUSPENDED") >= 2, left["history"]
    shared.users["ana"].cancel(job_id)
    shared.until(job_id, lambda job: job["status"] == "CANCELED")


@pytest.mark.full
def test_any_rank_may_ask_for_the_suspension_of_its_job(shared: Shared) -> None:
    """Seed 003: not rank 0 alone. The others are ended with it, and the job goes on with its next attempt."""
    job_id = shared.program("bob", "asks", RANK_1_ASKS)
    done = shared.succeeds(job_id)
    assert done["attempt"] == 2 and done["attempts_counted"] == 0
    assert done["attempts_uncounted"] == {"SUSPENDED": 1} and "SUSPENDED" in statuses(done)


@pytest.mark.full
def test_a_quota_holds_for_its_priority_alone_and_is_shown_with_what_is_used(shared: Shared, tmp_path: Path) -> None:
    """One instance for ana's LOW jobs: a second one waits, one of NORMAL runs beside the first."""
    limits = shared.operator.quotas()
    kept = shared.operator.put_quotas({"instances": {**PERMITTED, "ana/LOW/*": 1}}, limits["revision"])
    try:
        end = tmp_path / "end of both"
        text = UNTIL_THE_FILE.format(path=str(end))
        first = shared.program("ana", "low-1", text, nnodes=1, priority="LOW")
        shared.runs(first)
        second = shared.submit("ana", "low-2", 3, nnodes=1, priority="LOW")
        shared.until(second, lambda job: job["status"] == "PENDING_RESOURCES" and "quota" in job["reason"])
        normal = shared.program("ana", "normal-1", text, nnodes=1)
        shared.runs(normal)
        used = {one["priority"]: (one["used"], one["limit"]) for one in shared.operator.queue()["quotas"]}
        assert used["LOW"] == (1, 1) and used["NORMAL"] == (1, None), used
        end.touch()
        for job_id in (normal, first, second):
            shared.succeeds(job_id)
    finally:
        shared.operator.put_quotas({"instances": PERMITTED}, kept["revision"])
