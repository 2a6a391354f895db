"""The node agent as it runs on an instance, against the API as it is deployed: what follows when either goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox, servers
from tests.sandbox.node_agents import Node, Road, post, road_to
from tests.sandbox.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="the agent reads /proc")]
QUICK = {
    "suspect_s": 6,
    "unreachable_s": 7,
    "heartbeat_stale_s": 8,
    "repair_budget_percent": 100,
    "poll_interval_s": 5,
    "pending_retry_s": 5,
    "reboot_settle_s": 600,
    "reboot_timeout_s": 600,
}
"""Silence is found within seconds, and a reboot is believed for no other reason than that it is proved."""
STAND_IN = Path(__file__).parents[1] / "node_api/gputasker/stand_in.py"
STUBBORN = "gpu-training-stubborn"
WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.1)"
IGNORES_SIGTERM = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf')\ntime.sleep(600)"
DENIED, DO_NOT_RESTART = 77, 78


@dataclass(frozen=True)
class Fleet:
    """A sandbox that is up, with an agent on each of its instances.

    work:    instances for jobs, with the roads of their agents. job: one that runs there until `leave` exists.
    retired: an instance in quarantine, whose agent's token has been revoked.
    """

    directory: Path
    client: RecoveryClient
    state: dict[str, Any]
    work: dict[str, tuple[Node, Road]]
    retired: Node
    job: str

    @property
    def leave(self) -> Path:
        return self.directory / "leave"

    @property
    def at(self) -> str:
        """The instance of the job."""
        return str(self.client.job(self.job)["instances"][0])

    def status(self, job_id: str) -> str:
        return str(self.client.job(job_id)["status"])

    def becomes(self, job_id: str, *statuses: str) -> dict[str, Any]:
        wait_until(lambda: self.status(job_id) in statuses, lambda: str(self.client.job(job_id)["history"][-3:]))
        return dict(self.client.job(job_id))

    def beat(self, instance_id: str) -> dict[str, Any]:
        return dict(self.client.instance(instance_id)["heartbeat"] or {})

    def seen(self, job_id: str, attempt: int = 1) -> str | None:
        """When rank 0 of the job was last seen to live."""
        ranks = self.beat(self.client.job(job_id)["instances"][0]).get("ranks", [])
        found = [
            one["seen_at"] for one in ranks if (one["job_id"], one["attempt"], one["rank"]) == (job_id, attempt, 0)
        ]
        return found[0] if found else None

    def machine(self, instance_id: str) -> dict[str, Any]:
        machines = sandbox.cluster_state(self.directory)["instances"]
        return next(one for one in machines if one["instance_id"] == instance_id)

    def task(self, job_id: str) -> dict[str, Any]:
        (found,) = [t for t in sandbox.cluster_state(self.directory)["tasks"] if t["started_by"] == f"{job_id}--a01"]
        return dict(found)

    def report(self, instance_id: str, sequence: int, **more: Any) -> tuple[int, dict[str, Any]]:
        """A report of this boot of the instance, by somebody who has its token and is not its agent."""
        body = {"boot_id": self.machine(instance_id)["boot_id"], "uptime_s": 60.0, "sequence": sequence, "running": []}
        status, answer, _ = post(self.state, "/api/v1/reports", body | more, self.state["node_tokens"][instance_id])
        return status, answer


def submit(client: RecoveryClient, name: str, command: list[str], family: str = sandbox.TRAINING_FAMILY) -> str:
    spec = {"workload": name, "nnodes": 1, "n_gpus_per_node": 8, "task_definition": family, "user": "tests"}
    return str(client.submit({**spec, "command": ["gpu-recovery-run", "--", *command]})["job_id"])


def revoke(client: RecoveryClient, node: Node) -> None:
    """What the agent of the node has been heard with opens nothing any more."""
    wait_until(lambda: client.instance(node.instance_id)["heartbeat"], node.said)
    (token,) = client.tokens(node.instance_id)["tokens"]
    client.revoke_token(node.instance_id, token["token_id"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three instances. The function keeps a token for a minute, so the one that is revoked is revoked at once."""
    directory = tmp_path_factory.mktemp("agents")
    timings = ["--timings", json.dumps({"stop_timeout_max_s": 600})]
    with ExitStack() as stack:
        stack.callback(sandbox.down, directory)
        families = {"gpu-recovery:training_task_families": [sandbox.TRAINING_FAMILY, STUBBORN]}
        state = sandbox.up(directory, instances=3, policy=QUICK, cluster_options=timings, context=families)
        client = stack.enter_context(RecoveryClient(state["api_url"], state["operator_token"]))
        nodes = {}
        for machine in sandbox.cluster_state(directory)["instances"]:
            name = machine["instance_id"]
            road = stack.enter_context(road_to(state["api_url"]))
            node = Node(machine, state["node_tokens"][name], road.url, directory / name)
            stack.callback(node.end)
            node.start()
            nodes[name] = node, road
        name, (retired, _) = nodes.popitem()
        client.quarantine(name, "its token is revoked")
        revoke(client, retired)
        leave = directory / "leave"
        job = submit(client, "stays", ["python", "-c", WAITS, str(leave)])
        yield Fleet(directory, client, state, nodes, retired, job)


