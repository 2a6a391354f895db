"""A GPU fault from the kernel's log to the repair: agent, control plane and health check held against each other.

The production loop runs in a world of the simulator. The report is the node agent's own, made of the kernel
log of the instance. The RunTask request is the control plane's own. The check is the real one: it reads that log, a
driver and a diagnostic of the test. No part is told by the test how another names a GPU.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.actions import parse_verdict
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.heartbeat import AgentCommandKind
from gpu_recovery.core.instance import gpu_reset
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.node_api.heartbeats import HeartbeatReceiver
from gpu_recovery.node_api.report_parser import parse_report as parsed
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.report import ReportContent, body, encoded
from gpu_recovery_agent.sensors.gpu_health import GpuHealthStatus
from gpu_recovery_agent.sensors.kernel_log import KernelLogSensor

import health_check.check
from health_check import driver, kernel_evidence
from health_check.run import ProcessRun
from sandbox.cluster import dcgmi, nvidia_smi
from sandbox.cluster.instance_folder import InstanceFolder
from sandbox.cluster.model.instances import gpus_reset
from sandbox.cluster.model.records import ModelInstance, Task
from sandbox.cluster.model.statuses import CuredBy, Ec2State
from sandbox.cluster.nvidia_smi import pci_address
from simulator.cloud.task_environment import environment
from simulator.cloud.workloads import Checks, ScriptedCheck
from simulator.world import World
from tests.health_check.examinations import smi

S = InstanceStatus
INTERVAL_S = 15.0
LOST = "Unable to determine the device handle for GPU{index}: {pci}.0: Unknown Error"
KERNEL = {
    "xid79": (),
    "ecc": (),
    "gsp": ("NVRM: Xid (PCI:{pci}): 119, pid=7, name=python, Timeout after 6s of waiting for RPC response from GPU",),
    "hidden": ("NVRM: Xid (PCI:****:**:**): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",),
    "switch": ("nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 60 sourcetag timeout",),
}
"""What the kernel's log says of each kind of fault; of the first two, what the sandbox has it say."""


@dataclass
class Machine:
    """What a check and an agent see of one machine: its folder, its boot, and the agent's own memory."""

    host: InstanceFolder
    boot_id: str
    kernel_log: KernelLogSensor
    sequence: int = 0
    reset: dict[str, Any] = field(default_factory=dict)
    """How the last reset of its GPUs ended."""


@dataclass
class Site:
    """A world whose agents and checks are the real ones."""

    folder: Path
    world: World = field(default_factory=lambda: World(instances=4, diagnose=True))
    machines: dict[str, Machine] = field(default_factory=dict)
    documents: list[dict[str, Any]] = field(default_factory=list)
    muted: set[str] = field(default_factory=set)
    """Machines whose agent waits for the test before it says more."""

    def beats(self) -> None:
        """Every agent reports, and does so again."""
        self.world.timeline.after(INTERVAL_S, self.beats)
        for machine in self.world.model_instances():
            is_on = machine.ec2_state is Ec2State.RUNNING and not self.world.fleet.is_down(machine)
            if is_on and machine.instance_id not in self.muted:
                self.reports(machine)

    def at(self, machine: ModelInstance) -> Machine:
        known = self.machines.get(machine.instance_id)
        if known is None or known.boot_id != machine.boot_id:
            folder = self.folder / f"{machine.instance_id}-{len(self.machines)}"
            log = KernelLogSensor(folder / "dev/kmsg", AgentLog())
            known = self.machines[machine.instance_id] = Machine(
                InstanceFolder(folder, machine, {}), machine.boot_id, log
            )
        return known

    def breaks(self, machine: ModelInstance, kind: str, cured_by: CuredBy = CuredBy.REBOOT) -> None:
        """The first GPU of the machine fails, and the kernel logs it."""
        now, host = self.world.timeline.now, self.at(machine).host
        self.world.break_gpu(machine, kind, cured_by)
        if not KERNEL.get(kind):
            host.log_fault(machine, machine.gpus[0], kind, now)
        for line in KERNEL.get(kind, ()):
            host.kernel_message(machine, now, line.format(pci=pci_address(0)))
        host.note_gpus(machine)

    def reports(self, machine: ModelInstance) -> None:
        """What the machine's agent has seen since its last report, through the API's own parser."""
        known, now = self.at(machine), self.world.timeline.now
        known.sequence += 1
        facts = ReportContent(
            known.boot_id,
            xids=known.kernel_log.poll(),
            health=GpuHealthStatus("unknown", "NVML is switched off"),
            reset=dict(known.reset) if self.world.policy.gpu_reset else None,
        )
        uptime_s = (now - machine.booted_at).total_seconds()
        told = body(facts, sequence=known.sequence, uptime_s=uptime_s, kernel_log_s=uptime_s, interval_s=INTERVAL_S)
        answer = HeartbeatReceiver(self.world.recovery).receive(parsed(machine.instance_id, json.loads(encoded(told))))
        for command in answer.commands:
            if command.kind is AgentCommandKind.RESET and command.order_id != known.reset.get("order"):
                gpus_reset(machine)  # the driver forgets the error, and the kernel log keeps it
                known.host.note_gpus(machine)
                known.reset = {"order": command.order_id, "done": True, "sentence": "the GPUs were reset"}
                self.reports(machine)

    def statuses(self, machine: ModelInstance) -> list[str]:
        """The statuses that the machine's record has had, in order."""
        entries = self.world.instance(machine).history
        return [str(one.after) for one in entries if one.before != one.after]

    def subjects(self, machine: ModelInstance) -> list[str]:
        return [one.subject for one in self.world.messages() if machine.instance_id in one.subject]

    def focus(self, machine: ModelInstance) -> list[str]:
        """What the checks of the machine were told of suspects."""
        given = [environment(task) for task in self.world.cluster.tasks.values()]
        return [one["FOCUS"] for one in given if one.get("INSTANCE_ID") == machine.instance_id and "FOCUS" in one]


