"""A gang whose processes report through the SDK: socket of the agent, report, node API, table, evidence, diagnosis.

Nothing on the way is hand-made. Processes of the gang are reporters in the test's process, or child processes where the
pid matters. Time is the test's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.catalogue import RULES
from gpu_recovery.core.diagnosis.rule import RuleFinding, findings
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.execution.evidence import Evidence, collect_evidence, thresholds_of
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import RankIdentity
from gpu_recovery_agent.report import ReportContent, body
from gpu_recovery_agent.sensors.ranks import LiveRank
from gpu_recovery_agent.sensors.training_socket import TrainingSocket
from gpu_recovery_client.diagnosis import reporter, stages, timings

from tests.aws.ecs_events import instance_event
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, claim, instance, job, later, launched
from tests.client.training_process import Clock, FakeNvml, Quiet
from tests.execution.failed_gang import loop
from tests.job_api.routes.test_jobs import logging
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions

BOOT = "0b7f3c1e-6a55-4e0c-9f3b-2a9c7d1e4f60"
FAKE_NVML = Path(__file__).parents[1] / "agent" / "fake_nvml"
CHILD_S = 20.0
SDK = """
import sys
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis.reporter import reporter
from gpu_recovery_client.diagnosis.sender import Sender
Sender._begin = lambda self: None  # the program itself turns
sys.stdin.readline()
"""
TOLD = "\nreporter().sender.turn()\nprint('told', flush=True)\n"


@dataclass
class Process:
    """A process of the gang: its reporter, and what the modules of the SDK keep of it."""

    voice: reporter.ObservationReporter
    kept: dict[str, list[Any]] = field(default_factory=dict)


@dataclass
class Agent:
    """The agent of one instance; `number` is the last report's."""

    instance_id: str
    rank: int
    socket: TrainingSocket
    token: str
    number: int = 0

    def report(self, functions: Functions, uptime_s: float) -> None:
        """Send what has arrived, and forget what the API has taken."""
        self.socket.poll(uptime_s)
        while True:
            taken = self.socket.batch()
            self.number += 1
            rank = LiveRank(RankIdentity(JOB, 1, self.rank), None, 4_000 + self.rank, 99)
            facts = ReportContent(BOOT, (rank,), diagnosis=taken, diagnosis_lost=self.socket.lost)
            sent = body(facts, sequence=self.number, uptime_s=uptime_s, kernel_log_s=uptime_s, interval_s=15.0)
            answer = functions.call(
                "node_api",
                {
                    "version": "2.0",
                    "rawPath": "/api/v1/reports",
                    "headers": {"authorization": f"Bearer {self.token}"},
                    "isBase64Encoded": False,
                    "body": json.dumps(sent),
                    "requestContext": {"http": {"method": "POST", "path": "/api/v1/reports"}, "stage": "$default"},
                },
            )
            said = json.loads(answer["body"])
            assert answer["statusCode"] == 200 and not said.get("left_out"), said
            self.socket.acknowledge(taken, self.socket.lost)
            if not taken:
                return


