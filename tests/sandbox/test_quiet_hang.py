"""A hang of a job that reports no progress, found by what real node agents see of real processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.agent.node import FAKE_NVML
from tests.sandbox.node_agents import Node, Road, road_to
from tests.sandbox.patience import wait_until
from tests.sandbox.quiet_training import NVML_FILE, SLEEPS, show
from tests.sandbox.time_sharing import ENDED, told

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
POLICY = {"hang_without_progress": "act", "poll_interval_s": 5, "suspect_s": 15, "pending_retry_s": 5}
QUICK_AGENT = (sys.executable, "-m", "tests.sandbox.quick_agent")
LEARNED_REPORTS = 12
"""Reports of a rank that trains, at least, until the agent has seen enough training: a report every five seconds."""
HANG_S = 90
"""Seconds for which a gang must be quiet to count as hung, if no rank may save or load."""


@dataclass(frozen=True)
class Fleet:
    """Four instances with one GPU each, their agents, and two jobs of two ranks that train."""

    directory: Path
    client: RecoveryClient
    roads: dict[str, Road]
    jobs: dict[str, str]

    def job(self, what: str) -> dict[str, Any]:
        return dict(self.client.job(self.jobs[what]))

    def touch(self, what: str, name: str) -> None:
        (self.directory / what / name).touch()

    def activities(self, what: str) -> list[list[list[float | None]]]:
        """The activity of each rank of the job, as the accepted reports of its agent had it, the newest last."""
        return [
            [
                rank["activity"]
                for body, status in self.roads[instance].told
                if status == 200
                for rank in body.get("running", [])
                if rank["job"] == self.jobs[what] and "activity" in rank
            ]
            for instance in self.job(what)["instances"]
        ]

    def mails(self, what: str) -> list[dict[str, str]]:
        """The e-mails that say that the job may hang."""
        mails = sandbox.read_mailbox(self.directory)
        return [mail for mail in mails if "may hang" in mail["subject"] and self.jobs[what] in mail["body"]]


def submit(client: RecoveryClient, directory: Path, what: str) -> str:
    folder = directory / what
    folder.mkdir()
    command = ["gpu-recovery-run", "--", "python", "-m", "tests.sandbox.quiet_training", str(folder)]
    spec = {
        "workload": what,
        "nnodes": 2,
        "n_gpus_per_node": 1,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": command,
        "env": {"WHAT": what, "COLLECTIVE_TIMEOUT_S": "86400"},
        "user": "tests",
    }
    return str(client.submit(spec)["job_id"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """The agents have learned what is usual. One of the jobs hangs from now on, and the other trains."""
    directory = tmp_path_factory.mktemp("quiet")
    with ExitStack() as stack:
        stack.callback(sandbox.down, directory)
        state = sandbox.up(directory, instances=4, gpus=1, policy=POLICY)
        client = stack.enter_context(RecoveryClient(state["api_url"], state["operator_token"]))
        roads = {}
        for machine in sandbox.cluster_state(directory)["instances"]:
            name = machine["instance_id"]
            roads[name] = stack.enter_context(road_to(state["api_url"]))
            node = Node(machine, state["node_tokens"][name], roads[name].url, directory / name)
            stack.callback(node.end)
            show(node.place, SLEEPS)
            more = {"GPU_RECOVERY_NVML": "on", "FAKE_NVML": str(node.place / NVML_FILE)}
            node.run(QUICK_AGENT, FAKE_NVML, {**more, "GPU_RECOVERY_INTERVAL_MS": "1000"})
        jobs = {what: submit(client, directory, what) for what in ("hangs", "saves")}
        fleet = Fleet(directory, client, roads, jobs)
        for what in jobs:
            wait_until(
                lambda what=what: fleet.job(what)["status"] == "RUNNING", lambda what=what: told(fleet.job(what))
            )
        for what in jobs:
            wait_until(lambda what=what: trained(fleet, what), lambda what=what: fleet.activities(what))
        fleet.touch("hangs", "turn")
        yield fleet


def trained(fleet: Fleet, what: str) -> bool:
    return all(len(reported) >= LEARNED_REPORTS for reported in fleet.activities(what))


def test_a_long_checkpoint_of_all_ranks_is_no_hang(fleet: Fleet) -> None:
    """All GPUs are idle for much longer than a hang may last, and the processors are not."""
    quiet_s = 4 * HANG_S
    fleet.touch("saves", "turn")
    wait_until(
        lambda: all(reported[-1][0] >= quiet_s for reported in fleet.activities("saves")),
        lambda: [reported[-3:] for reported in fleet.activities("saves")],
    )
    fleet.touch("saves", "saved")
    wait_until(lambda: fleet.job("saves")["status"] in ENDED, lambda: told(fleet.job("saves")))
    job = fleet.job("saves")
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 1), told(job)
    assert "hang" not in told(job) and fleet.mails("saves") == []


def test_a_rank_that_sleeps_in_a_collective_is_told_and_then_ends_the_attempt(fleet: Fleet) -> None:
    """Its GPU does nothing, and that of its partner waits in a kernel. The next attempt ends the job."""
    sleeping = fleet.job("hangs")["instances"][1]
    wait_until(lambda: "may hang" in told(fleet.job("hangs")), lambda: fleet.activities("hangs"))
    wait_until(lambda: fleet.job("hangs")["status"] != "RUNNING", lambda: told(fleet.job("hangs")))
    wait_until(lambda: fleet.job("hangs")["status"] in ENDED, lambda: told(fleet.job("hangs")))
    job = fleet.job("hangs")
    assert (job["status"], job["attempt"]) == ("SUCCEEDED", 2), told(job)
    suspected = [entry for entry in job["history"] if entry["event"] == "HangSuspected"]
    assert [(entry["from"], entry["to"]) for entry in suspected] == [("RUNNING", "RUNNING"), ("RUNNING", "STOPPING")]
    notice, stop = suspected
    seen = "rank 1 is idle, and each of the other 1 ranks waits in a kernel on its GPUs"
    assert seen in notice["reason"] and f"rank 1 is on {sleeping}" in notice["reason"]
    (mail,) = fleet.mails("hangs")
    assert seen in mail["body"] and mail["at"] < stop["at"]