class RealChecks(Checks):
    """Checks whose verdict is the real one's, on what the machine shows."""

    site: Site

    def _end(self, task_id: str, scripted: ScriptedCheck | None) -> None:
        task = self.fleet.cluster.tasks[task_id]
        if scripted is not None or task.process.name != "RUNNING":
            super()._end(task_id, scripted)
            return
        check_id = environment(task)["CHECK_ID"]
        before = len(self.site.documents)
        code = self._checked(task)
        for document in self.site.documents[before:]:
            verdict = parse_verdict(json.dumps(document).encode(), check_id)
            if verdict is not None:
                self.bucket[check_id] = verdict
        self.fleet.end(task, code)

    def _checked(self, task: Task) -> int:
        machine = self.fleet.cluster.instance_of(task)
        lost = [index for index, gpu in enumerate(machine.gpus) if gpu in machine.faults]
        kinds = {gpu: fault.kind for gpu, fault in machine.faults.items()}
        present = [index for index in range(len(machine.gpus)) if index not in lost or "xid79" not in kinds.values()]
        xml = smi([f'<gpu id="0000{pci_address(n)}.0"><uuid>{machine.gpus[n]}</uuid></gpu>' for n in present])
        gone = [LOST.format(index=n, pci=pci_address(n)) for n in lost if n not in present]
        if not any(KERNEL.get(kind) for kind in kinds.values()):  # the driver of the sandbox knows the fault
            shown = nvidia_smi.Driver(self.site.at(machine).host.folder, "all")
            xml, gone = nvidia_smi.report(shown), list(shown.lost_lines())

        def diagnosed(
            level: int, timeout_s: float, *, gpus: frozenset[int] | None = None, host_engine: Path | None = None
        ) -> ProcessRun:
            assert host_engine is None, "the check of these instances starts its own engine"
            seen = sorted(gpus) if gpus is not None else list(range(len(machine.gpus)))
            document, code = dcgmi.diagnose(level, list(machine.gpus), seen, kinds)
            return ProcessRun(json.dumps(document), "", code)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("health_check.driver.ask", lambda timeout_s: driver.parse(xml, "\n".join(gone), 0))
            patch.setattr("health_check.examine.diagnose", diagnosed)
            patch.setattr(health_check.check, "publish", lambda settings, found: self.site.documents.append(found))
            given = {**environment(task), **self.site.at(machine).host.environment()}
            return health_check.check.check(given)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return served(Site(tmp_path))


def served(found: Site) -> Site:
    """Give the world real checks and agents."""
    checks = RealChecks(found.world.fleet)
    checks.site = found
    found.world.checks = found.world.actions.checks = checks
    found.beats()
    return found


def running(site: Site) -> tuple[str, ModelInstance]:
    """A job that runs on two machines, and the machine of its rank 1."""
    job_id = site.world.submit(2)
    site.world.until_status(job_id, JobStatus.RUNNING)
    site.world.let_pass(30)
    return job_id, site.world.cluster.instances[site.world.rank(job_id, 1).instance_id]


def fails(site: Site, job_id: str, machine: ModelInstance, kind: str, first: str) -> None:
    """The GPU fails, and the two who may say so say so in the order that is asked for."""
    site.muted.add(machine.instance_id)
    site.breaks(machine, kind)
    if first == "report":
        site.reports(machine)
    site.world.until(lambda: site.world.job(job_id).failure is not None, "the rank did not end")
    if first == "exit":
        site.world.until(lambda: site.world.instance(machine).status is S.CHECKING, "it was not checked")
        site.reports(machine)
    site.muted.clear()