def test_an_instance_is_heard_of_by_its_agent(fleet: Fleet) -> None:
    """With the token that was issued for it: its heartbeat is in the answer about it, with the boot that it has."""
    for instance_id, (node, _) in fleet.work.items():
        booted = fleet.machine(instance_id)["boot_id"]
        wait_until(lambda i=instance_id, b=booted: liveness_and_boot(fleet.beat(i)) == ("HEARD", b), node.said)


def test_a_rank_under_the_wrapper_is_heard_of(fleet: Fleet) -> None:
    """Job, attempt and rank, as the rank was told them; seen again and again while it lives."""
    fleet.becomes(fleet.job, "RUNNING")
    first = wait_until(lambda: fleet.seen(fleet.job), fleet.work[fleet.at][0].said)
    wait_until(lambda: fleet.seen(fleet.job) > first, "the rank is not seen a second time")
    (rank,) = fleet.beat(fleet.at)["ranks"]
    assert rank["seen_at"] > first  # the next report may have come since
    assert rank == {"job_id": fleet.job, "attempt": 1, "rank": 0, "seen_at": rank["seen_at"]}


@pytest.mark.full
def test_a_wall_clock_that_jumps_changes_nothing(fleet: Fleet) -> None:
    """A day ahead, then a month back, under a living agent: the same boot, the same job, no silence."""
    node, road = fleet.work[fleet.at]
    before, job, machine = fleet.beat(fleet.at), fleet.client.job(fleet.job), fleet.client.instance(fleet.at)
    node.kill()
    begun = len(road.told)
    node.wall_shift.write_text("86400")
    agent = node.start()
    for shift in ("86400", "-2592000"):
        node.wall_shift.write_text(shift)
        heard = len(road.told)
        wait_until(lambda heard=heard: len(road.told) >= heard + 2, node.said)
        assert agent.poll() is None, node.said()
    assert float((node.folder / "wall.seen").read_text()) > time.time() + 43_200
    assert {status for _, status in road.told[begun:]} == {200}
    after = fleet.beat(fleet.at)
    assert (after["boot_id"], after["liveness"]) == (before["boot_id"], "HEARD")
    jump = datetime.fromisoformat(after["booted_at"]) - datetime.fromisoformat(before["booted_at"])
    assert abs(jump) < timedelta(hours=1)
    assert fleet.client.job(fleet.job)["history"] == job["history"]
    assert fleet.client.instance(fleet.at)["history"] == machine["history"]


def test_a_killed_agent_makes_its_job_lost_and_a_new_one_brings_it_back(fleet: Fleet) -> None:
    """The rank lives on and keeps its GPUs; a word about another attempt is refused and revives nothing."""
    node, _ = fleet.work[fleet.at]
    task = fleet.task(fleet.job)
    node.kill()
    fleet.becomes(fleet.job, "LOST")
    assert fleet.client.instance(fleet.at)["claims"] == {fleet.job: 1}
    used = json.loads((node.folder / "state/state.json").read_text())["sequence"]
    other = {"job": fleet.job, "attempt": 2, "rank": 0, "pid": 1, "ticks": 1}
    status, answer = fleet.report(fleet.at, used + 1, running=[other])
    assert (status, [one["attempt"] for one in answer["refused"]]) == (200, [2])
    assert fleet.status(fleet.job) == "LOST"
    node.start()
    job = fleet.becomes(fleet.job, "RUNNING")
    assert (job["attempt"], fleet.task(fleet.job)) == (1, task)
    assert [one["to"] for one in job["history"]][-3:] == ["RUNNING", "LOST", "RUNNING"]


