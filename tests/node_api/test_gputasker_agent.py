"""GPUTasker's agent beside the wrapper of this project: a stand-in of the agent as a process, and the real node API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery_agent.rank.process import Ended
from gpu_recovery_agent.rank.wrapper import RankFiles

from tests.agent.api import WITHIN_S, Api, refusal, serving
from tests.agent.node import Node, wait_until
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, A, claim, instance, later
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang
from tests.node_api.served_api import served
from tests.node_api.test_router import OLDER, Agent, Ear
from tests.node_api.warm_functions import WarmFunctions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
FOLDER = Path(__file__).parent / "gputasker"
RECORDED = {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in ("report_gpu", "report_tasks")}
NVIDIA_SMI = """#!/bin/sh
echo 'GPU-11111111-2222-3333-4444-555555555555, 0, NVIDIA H200, 37, 143771, 1024'
echo 'GPU-66666666-7777-8888-9999-000000000000, 1, NVIDIA H200, 0, 143771, 4'
"""
LIVE = running_log_id(JOB, 1, 0)


@dataclass
class GpuTasker:
    """A node on which GPUTasker's agent reports, and ranks run in the wrapper of this project."""

    agent: Agent
    node: Node
    url: str

    def reports(self, rounds: int = 1) -> None:
        """The agent reports so often."""
        assert run_stand_in(self.node, self.url, self.agent.issued.token, rounds) == 0

    def rank(self, *command: str, attempt: int = 1) -> subprocess.Popen[bytes]:
        """Rank 0 of the job, once its file is there."""
        log = running_log_id(JOB, attempt, 0)
        process: subprocess.Popen[bytes] = self.node.rank(
            *command, job=JOB, attempt=attempt, RUNNING_LOG_ID=str(log), EPOCH="0"
        )
        wait_until(lambda: process.poll() is not None or f"{log}.json" in self.node.files())
        return process

    def seen_now(self) -> set[tuple[int, int]]:
        """Attempt and rank of each rank of the job that was seen at this second."""
        beat = self.agent.functions.store.load_heartbeats([A])[A]
        return {(one.attempt, one.rank) for one in beat.ranks.values() if one.seen_at == self.agent.functions.now}


def run_stand_in(node: Node, url: str, token: str, rounds: int = 1) -> int:
    """The exit status of the stand-in after so many rounds."""
    programs = node.running.parent / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "nvidia-smi").write_text(NVIDIA_SMI)
    (programs / "nvidia-smi").chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "GPUTASKER_SERVER_URL": f"{url}{OLDER[0]}",
        "GPUTASKER_AGENT_TOKEN": token,
        "GPUTASKER_RUNNING_TASKS_DIR": str(node.running),
    }
    command = [sys.executable, str(FOLDER / "stand_in.py"), str(rounds)]
    return subprocess.run(command, env=environment, timeout=WITHIN_S, check=False).returncode


def old_exit_file(node: Node, log: int) -> None:
    """An exit as earlier wrappers left it."""
    node.running.mkdir(exist_ok=True)
    content = {"job_id": JOB, "attempt": 1, "rank": 0, "running_log_id": log, "code": 1}
    (node.running / f"{log}.exit.json").write_text(json.dumps(content))


@pytest.fixture
def agent(functions: Functions) -> Agent:
    """An agent of instance A, on which rank 0 of a running gang has its GPUs."""
    gang(functions, instances=(A,))
    functions.store.save_instance(instance(A, claims={JOB: replace(claim(), rank=0)}))
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken()))


@pytest.fixture
def gputasker(agent: Agent, tmp_path: Path) -> Iterator[GpuTasker]:
    with served(agent.functions) as url:
        node = Node(tmp_path, url)
        try:
            yield GpuTasker(agent, node, url)
        finally:
            node.end()


# -- the stand-in ------------------------------------------------------------------------------------------------------


def test_the_stand_in_sends_what_the_agent_was_recorded_to_send(tmp_path: Path) -> None:
    """Of the same folder and the same nvidia-smi. Only process numbers, processes on GPUs, token and time differ."""
    living = os.getpid()
    with serving(Api()) as api:
        node = Node(tmp_path, api.url)
        node.running.mkdir()
        log = 5012345678901234
        rank = {"running_log_id": log, "remote_pid": str(living), "remote_pgid": str(living), "timestamp": "1734220000"}
        files = {f"{log}.json": rank, "17.exit.json": {"running_log_id": 17, "code": 9}}
        files |= {"18.json": {"remote_pid": 99999999}, "19.json": {}, "20.exit": {"running_log_id": 20}}
        for name, content in files.items():
            (node.running / name).write_text(json.dumps(content))
        assert run_stand_in(node, api.url, "TOKEN") == 0
    assert [one.path for one in api.heard] == list(OLDER)
    gpus, tasks = (one.report for one in api.heard)
    assert (list(gpus), list(tasks)) == (list(RECORDED["report_gpu"]), list(RECORDED["report_tasks"]))
    assert gpus["gpus"] == [one | {"processes": []} for one in RECORDED["report_gpu"]["gpus"]]
    recorded = [
        one | ({"remote_pid": living, "remote_pgid": living} if "remote_pid" in one else {})
        for one in RECORDED["report_tasks"]["tasks"]
    ]
    assert sorted(tasks["tasks"], key=str) == sorted(recorded, key=str)
    assert (tasks["token"], type(tasks["timestamp"])) == ("TOKEN", int)
    assert node.files() == sorted(set(files) - {"18.json"})


