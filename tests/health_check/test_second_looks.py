"""What the check asks twice: a driver that drains peer-to-peer traffic, a diagnostic that contradicts itself.

The real examination runs; only the programs that it starts and its pauses are the test's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from health_check import driver
from health_check import examine as examining
from health_check.examine import examine, judge
from health_check.remedies import HealthOutcome
from health_check.run import ProcessRun
from health_check.settings import PASSIVE, CheckSettings
from tests.health_check.diagnostics import dcgm4, output, result, warning
from tests.health_check.examinations import ADDRESSES, SETTINGS, action_changed, gpu_xml, smi, xid
from tests.health_check.test_document import host_proc

HEALTHY = (dcgm4([result(gpu) for gpu in range(8)], gpus=8), 0)
CONTRADICTED = (output("dcgm_3_all_pass_with_exit_205.json"), 205)
FAULTY = (dcgm4([result(0, "Fail", [warning(52, 2)])]), 205)
DRAIN = "0x3 (Drain P2P)"


class Instance:
    """An instance with eight GPUs: what nvidia-smi and dcgmi say one time after another; the last word is repeated."""

    def __init__(self, folder: Path) -> None:
        self.kmsg = folder / "kmsg"
        self.kmsg.write_text("4,1,100000000,-;quiet\n")
        proc = host_proc(folder / "proc", boot_id="0c5d\n", stat="btime 1772355600\n")
        self.settings = replace(SETTINGS, host_proc=proc, host_kmsg=self.kmsg, timeout_s=2_220)
        self.actions: list[str] = ["None"]
        self.diagnostics: list[tuple[str, int]] = [HEALTHY]
        self.at_pause: Callable[[], object] = lambda: None
        self.calls: list[str] = []

    def nvidia_smi(self, command: Sequence[str], timeout_s: float) -> ProcessRun:
        self.calls.append("driver")
        action = self.actions.pop(0) if len(self.actions) > 1 else self.actions[0]
        return ProcessRun(smi([gpu_xml(0, action), *map(gpu_xml, range(1, 8))]), "", 0)

    def dcgmi(self, level: int, timeout_s: float, *, gpus: frozenset[int] | None = None, **_: object) -> ProcessRun:
        self.calls.append("dcgmi")
        text, code = self.diagnostics.pop(0) if len(self.diagnostics) > 1 else self.diagnostics[0]
        return ProcessRun(text, "", code)

    def pause(self, seconds: float) -> None:
        self.calls.append("pause")
        self.at_pause()

    def logs(self, line: str) -> None:
        with self.kmsg.open("a") as log:
            log.write(f"4,2,200000000,-;{line}\n")

    def verdict(self, **changes: object) -> tuple[HealthOutcome, set[str | None]]:
        settings: CheckSettings = replace(self.settings, **changes)  # type: ignore[arg-type]
        verdict = judge(examine(settings), level=settings.level, expected_gpus=8)
        return verdict.outcome, {one.code for one in verdict.findings if one.outcome is verdict.outcome}


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Instance:
    """The instance, in place of every program that the examination starts."""
    given = Instance(tmp_path)
    real_ask = driver.ask
    monkeypatch.setattr(examining.driver, "ask", lambda timeout_s: real_ask(given.nvidia_smi, timeout_s))
    monkeypatch.setattr(examining, "diagnose", given.dcgmi)
    monkeypatch.setattr(examining.time, "sleep", given.pause)
    return given


@pytest.mark.parametrize(
    ("later", "outcome"),
    [
        ("None", HealthOutcome.HEALTHY),
        ("Reset", HealthOutcome.REBOOT),
        ("PF FLR", HealthOutcome.REBOOT),
        ("Reboot", HealthOutcome.REBOOT),
        ("Drain and Reset", HealthOutcome.REBOOT),
    ],
)
def test_a_drain_of_peer_to_peer_traffic_is_decided_by_the_next_answer(
    instance: Instance, later: str, outcome: HealthOutcome
) -> None:
    """The job's processes have ended, so the driver is asked again, and says what the GPU needs."""
    instance.logs(xid(149))
    instance.logs(action_changed(DRAIN))
    instance.actions = ["Drain P2P", "Drain P2P", later]
    assert instance.verdict()[0] is outcome
    assert instance.calls[:5] == ["driver", "pause", "driver", "pause", "driver"]
    assert ("dcgmi" in instance.calls) is (outcome is HealthOutcome.HEALTHY)


def test_what_the_kernel_logs_during_the_drain_counts(instance: Instance) -> None:
    """The XID 154 of the action after the drain, although nvidia-smi does not answer any more."""
    instance.logs(action_changed(DRAIN))
    instance.actions = ["Drain P2P", "N/A"]
    instance.at_pause = lambda: instance.logs(action_changed("0x2 (Node Reboot Required)", old=DRAIN))
    assert instance.verdict() == (HealthOutcome.REBOOT, {"XID_154"})


def test_a_drain_that_does_not_end_although_no_job_works_there_leads_to_a_reboot(instance: Instance) -> None:
    """Three looks after the first. What still holds the traffic, such as UVM's persistence mode, ends with a boot."""
    instance.actions = ["Drain P2P"]
    assert instance.verdict() == (HealthOutcome.REBOOT, {"RECOVERY_ACTION_DRAIN_P2P"})
    assert instance.calls == ["driver", *["pause", "driver"] * 3]