class LiveGang:
    """A running gang with a rank on each of `world` instances; `racks` are the attributes of the instances."""

    def __init__(
        self,
        functions: Functions,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        world: int = 2,
        racks: tuple[str, ...] = (),
    ) -> None:
        self.functions, self.api, self.clock, self.patch = functions, Api(functions), Clock(), monkeypatch
        self.plan = launched(JOB, world=world)
        self.stack, self._children, self.folder = ExitStack(), list[subprocess.Popen[str]](), folder
        self._voices: dict[tuple[int, int | None, str], Process] = {}
        self.lines: dict[int, tuple[str, ...]] = {}
        self.frozen: list[reporter.ObservationReporter] = []
        store = functions.store
        tokens = DynamoTokenStore(store.table.client, store.table.name)
        self.agents = []
        for rank, name in enumerate(self.plan.instances):
            store.save_instance(instance(name, claims={JOB: replace(claim(), rank=rank)}))
            if racks:
                self._is_in_rack(name, racks[rank])
            socket = TrainingSocket(folder / f"{rank}.sock", AgentLog())
            self.stack.callback(socket.close)
            socket.poll(self.clock.at)
            self.agents.append(
                Agent(name, rank, socket, issue(tokens, NODE_KEY, name, NOW, "a test", AskedToken()).token)
            )
        fields: dict[str, Any] = {"status": JobStatus.RUNNING, "attempt": 1, "launched": True}
        store.create_job(job(JOB, instances=self.plan.instances, **fields), "")
        store.begin_attempt(self.plan)
        store.record_tasks(self.plan, tuple(range(world)))
        logging(self.api)
        functions.aws.answers["GetLogEvents"] = self._log

    def _is_in_rack(self, name: str, rack: str) -> None:
        attributes = [{"name": "gpu-recovery.rack", "value": rack}] if rack else []
        self.functions.call("ecs_instance_monitor", instance_event(name, 4, attributes=attributes))

    def _log(self, asked: dict[str, Any]) -> dict[str, Any]:
        at, rank = int(NOW.timestamp() * 1000), int(asked["logStreamName"].rpartition("-")[2])
        events = [
            {"timestamp": at + number, "message": line, "ingestionTime": at}
            for number, line in enumerate(self.lines.get(rank, ()))
        ]
        return {"events": events, "nextForwardToken": "f/1", "nextBackwardToken": "b/1"}

    # -- what happens --------------------------------------------------------------------------------------------------

    def passes(self, seconds: float) -> None:
        """Let time pass, with a report of every agent at the end."""
        self.clock.at += seconds
        self.report()

    def report(self) -> None:
        """Let every process send, and every agent report."""
        self.functions.now = later(self.clock.at - 1_000.0)
        for process in self._voices.values():
            if process.voice in self.frozen:
                continue
            with self._speaking(process):
                process.voice.sender.turn()
                process.voice.sender.finish()
        for agent in self.agents:
            agent.report(self.functions, self.clock.at)

    def environment(self, rank: int, local: int | None, role: str, worker: str) -> dict[str, str]:
        """The variables of a process, as its launcher sets them."""
        found = {
            "JOB_ID": JOB,
            "ATTEMPT": "1",
            "NODE_RANK": str(rank),
            "GPU_RECOVERY_SOCKET": str(self.folder / f"{rank}.sock"),
            "GPU_RECOVERY_ROLE": role,
            "GPU_RECOVERY_WORKER": worker,
        }
        return found | ({} if local is None else {"LOCAL_RANK": str(local)})

    def launched_anew(self) -> None:
        """Forget the processes of this test: the next ones with their names are other processes."""
        self._voices.clear()

    @contextmanager
    def process(self, rank: int = 0, local: int | None = 0, role: str = "", worker: str = "") -> Iterator[Any]:
        """What happens in this process of the gang."""
        key = (rank, local, worker)
        if key not in self._voices:
            identity = reporter.of_environment(self.environment(rank, local, role, worker))
            sender = Quiet(identity.path, self.clock.now)
            self._voices[key] = Process(reporter.ObservationReporter(identity, sender))
        with self._speaking(self._voices[key]) as voice:
            yield voice

    @contextmanager
    def _speaking(self, process: Process) -> Iterator[reporter.ObservationReporter]:
        lists = {"reporter": reporter._reporter, "stages": stages._stages, "progress": timings._progressing}
        before = {name: list(values) for name, values in lists.items()}
        for name, values in lists.items():
            values[:] = process.kept.get(name, [])
        reporter._reporter[:] = [process.voice]
        try:
            yield process.voice
        finally:
            process.kept = {name: list(values) for name, values in lists.items()}
            for name, values in lists.items():
                values[:] = before[name]

    def nvml(self, nvml: FakeNvml) -> FakeNvml:
        """The GPUs that every process sees."""
        self.patch.setitem(sys.modules, "pynvml", nvml)
        return nvml

    def child(self, rank: int, program: str, role: str = "", worker: str = "", local: int | None = None) -> Any:
        """A process of its own, which waits for `goes` before it runs its program."""
        environment = {
            **os.environ,
            **self.environment(rank, local, role, worker),
            "PYTHONPATH": os.pathsep.join([str(FAKE_NVML), *sys.path]),
            "FAKE_NVML": str(self.folder / "nvml.json"),
        }
        command = [sys.executable, "-c", f"{SDK}{program}{TOLD}sys.stdin.readline()\n"]
        made = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._children.append(made)
        return made

    def holds(self, **megabytes: Any) -> None:
        """What NVML says of the one GPU: the processes, as pairs of pid and megabytes."""
        (self.folder / "nvml.json").write_text(json.dumps({"gpus": [megabytes]}))

    def goes(self, child: Any) -> None:
        """Let a child run its program, and wait until it has told everything."""
        child.stdin.write("\n")
        child.stdin.flush()
        assert child.stdout.readline() == "told\n"
        self.report()

    def ends(self, rank: int, code: int) -> None:
        """A rank has exited, as ECS tells it."""
        ending = Ending(EndingKind.FAILED, code, f"exited with code {code}")
        failed = RankFailure(rank, self.plan.instances[rank], self.functions.now, ending)
        record = self.functions.job()
        self.functions.store.save_job(replace(record, failure=failed))

    def over(self) -> None:
        """End what this gang began."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.close()
            child.wait(CHILD_S)
            assert child.stdout is not None
            child.stdout.close()
        self.stack.close()

    # -- what is made of it --------------------------------------------------------------------------------------------

    def evidence(self) -> Evidence:
        """What is collected of the attempt."""
        recovery, job_now, now = loop(self.api), self.functions.job(), self.functions.now
        return collect_evidence(recovery.store, recovery.actions.log_tail, recovery.policy, job_now, self.plan, now)

    def found(self) -> tuple[RuleFinding, ...]:
        """What every rule finds in the stored evidence."""
        recovery, evidence = loop(self.api), self.evidence()
        at_s = self.functions.now.timestamp()
        case = Case.of(evidence.reports, evidence.topology, evidence.history, at_s, thresholds_of(recovery.policy))
        return findings(RULES, case)

    def verdict(self) -> dict[str, Any]:
        """What the API answers."""
        answer = self.api.post("/diagnoses", {"job_id": JOB})
        assert answer.status == 200, answer.body
        found: dict[str, Any] = answer.body
        return found


@contextmanager
def live_gang(functions: Functions, folder: Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> Iterator[LiveGang]:
    """A running gang, as long as the context."""
    made = LiveGang(functions, folder, monkeypatch, **how)
    try:
        yield made
    finally:
        made.over()