def test_the_stand_in_ends_where_the_agent_was_seen_to_end(tmp_path: Path) -> None:
    """After a rejected token, with status 0. Any other answer is passed over."""
    with serving(Api()) as api:
        node = Node(tmp_path, api.url)
        api.script = [refusal(500, "oops"), refusal(429, "too_many"), refusal(403, "invalid_token")]
        assert run_stand_in(node, api.url, "TOKEN", rounds=5) == 0
    assert [one.path for one in api.heard] == [*OLDER, OLDER[0]]


def test_the_recorded_calls_are_understood(agent: Agent) -> None:
    """Two GPUs in the inventory. Of the three tasks one is a rank here."""
    said = agent.older(OLDER[0], **{name: value for name, value in RECORDED["report_gpu"].items() if name != "token"})
    assert (said.status, said.body["ok"]) == (200, True)
    kept = agent.functions.store.load_inventory(A)
    assert kept is not None and [one["memory_used"] for one in json.loads(kept[1])["gpus"]] == [1024, 4]
    tasks = [
        one | ({"running_log_id": LIVE} if "remote_pid" in one else {}) for one in RECORDED["report_tasks"]["tasks"]
    ]
    said = agent.older(OLDER[1], tasks=tasks, timestamp=RECORDED["report_tasks"]["timestamp"])
    assert (said.status, said.body["updated"], said.body["revived"]) == (200, 1, 0)


# -- ranks in the wrapper ----------------------------------------------------------------------------------------------


def test_a_rank_that_has_ended_is_reported_no_more(gputasker: GpuTasker) -> None:
    """Its exit file stays, because no agent of this project removes it. GPUTasker's agent does not read it."""
    rank = gputasker.rank("sleep", "600")
    gputasker.reports()
    assert gputasker.seen_now() == {(1, 0)}
    (name,) = gputasker.node.files()
    os.kill(json.loads((gputasker.node.running / name).read_text())["remote_pgid"], 9)
    assert rank.wait(WITHIN_S) == 128 + 9
    assert len(gputasker.node.files()) == 1
    gputasker.agent.functions.now = later(15)
    gputasker.reports()
    assert gputasker.seen_now() == set()


def test_a_hundred_ended_ranks_hide_no_living_rank(gputasker: GpuTasker) -> None:
    """None of their files is reported, so the report stays as small as at the beginning."""
    gputasker.node.running.mkdir()
    for rank in range(99):
        variables = {"JOB_ID": JOB, "ATTEMPT": "1", "RANK": str(rank), "RUNNING_LOG_ID": str(1_000 + rank)}
        RankFiles(gputasker.node.environment | variables).end(Ended(code=1), {})
    assert len(gputasker.node.files()) == 99
    gputasker.rank("sleep", "600")
    with serving(Api()) as api:
        run_stand_in(gputasker.node, api.url, "TOKEN")
    assert [one["running_log_id"] for one in api.heard[1].report["tasks"]] == [LIVE]


# -- exits that earlier wrappers left: each is reported as a running task until the file is gone ----------------------


def test_a_living_rank_counts_wherever_the_list_names_it(agent: Agent) -> None:
    """The agent lists files in no order. The tasks that are known here come before any limit."""
    dead = [{"running_log_id": 10_000 + number} for number in range(200)]
    for place in (0, 63, 64, 200):
        said = agent.older(OLDER[1], tasks=[*dead[:place], {"running_log_id": LIVE}, *dead[place:]])
        assert (said.status, said.body["updated"]) == (200, 1)


def test_a_rank_that_was_launched_after_the_last_read_counts_among_many_dead_ones(agent: Agent) -> None:
    """At once if the list is short, and within a minute however long it is."""
    dead = [{"running_log_id": 10_000 + number} for number in range(200)]
    assert agent.older(OLDER[1], tasks=[*dead, {"running_log_id": LIVE}]).body["updated"] == 1
    agent.functions.store.save_instance(replace(agent.functions.instance(), claims={JOB: replace(claim(2), rank=0)}))
    agent.functions.now = later(60)
    said = agent.older(OLDER[1], tasks=[*dead, {"running_log_id": running_log_id(JOB, 2, 0)}])
    assert said.body["updated"] == 1


def test_no_number_of_dead_ranks_costs_more_calls(agent: Agent) -> None:
    """The write, and once a minute the read of the token and the claims, as without them."""
    tasks = [{"running_log_id": 10_000 + number} for number in range(5_000)]
    costs = []
    for at in range(0, 300, 15):
        agent.functions.now = later(at)
        assert agent.older(OLDER[1], tasks=[*tasks, {"running_log_id": LIVE}]).body["updated"] == 1
        costs.append(agent.functions.aws.operations("dynamodb"))
    assert max(cost.total() for cost in costs[1:]) == 2
    assert sum(cost["BatchGetItem"] for cost in costs[1:]) == 300 // 60 - 1


def test_a_rank_of_an_attempt_that_is_over_is_heard_by_no_function(gputasker: GpuTasker) -> None:
    """Its old exit file is reported for ever, beside the next attempt. Each function has heard attempt 1."""
    agent, warm = gputasker.agent, WarmFunctions(gputasker.agent.functions)
    first = gputasker.rank("sleep", "600")
    for function in warm.each():
        gputasker.reports()
        assert gputasker.seen_now() == {(1, 0)}, function
    first.kill()
    first.wait()
    old_exit_file(gputasker.node, LIVE)
    agent.functions.store.save_instance(replace(agent.functions.instance(), claims={JOB: replace(claim(2), rank=0)}))
    gputasker.rank("sleep", "600", attempt=2)
    agent.functions.now = later(90)
    for function in warm.each():
        gputasker.reports()
        assert gputasker.seen_now() == {(2, 0)}, function