@pytest.mark.parametrize("first", ["report", "exit"])
@pytest.mark.parametrize("kind", KERNEL)
def test_whoever_speaks_first_a_broken_gpu_is_repaired_and_the_job_goes_on(site: Site, kind: str, first: str) -> None:
    """The machine is rebooted, proved and in use again; nobody hears of a host that is set up wrongly."""
    job_id, machine = running(site)
    fails(site, job_id, machine, kind, first)
    site.world.until_status(job_id, JobStatus.RUNNING)
    site.world.until(site.world.is_quiet, "work is left")
    assert (site.world.job(job_id).attempt, site.world.instance(machine).status) == (2, S.AVAILABLE)
    assert "REBOOTING" in site.statuses(machine) and not machine.faults
    assert not site.world.instance(machine).avoid_reason
    assert not [one for one in site.subjects(machine) if "configuration" in one or "impaired" in one]
    assert {one["outcome"] for one in site.documents} == {"REBOOT", "HEALTHY"}
    assert not {found["code"] for one in site.documents for found in one["findings"]} & {"FOCUS_UNREAD"}
    if first == "report" and kind in ("xid79", "ecc", "gsp"):
        assert set(site.focus(machine)) == {pci_address(0)}
        assert [one["suspects"] for one in site.documents if one["focus"]] == [[0]]


@pytest.mark.parametrize("first", ["report", "exit"])
@pytest.mark.parametrize("outcome", [CheckOutcome.CONFIGURATION, CheckOutcome.INCONCLUSIVE])
@pytest.mark.parametrize("kind", ["xid79", "ecc", "switch"])
def test_a_check_that_could_not_tell_takes_no_fault_back(
    site: Site, kind: str, outcome: CheckOutcome, first: str
) -> None:
    """The agent has named an error that only a repair cures, in the same incident."""
    job_id, machine = running(site)
    site.world.checks.script(machine, ScriptedCheck(outcome), *([ScriptedCheck(outcome)] if first == "report" else []))
    fails(site, job_id, machine, kind, first)
    site.world.until_status(job_id, JobStatus.RUNNING)
    site.world.until(site.world.is_quiet, "work is left")
    assert "REBOOTING" in site.statuses(machine) and not machine.faults
    assert not [one for one in site.subjects(machine) if "configuration" in one or "impaired" in one]


def test_the_machines_own_verdict_counts_when_the_jobs_check_took_its_place(site: Site) -> None:
    """The check that the agent's report led to had blamed the machine; ECS said so after the job had asked for its own.

    As if it had been heard in time: the machine is rebooted at once, and the second check is stopped.
    """
    world = site.world
    world.fleet.timings = replace(world.fleet.timings, abort_s=30)
    job_id, machine = running(site)
    own, prompt = f"check/{machine.instance_id}/1", world.delivery
    world.delivery = lambda event: (30.0,) if event.get("detail", {}).get("startedBy") == own else prompt(event)
    world.checks.script(machine, ScriptedCheck(CheckOutcome.REBOOT, seconds=1), ScriptedCheck(None))
    site.breaks(machine, "hidden")
    site.reports(machine)
    world.until(lambda: world.instance(machine).checks == 2, "the job asked for no check")
    assert own in world.checks.bucket and world.instance(machine).status is S.CHECKING
    world.until(lambda: world.instance(machine).status is S.REBOOTING, "the verdict was lost", 60)
    world.until_status(job_id, JobStatus.RUNNING)
    assert (world.job(job_id).attempt, world.instance(machine).checks) == (2, 2)


def test_a_reset_is_proved_although_the_kernel_log_keeps_the_error(tmp_path: Path) -> None:
    """No boot has emptied the log: the check reads the XIDs that led to the reset once more, and they count no more."""
    policy = replace(PRESETS[Preset.ADAPTIVE], gpu_reset=True)
    site = served(Site(tmp_path, World(instances=4, diagnose=True, policy=policy)))
    job_id, machine = running(site)
    boot_id = machine.boot_id
    site.breaks(machine, "xid119", CuredBy.RESET)
    site.world.until(lambda: site.world.instance(machine).status is S.CHECKING, "it was not checked")
    site.world.until_status(job_id, JobStatus.RUNNING)
    site.world.until(site.world.is_quiet, "work is left")
    reasons = [entry.reason for entry in site.world.instance(machine).history]
    assert site.statuses(machine)[-4:] == ["CHECKING", "RESETTING", "VERIFYING", "AVAILABLE"], reasons
    assert machine.boot_id == boot_id and not machine.faults
    proof = site.documents[-1]
    assert {"XID_119", "XID_154"} <= {found["code"] for found in proof["findings"]}
    assert gpu_reset.CLOCKS_DIFFER_BY == kernel_evidence.CLOCKS_DIFFER_BY
    assert (proof["outcome"], proof["driver"]["recovery_action"]) == ("HEALTHY", "NONE")
