"""A gang of three hangs: from what the code of the agent reads on each instance, over the node API, to the decision.

NVML is that of the tests with its real binding's structures, `/proc`, `/sys` and the files of the ranks are trees on
disk. The reports go through the deployed functions.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import RankIdentity, rank_fields, stem_of
from gpu_recovery_agent.rank.paths import output_path
from gpu_recovery_agent.report import ReportContent, body
from gpu_recovery_agent.sensors import gpu_health, nvml_reading
from gpu_recovery_agent.sensors.host_counters import CounterReader
from gpu_recovery_agent.sensors.rank_activity import ActivitySensor
from gpu_recovery_agent.sensors.ranks import RankSensor

from tests.agent.fake_proc import BOOT, Proc
from tests.agent.node import FAKE_NVML
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, claim, instance, job, later, launched, spec
from tests.lambdas.conftest import Functions
from tests.node_api.test_router import REPORTS, Agent, Ear

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
STEP_S, RANKS, GPUS = 15, 3, 2
WRAPPER, WORKER, TICKS, TICKS_PER_S = 100, 101, 99, os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Does:
    """What a rank does in a step: each GPU, each process on a GPU, the instance, and whether it writes a line."""

    utilization: int = 97
    power_w: int = 692
    cores: float = 1.0
    fabric_mb_s: int = 4_000
    disk_mb_s: int = 0
    state: str = "R"
    line: bool = False


TRAINS = Does()
SPINS = Does(utilization=100, power_w=160, fabric_mb_s=0)
SLEEPS = Does(utilization=0, power_w=127, cores=0.0, fabric_mb_s=0, state="S")
SAVES = Does(utilization=3, power_w=129, fabric_mb_s=0, disk_mb_s=800)
COMPILES = Does(utilization=5, power_w=140, cores=4.0, fabric_mb_s=0)


class Node:
    """One instance: its trees, and the sensors of its agent."""

    def __init__(self, folder: Path, rank: int, instance_id: str, nvml: ModuleType) -> None:
        self.instance_id, self._nvml, self._folder = instance_id, nvml, folder
        self.proc = Proc(folder / "proc")
        self.proc.add(WRAPPER, TICKS)
        (folder / "ranks").mkdir()
        port = folder / "sys/class/infiniband/rdmap0/ports/1/hw_counters"
        net = folder / "sys/class/net/ens5"
        for path in (port, net / "statistics", net / "device"):
            path.mkdir(parents=True)
        (net / "statistics/rx_bytes").write_text("0\n")
        (net / "statistics/tx_bytes").write_text("0\n")
        self._counters, self._disk = port, folder / "proc/diskstats"
        identity = RankIdentity(JOB, 1, rank)
        claims = {**rank_fields(identity), "remote_pid": WRAPPER, "start_ticks": TICKS, "boot_id": BOOT}
        (folder / "ranks/r.json").write_text(json.dumps(claims))
        log, self.now = AgentLog(), 0.0
        self._ranks = RankSensor(folder / "ranks", folder / "proc", BOOT, log)
        counters = CounterReader(folder / "sys", folder / "proc")
        self._activity = ActivitySensor(folder / "ranks", folder / "proc", counters.read, lambda: self.now)
        self._energy_mj, self._cpu_ticks, self._moved, self._written = 0, 0, 0, 0
        self.hides: frozenset[str] = frozenset()
        self._live = self._ranks.poll()[0]
        self._output = output_path(folder / "ranks", stem_of(identity))
        self._output.touch()
        os.utime(self._output, (0, 0))
        self.sequence = 0

    def does(self, does: Does, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        """The report of the agent after a step."""
        self.now += STEP_S
        self.sequence += 1
        self._energy_mj += does.power_w * 1_000 * STEP_S
        self._cpu_ticks += int(does.cores * STEP_S * TICKS_PER_S)
        self._moved += does.fabric_mb_s * 1_000_000 * STEP_S
        self._written += does.disk_mb_s * 1_000_000 * STEP_S // 512
        for worker in range(GPUS):
            pid = WORKER + worker
            self.proc.add(pid, TICKS + 1, parent=WRAPPER, state=does.state, cpu_ticks=self._cpu_ticks)
        raises = {"nvmlDeviceGetUtilizationRates": 3} if "utilization" in self.hides else {}
        gpus = [
            {
                "utilization": does.utilization,
                "energy": self._energy_mj,
                "processes": [WORKER + worker],
                "raises": raises,
            }
            for worker in range(GPUS)
        ]
        (self._counters / "tx_bytes").write_text(f"{self._moved}\n")
        (self._counters / "rx_bytes").write_text("0\n")
        if "traffic" in self.hides:
            self._disk.unlink(missing_ok=True)
        else:
            disk = f"{self._written} 0 0 0 0"
            self._disk.write_text(f" 259 0 nvme0n1 1 0 0 0 9 0 {disk}\n 259 1 nvme0n1p1 1 0 0 0 9 0 {disk}\n")
        if does.line:
            os.utime(self._output, (self.now, self.now))
        monkeypatch.setattr(self._nvml, "_behaviour", lambda: {"gpus": gpus})
        reading = nvml_reading.read(self._nvml)
        self._live = self._ranks.poll()[0]
        self._activity.sample(self._live, reading)
        known = {live: values for live in self._live if (values := self._activity.values(live)) is not None}
        health = gpu_health.gpu_health_of(reading, trouble=None, hung=False, silent_s=0.0, gpus_before=GPUS)
        facts = ReportContent(BOOT, running=self._live, health=health, activity=known)
        return body(facts, sequence=self.sequence, uptime_s=600 + self.now, kernel_log_s=0.0, interval_s=STEP_S)


class Gang:
    """Three instances and the functions."""

    def __init__(self, functions: Functions, nodes: list[Node], patch: pytest.MonkeyPatch) -> None:
        self.functions, self.nodes, self._patch = functions, nodes, patch
        tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
        issued = [issue(tokens, NODE_KEY, node.instance_id, NOW, "a test", AskedToken()) for node in nodes]
        self._agents = [Agent(functions, Ear(), tokens, one) for one in issued]
        self.step, self.silent = 0, frozenset[int]()
        self.observations: Callable[[int, int], list[dict[str, Any]]] = lambda rank, step: []
        """The progress reports of a rank at a step."""
        self.early_s = 0.0
        """Seconds by which the reports come before their step."""

    def does(self, *ranks: Does, seconds: int, is_reported: bool = True) -> Job:
        """What each rank does for so long: the first value for rank 0, the last for all further ranks."""
        for _ in range(seconds // STEP_S):
            self.step += 1
            self.functions.now = later(self.step * STEP_S - self.early_s)
            for rank, (node, agent) in enumerate(zip(self.nodes, self._agents, strict=True)):
                report = node.does(ranks[min(rank, len(ranks) - 1)], self._patch)
                report["diagnosis"] = self.observations(rank, self.step)
                if rank in self.silent or not is_reported:
                    continue
                answer = agent.call(REPORTS, report)
                assert (answer.status, answer.body["refused"]) == (200, []), answer.body
                self.functions.wake()
        return self.functions.job()

    def told(self) -> list[str]:
        """The reasons of the notices of a hang."""
        decided = self.functions.logged("job_decided")
        return [
            line["reason"] for line in decided if line["event_type"] == "HangSuspected" and line["outcome"] == "APPLIED"
        ]


@pytest.fixture
def gang(functions: Functions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gang]:
    """A running gang of three under the policy `hang_without_progress`, and further settings."""

    def made(action: str = "notify", **settings: Any) -> Gang:
        monkeypatch.setenv("RECOVERY_POLICY", json.dumps({"hang_without_progress": action, **settings}))
        functions.chill()
        there = launched(world=RANKS)
        fields: dict[str, Any] = {
            "status": JobStatus.RUNNING,
            "attempt": 1,
            "launched": True,
            "instances": there.instances,
        }
        fields |= {"running_at": NOW, "spec": spec(nnodes=RANKS, gpus_per_node=GPUS)}
        functions.store.create_job(job(**fields), "")
        functions.store.begin_attempt(there)
        functions.aws.tasks[attempt_id(JOB, 1)] = list(there.task_ids)
        for rank, name in enumerate(there.instances):
            functions.store.add_running(JOB, 1, rank)
            functions.store.save_instance(instance(name, claims={JOB: replace(claim(), rank=rank)}))
        module = importlib.util.spec_from_file_location("fake_pynvml_of_gang", FAKE_NVML / "pynvml.py")
        assert module is not None and module.loader is not None
        nvml = importlib.util.module_from_spec(module)
        module.loader.exec_module(nvml)
        nodes = []
        for rank, name in enumerate(there.instances):
            folder = tmp_path / name
            folder.mkdir()
            nodes.append(Node(folder, rank, name, nvml))
        return Gang(functions, nodes, monkeypatch)

    return made


def trained(gang: Gang) -> Gang:
    """The same gang after a compilation of three minutes and ten minutes of training."""
    gang.does(COMPILES, seconds=180, is_reported=False)
    gang.does(replace(TRAINS, line=True), TRAINS, seconds=585, is_reported=False)
    gang.does(TRAINS, seconds=15)
    assert gang.told() == []
    return gang


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        ((SPINS,), "each of the 3 ranks waits in a kernel on its GPUs, for 105 s: the GPUs draw 160 W, usually 692 W"),
        ((SLEEPS,), "each of the 3 ranks is idle, for 105 s: the GPUs draw 127 W, usually 692 W"),
        ((SPINS, SLEEPS, SPINS), "rank 1 is idle, and each of the other 2 ranks waits in a kernel on its GPUs"),
    ],
)
def test_a_hang_is_told_once_within_three_minutes(
    gang: Callable[[str], Gang], ranks: tuple[Does, ...], says: str
) -> None:
    """All spin, all sleep, and one differs, which is named with its instance."""
    three = trained(gang("notify"))
    three.does(*ranks, seconds=180)
    (told,) = three.told()
    assert says in told and "and the last line of output is" in told
    assert (three.nodes[1].instance_id in told) == (len(ranks) == 3)
    after = three.does(*ranks, seconds=300)
    assert len(three.told()) == 1 and after.status is JobStatus.RUNNING and after.hang_told_at is not None


def test_act_stops_the_gang_only_after_it_was_told(gang: Callable[[str], Gang]) -> None:
    """The gang is stopped as for a progress timeout."""
    three = trained(gang("act"))
    assert three.does(SPINS, seconds=165).status is JobStatus.RUNNING
    assert len(three.told()) == 1
    after = three.does(SPINS, seconds=150)
    assert after.status is JobStatus.STOPPING and "waits in a kernel" in after.stop_reason and after.hang_stops == 1


@pytest.mark.parametrize(
    "ranks",
    [(SPINS, TRAINS), (TRAINS, SPINS), (SAVES,), (SAVES, SPINS), (replace(SPINS, line=True), SPINS)],
    ids=["one progresses", "the first progresses", "all save", "rank 0 saves", "a line is written"],
)
def test_ranks_that_work_are_no_hang(gang: Callable[[str], Gang], ranks: tuple[Does, ...]) -> None:
    """One of them is enough."""
    three = trained(gang("notify"))
    three.does(*ranks, seconds=300)
    assert three.told() == []


def test_a_gang_that_never_trained_does_not_hang(gang: Callable[[str], Gang]) -> None:
    """There is no baseline: a compilation is as quiet as this."""
    three = gang("notify")
    three.does(COMPILES, seconds=600, is_reported=False)
    three.does(SLEEPS, seconds=240)
    assert three.told() == []


def test_a_gang_that_has_trained_for_a_moment_does_not_hang(gang: Callable[[str], Gang]) -> None:
    """The first compilation may come in parts, with steps between."""
    three = gang("notify")
    three.does(COMPILES, seconds=180, is_reported=False)
    three.does(TRAINS, seconds=390, is_reported=False)
    three.does(SLEEPS, seconds=240)
    assert three.told() == []


@pytest.mark.parametrize("hidden", ["utilization", "traffic", "reports"])
def test_what_is_unknown_is_not_zero(gang: Callable[[str], Gang], hidden: str) -> None:
    """An instance whose agent does not see the GPU or the traffic, or is silent, may be at work."""
    three = trained(gang("notify"))
    if hidden == "reports":
        three.silent = frozenset({2})
    else:
        three.nodes[2].hides = frozenset({hidden})
    three.does(SLEEPS, seconds=300)
    assert three.told() == []


def test_a_pause_that_was_longer_before_is_no_hang(gang: Callable[[str], Gang]) -> None:
    """The first is told. Its length is then known, and one of less than twice the length is no hang."""
    three = trained(gang("notify"))
    three.does(SLEEPS, seconds=150)
    assert len(three.told()) == 1
    three.does(TRAINS, seconds=600, is_reported=False)
    three.does(SLEEPS, seconds=270)
    assert len(three.told()) == 1
    three.does(TRAINS, seconds=600, is_reported=False)
    three.does(SLEEPS, seconds=600)
    assert len(three.told()) == 2