@pytest.mark.full
def test_gputaskers_agent_brings_a_lost_rank_back(fleet: Fleet) -> None:
    """A stand-in of that agent reads the file of the wrapper, and reports through the gateway until the job is back."""
    node, _ = fleet.work[fleet.at]
    node.kill()
    fleet.becomes(fleet.job, "LOST")
    environment = {
        "PATH": os.environ["PATH"],
        "GPUTASKER_SERVER_URL": f"{fleet.state['api_url']}/api/v1/report_gpu/",
        "GPUTASKER_AGENT_TOKEN": fleet.state["node_tokens"][fleet.at],
        "GPUTASKER_RUNNING_TASKS_DIR": str(node.ranks),
    }
    assert subprocess.run([sys.executable, STAND_IN, "1"], env=environment, check=False).returncode == 0
    assert fleet.becomes(fleet.job, "RUNNING")["attempt"] == 1
    task = {"running_log_id": str(running_log_id(fleet.job, 1, 0)), "remote_pid": "4242", "remote_pgid": "4242"}
    body = {"token": fleet.state["node_tokens"][fleet.at], "tasks": [task], "timestamp": "1763715600"}
    status, said, _ = post(fleet.state, "/api/v1/report_tasks/", body)
    assert (status, said["ok"], said["updated"], said["revived"]) == (200, True, 1, 0)
    node.start()


def test_a_stale_writer_is_refused_and_an_agent_that_is_twice_refused_ends(fleet: Fleet) -> None:
    """409 with the sequence that was heard. The agent goes on from there once; again, and it is not alone: 78."""
    node, road = fleet.work[fleet.at]
    agent, heard = node.processes[-1], road.told[-1][0]["sequence"]
    status, answer = fleet.report(fleet.at, 1)
    assert (status, answer["error"]) == (409, "stale_sequence")
    assert answer["last"] >= heard
    assert fleet.report(fleet.at, 1_000)[0] == 200
    wait_until(lambda: road.told[-1][0]["sequence"] > 1_000, node.said)
    assert "409 stale_sequence: continuing from 1000" in node.said() and agent.poll() is None
    assert fleet.report(fleet.at, 2_000)[0] == 200
    wait_until(lambda: agent.poll() is not None, node.said)
    assert agent.returncode == DO_NOT_RESTART, node.said()
    node.start()
    wait_until(lambda: road.told[-1][0]["sequence"] > 2_000, node.said)


def test_a_forced_cancel_ends_a_rank_that_ignores_sigterm(fleet: Fleet) -> None:
    """ECS would wait ten minutes before it kills: the agent does so when the order's grace is over."""
    ecs = sandbox.client("ecs", fleet.state["ecs_endpoint_url"], fleet.state)
    definition = ecs.describe_task_definition(taskDefinition=sandbox.TRAINING_FAMILY)["taskDefinition"]
    containers = [{**definition["containerDefinitions"][0], "stopTimeout": 600}]
    ecs.register_task_definition(
        family=STUBBORN, networkMode="host", requiresCompatibilities=["EC2"], containerDefinitions=containers
    )
    job_id = submit(fleet.client, "stubborn", ["python", "-c", IGNORES_SIGTERM], STUBBORN)
    place = fleet.becomes(job_id, "RUNNING")["instances"][0]
    node, road = fleet.work[place]
    wait_until(lambda: fleet.seen(job_id), node.said)
    wait_until(lambda: "deaf" in Path(fleet.task(job_id)["log"]).read_text(), "the rank does not say that it is deaf")
    fleet.client.cancel(job_id, force=True)
    fleet.becomes(job_id, "CANCELED")
    assert fleet.task(job_id)["exit_code"] == 128 + signal.SIGKILL
    assert f"to stop job {job_id}, attempt 1: SIGTERM" in node.said()
    assert "the order has expired: SIGKILL" in node.said()
    told = wait_until(lambda: [b["exits"] for b, status in road.told if "exits" in b and status == 200], node.said)
    assert [(one["job"], one["signal"]) for one in told[-1]] == [(job_id, signal.SIGKILL)]


