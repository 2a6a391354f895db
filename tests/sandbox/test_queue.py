"""Time-sharing as deployed: two users, three priorities, real processes that save, leave and go on."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.errors import RequestRefused

from sandbox import sandbox

pytestmark = pytest.mark.slow

PATIENCE_S = 180.0
POLICY = {"look_s": 5, "protect_s": 1, "pending_retry_s": 5}
UNDER_THE_WRAPPER = ["gpu-recovery-run", "--", "python", "-m", "sandbox.trainer"]
ENDED = ("SUCCEEDED", "FAILED", "CANCELED")


@dataclass
class Shared:
    """A cluster of two instances, its operator, and two users with tokens of their own."""

    directory: Path
    operator: RecoveryClient
    users: dict[str, RecoveryClient]

    def submit(self, user: str, name: str, steps: int, **fields: Any) -> str:
        folder = self.directory / name
        environment = {
            "TOTAL_STEPS": str(steps), "STEP_SECONDS": "0.1", "CHECKPOINT_EVERY": "50", "COLLECTIVE_TIMEOUT_S": "30",
        }  # fmt: skip
        spec = {
            "workload": name, "nnodes": 2, "n_gpus_per_node": 8, "task_definition": sandbox.TRAINING_FAMILY,
            "command": UNDER_THE_WRAPPER, "env": environment, "checkpoint_dir": str(folder), **fields,
        }  # fmt: skip
        return str(self.users[user].submit(spec)["job_id"])

    def until(self, job_id: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_S
        while not condition(job := self.operator.job(job_id)):
            assert time.monotonic() < deadline, [one["reason"] for one in job["history"]]
            time.sleep(0.2)
        return job

    def runs(self, job_id: str) -> dict[str, Any]:
        return self.until(job_id, lambda job: job["status"] == "RUNNING")

    def succeeds(self, job_id: str) -> dict[str, Any]:
        job = self.until(job_id, lambda job: job["status"] in ENDED)
        assert job["status"] == "SUCCEEDED", [one["reason"] for one in job["history"]]
        return job

    def written(self, job_id: str, attempt: int) -> str:
        """What the ranks of an attempt have printed."""
        tasks = sandbox.cluster_state(self.directory)["tasks"]
        wanted = [task for task in tasks if task["started_by"] == f"{job_id}--a{attempt:02d}"]
        return "".join(Path(task["log"]).read_text() for task in wanted)

    def works(self, job_id: str, attempt: int) -> None:
        """Until its ranks have begun to train: a notice before that finds nothing to save."""
        deadline = time.monotonic() + PATIENCE_S
        while "step" not in self.written(job_id, attempt):
            assert time.monotonic() < deadline, self.written(job_id, attempt)
            time.sleep(0.2)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    directory = tmp_path_factory.mktemp("queue")
    try:
        state = sandbox.up(directory, instances=2, gpus=8, policy=POLICY)
        with RecoveryClient(state["api_url"], state["operator_token"]) as operator:
            deadline = time.monotonic() + PATIENCE_S
            while len(list(operator.instances())) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            tokens = {user: operator.issue_user_token(user, "user")["token"] for user in ("ana", "bob")}
            users = {user: RecoveryClient(state["api_url"], token) for user, token in tokens.items()}
            yield Shared(directory, operator, users)
            for client in users.values():
                client.__exit__(None, None, None)
    finally:
        sandbox.down(directory)


def statuses(view: dict[str, Any]) -> list[str]:
    return [entry["to"] for entry in view["history"] if entry["from"] != entry["to"]]


def test_a_higher_priority_takes_turns_with_a_lower_one_and_no_step_is_lost(shared: Shared) -> None:
    """LOW saves and leaves for HIGH, a NORMAL that came later waits behind it, and LOW goes on with the next step."""
    low = shared.submit("ana", "low", 120, priority="LOW")
    shared.runs(low)
    shared.works(low, 1)
    time.sleep(1.5)  # longer than it is protected
    high = shared.submit("bob", "high", 20, priority="HIGH")
    shared.runs(high)
    left = shared.operator.job(low)
    assert left["status"] == "SUSPENDED" and left["attempts_counted"] == 0
    normal = shared.submit("ana", "normal", 10, priority="NORMAL")
    line = [one["job_id"] for one in shared.operator.queue()["waiting"]]
    assert line == [normal, low]
    shared.succeeds(high)
    shared.succeeds(normal)
    done = shared.succeeds(low)

    turn = ["SUBMITTING", "SUBMITTED", "RUNNING"]
    assert statuses(done)[1:] == [*turn, "SUSPENDING", "STOPPING", "SUSPENDED", *turn, "SUCCEEDED"]
    assert done["attempt"] == 2 and done["attempts_counted"] == 0
    saved = {int(step) for step in re.findall(r"suspended after step (\d+)", shared.written(low, 1))}
    done_first, done_then = (
        {int(step) for step in re.findall(r"^step (\d+) ", shared.written(low, attempt), re.MULTILINE)}
        for attempt in (1, 2)
    )
    assert saved == {max(done_first)} and min(done_then) == max(done_first) + 1, (saved, done_first, done_then)


def test_a_person_suspends_and_resumes_their_own_job_and_nobody_elses(shared: Shared) -> None:
    """Held until it is resumed, and from the step that it had saved."""
    job_id = shared.submit("ana", "held", 60)
    shared.runs(job_id)
    shared.works(job_id, 1)
    with pytest.raises(RequestRefused) as refused:
        shared.users["bob"].suspend(job_id)
    assert refused.value.status in (403, 404)
    shared.users["ana"].suspend(job_id, "the demo needs the machines")
    held = shared.until(job_id, lambda job: job["status"] == "SUSPENDED")
    assert "the demo needs the machines" in held["reason"]
    shared.users["ana"].resume(job_id)
    done = shared.succeeds(job_id)
    assert done["attempt"] == 2
    assert "resumed from step 0" not in shared.written(job_id, 2)


def test_a_job_over_its_quota_waits_and_says_so(shared: Shared) -> None:
    """One instance for ana: her second job waits although the other instance is free, and goes on when she has room."""
    limits = shared.operator.quotas()
    kept = shared.operator.put_quotas({"instances": {"ana/*/*": 1}}, limits["revision"])
    try:
        first = shared.submit("ana", "first", 40, nnodes=1)
        second = shared.submit("ana", "second", 10, nnodes=1)
        shared.runs(first)
        waiting = shared.until(second, lambda job: job["status"] == "PENDING_RESOURCES")
        assert "quota" in waiting["reason"]
        told = shared.operator.explain(second)
        assert told["pending"]["short_of"] == "quota"
        shared.succeeds(first)
        shared.succeeds(second)
    finally:
        shared.operator.put_quotas({}, kept["revision"])


def test_two_small_jobs_share_an_instance(shared: Shared) -> None:
    """Half the GPUs each, at the same time, on one machine; a gang of two could have had the other."""
    jobs = [shared.submit("bob", f"half-{n}", 30, nnodes=1, n_gpus_per_node=4) for n in range(2)]
    views = [shared.runs(job_id) for job_id in jobs]
    assert views[0]["instances"] == views[1]["instances"]
    for job_id in jobs:
        shared.succeeds(job_id)