def test_a_driver_that_does_not_answer_after_a_drain_request_leaves_it_to_the_diagnostic(instance: Instance) -> None:
    """Only an answer that repeats the request at the last look leads to the reboot."""
    instance.logs(action_changed(DRAIN))
    instance.actions = ["Drain P2P", "Drain P2P", "Drain P2P", "N/A"]
    assert instance.verdict()[0] is HealthOutcome.HEALTHY and "dcgmi" in instance.calls


@pytest.mark.parametrize(
    ("action", "number", "outcome", "code"),
    [
        ("Recover IMEX Domain", "0x5", HealthOutcome.CONFIGURATION, "RECOVERY_ACTION_RECOVER_IMEX_DOMAIN"),
        ("Bus Reset", "0x6", HealthOutcome.REBOOT, "RECOVERY_ACTION_BUS_RESET"),
        ("System Reboot", "0x7", HealthOutcome.REBOOT, "RECOVERY_ACTION_SYSTEM_REBOOT"),
        ("Replace Cooling", "0x8", HealthOutcome.INCONCLUSIVE, "RECOVERY_ACTION_OTHER"),
    ],
)
def test_an_action_of_newer_drivers_is_no_sign_of_health(
    instance: Instance, action: str, number: str, outcome: HealthOutcome, code: str
) -> None:
    """With a diagnostic that finds nothing; also where only the kernel log names the action, or only nvidia-smi."""
    instance.actions = [action]
    verdict, codes = instance.verdict()
    assert verdict is outcome and code in codes
    assert instance.verdict(level=PASSIVE)[0] is outcome
    instance.logs(action_changed(f"{number} ({action})"))
    assert instance.verdict()[0] is outcome
    instance.actions, only_the_log = ["N/A"], outcome is not HealthOutcome.INCONCLUSIVE
    assert instance.verdict()[0] is (outcome if only_the_log else HealthOutcome.HEALTHY)


def test_the_words_of_an_unknown_action_are_in_the_verdict(instance: Instance) -> None:
    """An operator can look them up."""
    instance.actions = ["Replace Cooling"]
    found = judge(examine(instance.settings), level=2, expected_gpus=8).findings[0]
    assert found.message.startswith(
        "its recovery action for the GPU is 'Replace Cooling', which this release does not know"
    )


def test_an_imex_domain_covers_what_needs_no_reset(instance: Instance) -> None:
    """The driver names it only if the GPU needs neither a reset nor a reboot; XID 119 is not covered by any action."""
    instance.logs(xid(149))
    instance.actions = ["Recover IMEX Domain"]
    assert instance.verdict()[0] is HealthOutcome.CONFIGURATION
    instance.logs(xid(119))
    assert instance.verdict()[0] is HealthOutcome.REBOOT


def test_a_passive_check_waits_for_no_drain(instance: Instance) -> None:
    """Jobs work on the instance, so their traffic goes on; the check accuses nobody and could not tell."""
    instance.actions = ["Drain P2P"]
    assert instance.verdict(level=PASSIVE)[0] is HealthOutcome.INCONCLUSIVE
    assert instance.calls == ["driver"]


@pytest.mark.parametrize(
    ("second", "outcome"),
    [
        (HEALTHY, HealthOutcome.HEALTHY),
        (FAULTY, HealthOutcome.REBOOT),
        (CONTRADICTED, HealthOutcome.INCONCLUSIVE),
    ],
)
def test_a_diagnostic_that_contradicts_itself_is_run_once_more(
    instance: Instance, second: tuple[str, int], outcome: HealthOutcome
) -> None:
    """Exit code 205 beside a document in which every test passed; the second run decides."""
    instance.diagnostics = [CONTRADICTED, second]
    assert instance.verdict()[0] is outcome
    assert instance.calls.count("dcgmi") == 2


def test_a_diagnostic_is_not_run_again_without_the_time_of_its_level(instance: Instance) -> None:
    """A run that is cut short would look like a GPU that hangs."""
    instance.diagnostics = [CONTRADICTED, FAULTY]
    assert instance.verdict(timeout_s=60)[0] is HealthOutcome.INCONCLUSIVE
    assert instance.calls.count("dcgmi") == 1


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
        "NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000062) returned",
        "NVRM: GPU0 _kgspRpcRecvPoll: GSP RM heartbeat timed out",
    ],
)
def test_a_sentence_without_an_xid_leads_to_a_reboot_unless_the_driver_needs_nothing(
    instance: Instance, line: str
) -> None:
    """A driver without a recovery action cannot deny it. A driver that asks for nothing leaves it to the diagnostic."""
    instance.logs(line)
    instance.actions = ["N/A"]
    assert instance.verdict()[0] is HealthOutcome.REBOOT
    instance.actions, instance.calls = ["None"], []
    assert instance.verdict()[0] is HealthOutcome.HEALTHY and "dcgmi" in instance.calls
    instance.diagnostics = [("", 124)]
    assert instance.verdict()[0] is HealthOutcome.REBOOT


def test_a_45_is_judged_by_the_cause_that_it_names(instance: Instance) -> None:
    """Lines of open-gpu-kernel-modules#1150, without the record of the cause: a suspicion for 145, a reboot for 79."""
    channel = "NVRM: Xid (PCI:{}): 45, pid=1818992, name=python3, Ch 00000001 caused by previous Xid {}"
    instance.actions = ["N/A"]
    instance.logs(channel.format(ADDRESSES[0], 145))
    assert instance.verdict()[0] is HealthOutcome.HEALTHY and instance.calls.count("dcgmi") == 1
    instance.logs(channel.format(ADDRESSES[0], 79))
    assert instance.verdict() == (HealthOutcome.REBOOT, {"XID_45"})