@pytest.mark.full
def test_what_happened_while_the_api_was_away_for_a_whole_stale_period_arrives_and_nobody_was_present(
    fleet: Fleet,
) -> None:
    """An exit and an XID wait; the rank that ended meanwhile is not said to have lived a moment longer. Two minutes of
    it, by the agent's own clock, are in tests/agent/test_api_outage.py."""
    place = fleet.at
    node, road = fleet.work[place]
    road.closed.set()
    fleet.becomes(fleet.job, "LOST")
    seen, heard, answered = fleet.seen(fleet.job), fleet.beat(place)["seen_at"], len(road.told)
    with (node.place / "dev/kmsg").open("a") as log:
        log.write("4,900,1000000,-;NVRM: Xid (PCI:0000:10:00): 13, pid=1, name=python, Graphics Exception\n")
    fleet.leave.touch()
    (exit_file,) = wait_until(lambda: list(node.ranks.glob("*.exit")), "the wrapper writes no exit")
    fleet.becomes(fleet.job, "SUCCEEDED")
    assert exit_file.exists() and len(road.told) == answered and road.turned_away > 0
    road.closed.clear()
    wait_until(lambda: not exit_file.exists(), node.said)
    wait_until(lambda: fleet.beat(place)["seen_at"] > heard, node.said)
    reports = [body for body, status in road.told[answered:] if status == 200]
    exits = [one for body in reports for one in body.get("exits", [])]
    assert [(one["job"], one["attempt"], one["rank"], one["code"]) for one in exits] == [(fleet.job, 1, 0, 0)]
    assert [one["xid"] for body in reports for one in body.get("xids", [])] == [13]
    assert [body["running"] for body in reports] == [[]] * len(reports)
    assert fleet.seen(fleet.job) == seen
    away = datetime.fromisoformat(fleet.beat(place)["seen_at"]) - datetime.fromisoformat(heard)
    assert away > timedelta(seconds=QUICK["heartbeat_stale_s"])


def test_a_reboot_is_proved_by_the_agent_alone(fleet: Fleet) -> None:
    """A GPU of an idle instance falls off the bus, which only its agent tells; and only its agent comes back."""
    place, (node, _) = next(iter(fleet.work.items()))
    boot = fleet.machine(place)["boot_id"]
    sandbox.fault(fleet.directory, place, "xid79", reboot="silent")
    wait_until(lambda: fleet.client.instance(place)["status"] == "REBOOTING", lambda: why(fleet, place) + node.said())
    node.kill()
    wait_until(lambda: fleet.machine(place)["boot_id"] != boot, "the machine does not reboot")
    node.start()
    wait_until(lambda: fleet.client.instance(place)["status"] != "REBOOTING", lambda: why(fleet, place) + node.said())
    machine, now = fleet.client.instance(place), fleet.machine(place)["boot_id"]
    (proof,) = [one for one in machine["history"] if (one["from"], one["to"]) == ("REBOOTING", "VERIFYING")]
    assert f"its agent reports another boot, {now}" in proof["reason"]
    assert (machine["boot_id"], fleet.beat(place)["boot_id"]) == (now, now)
    assert not fleet.machine(place)["agent_connected"]


def liveness_and_boot(beat: dict[str, Any]) -> tuple[Any, Any]:
    """What a heartbeat says of the agent. A slow machine is LOST for a moment, until the next report."""
    return beat.get("liveness"), beat.get("boot_id")


def why(fleet: Fleet, instance_id: str) -> str:
    return str(fleet.client.instance(instance_id)["history"][-3:])


def test_an_agent_whose_token_is_revoked_ends_with_its_own_status(fleet: Fleet) -> None:
    """77, which its unit does not restart; the instance is silent from then on."""
    agent = fleet.retired.processes[-1]
    wait_until(lambda: agent.poll() is not None, fleet.retired.said)
    assert agent.returncode == DENIED
    assert "403 invalid_token" in fleet.retired.said()


@pytest.mark.full
def test_a_forced_cancel_ends_a_rank_that_ecs_does_not_know(fleet: Fleet) -> None:
    """ECS has forgotten its task, so StopTask reaches nobody: the agent's SIGKILL does, and it tells the end."""
    job_id = submit(fleet.client, "unknown", ["python", "-c", IGNORES_SIGTERM])
    place = fleet.becomes(job_id, "RUNNING")["instances"][0]
    node, road = fleet.work[place]
    wait_until(lambda: fleet.seen(job_id), node.said)
    task = fleet.task(job_id)
    wait_until(lambda: "deaf" in Path(task["log"]).read_text(), "the rank does not say that it is deaf")
    forget = f"{fleet.state['ecs_endpoint_url']}/_sandbox/forget"
    assert servers.post(forget, fleet.state, {"task": task["task_id"]}) == {"forgotten": task["task_id"]}
    begun = len(road.told)
    fleet.client.cancel(job_id, force=True)
    wait_until(lambda: "the order has expired: SIGKILL" in node.said().partition(f"to stop job {job_id}")[2], node.said)
    wait_until(lambda: not Path(f"/proc/{task['pid']}").exists(), "the rank lives on")
    told = wait_until(
        lambda: [b["exits"] for b, status in road.told[begun:] if "exits" in b and status == 200], node.said
    )
    assert [(one["job"], one["signal"]) for one in told[-1]] == [(job_id, signal.SIGKILL)]
    assert fleet.becomes(job_id, "CANCELED")["attempt"] == 1
