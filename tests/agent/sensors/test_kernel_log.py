"""XIDs since the boot and from then on: counted, told once, never waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_recovery.core.xid import REPEATS
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.parsers.recovery_action import number_changed_to
from gpu_recovery_agent.sensors.kernel_log import BURST_GAP_S, DAY_S, KernelLogSensor


class Log:
    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.sensor = KernelLogSensor(path, AgentLog())

    def add(self, text: str, at_s: float = 10.0) -> None:
        with self.path.open("a") as file:
            file.write(f"4,1,{round(at_s * 1e6)},-;{text}\n")

    def xid(self, code: int, at_s: float = 10.0, bus: str = "10", rest: str = ", pid=7") -> None:
        self.add(f"NVRM: Xid (PCI:0000:{bus}:00): {code}{rest}", at_s)

    def look(self) -> list[tuple[int, str, int]]:
        return [(one.xid, one.gpu, one.count) for one in self.sensor.poll()]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "kmsg")


def test_what_happened_before_the_agent_is_seen_and_then_only_what_is_new(log: Log) -> None:
    """NVML's events begin when somebody listens; the kernel's log begins with the boot."""
    log.add("systemd[1]: hello")
    log.xid(48, 5.0)
    log.xid(63, 6.0)
    assert log.look() == [(48, "0000:10:00", 1), (63, "0000:10:00", 1)]
    assert log.look() == []
    log.xid(79, 7.0, bus="3b")
    assert log.look() == [(79, "0000:3b:00", 1)]


def test_the_same_on_one_gpu_is_counted_for_a_day(log: Log) -> None:
    """Another GPU's is another's, and yesterday's is past."""
    log.xid(13, 0.0)
    log.xid(13, DAY_S)
    log.xid(13, DAY_S, bus="3b")
    assert log.look() == [(13, "0000:10:00", 1), (13, "0000:10:00", 2), (13, "0000:3b:00", 1)]
    log.xid(13, DAY_S + 1.0)
    assert log.look() == [(13, "0000:10:00", 2)]


def test_a_45_brings_the_cause_that_it_names_if_the_log_has_no_record_of_it(log: Log) -> None:
    """The health check judges such a 45 by its cause, whose record a storm of 45s may have overwritten."""
    named = ", pid=1818992, name=python3, Ch 0000000{} caused by previous Xid {}"
    log.xid(45, 5.0, rest=named.format(1, 149))
    log.xid(45, 5.1, rest=named.format(2, 149))
    assert log.look() == [(149, "0000:10:00", 1), (45, "0000:10:00", 1), (45, "0000:10:00", 2)]
    log.xid(79, 6.0, bus="3b")
    log.xid(45, 6.1, bus="3b", rest=named.format(1, 79))
    assert log.look() == [(79, "0000:3b:00", 1), (45, "0000:3b:00", 1)]
    log.xid(45, 7.0, bus="3b", rest=named.format(1, 79))
    log.xid(45, 7.1, bus="4c", rest=named.format(1, 79))  # the record is another GPU's
    log.xid(45, 7.2, bus="4c", rest=named.format(1, 45))
    assert log.look() == [(45, "0000:3b:00", 2), (79, "0000:4c:00", 1), (45, "0000:4c:00", 1), (45, "0000:4c:00", 2)]


def test_an_error_of_a_mig_instance_is_of_its_gpu(log: Log) -> None:
    """The driver adds the GPU instance and the compute instance to the address."""
    log.add("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 95, pid=9, name=python3, Uncontained")
    assert log.look() == [(95, "0000:3b:00", 1)]


def test_a_number_that_no_error_has_is_none(log: Log) -> None:
    """The API knows errors from 1 on, and one that it cannot read would spoil the report."""
    log.xid(0)
    assert log.look() == []


def test_a_record_that_is_half_written_waits_for_its_other_half(log: Log) -> None:
    """A file may be caught in the middle of a line."""
    with log.path.open("a") as file:
        file.write("4,1,5000000,-;NVRM: Xid (PCI:0000:10:00")
    assert log.look() == []
    with log.path.open("a") as file:
        file.write("): 79, pid=7\n")
    assert log.look() == [(79, "0000:10:00", 1)]


def test_lines_without_a_time_are_counted_once_too(log: Log) -> None:
    """A log that was copied without them: each look has only what was added."""
    for _ in range(2):
        with log.path.open("a") as file:
            file.write("NVRM: Xid (PCI:0000:10:00): 31, pid=7\n")
    assert log.look() == [(31, "0000:10:00", 1), (31, "0000:10:00", 2)]
    log.add("something else")
    assert log.look() == []


def test_a_loss_that_is_told_in_two_messages_is_one_whenever_we_look(log: Log) -> None:
    """The first names the GPU, the second says what happened; a look may come between them, and come again."""
    log.add("NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:2330)", 5.0)
    assert log.look() == []
    log.add("NVRM: fallen off the bus and is not responding to commands.", 5.1)
    assert log.look() == [(79, "0000:3b:00", 1)]
    log.add("something else", 6.0)
    assert log.look() == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", 2),
        ("GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)", 0),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x5 (GPU Reset Bus)", 6),
        ("GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)", 5),
        ("changed from (None) to (Drain and Reset)", 4),
        ("changed from 0x2 (Node Reboot Required)", None),
        ("changed from 0x0 (None) to 0x63 (Something New)", 0x63),
        ("", None),
    ],
)
def test_an_action_is_read_after_to_and_nowhere_else(log: Log, text: str, number: int | None) -> None:
    """What stands before it is what it was."""
    assert number_changed_to(text) == number
    log.xid(154, rest=f", {text}")
    assert [one.action for one in log.sensor.poll()] == [number]


def test_only_an_xid_154_names_an_action(log: Log) -> None:
    """Others may have the word in their text."""
    log.xid(95, rest=", from 0x0 to 0x2 (Node Reboot)")
    assert [one.action for one in log.sensor.poll()] == [None]


def test_a_log_that_cannot_be_read_is_a_fact(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Said once, told in the inventory, and tried again."""
    path = tmp_path / "kmsg"
    sensor = KernelLogSensor(path, AgentLog())
    assert sensor.poll() == sensor.poll() == []
    assert sensor.unread is not None and "No such file" in sensor.unread
    assert capfd.readouterr().err.count("XIDs are not reported") == 1
    log = Log(path)
    log.xid(79)
    assert [one.xid for one in sensor.poll()] == [79] and sensor.unread is None
    assert KernelLogSensor(None, AgentLog()).unread == "it is switched off"


def test_a_log_that_was_opened_again_tells_nothing_twice(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error it begins at its beginning."""
    log.xid(79, 5.0)
    log.xid(48, 5.0)
    assert len(log.look()) == 2
    log.sensor.close()
    log.xid(94, 4.0)
    assert log.look() == [(94, "0000:10:00", 1)]


def test_nothing_is_waited_for(tmp_path: Path) -> None:
    """A device that has nothing more says so: here a pipe that somebody still writes to."""
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    try:
        sensor = KernelLogSensor(tmp_path / "kmsg", AgentLog())
        assert sensor.poll() == []
        os.write(writer, b"4,1,1000000,-;NVRM: Xid (PCI:0000:10:00): 79, pid=7\n")
        assert [one.xid for one in sensor.poll()] == [79]
        sensor.close()
    finally:
        os.close(writer)


def test_a_flood_is_bounded(log: Log) -> None:
    """A log in which somebody writes what he likes costs no memory without end."""
    for number in range(3_000):
        log.xid(number % 1_000 + 1, 5.0 + number, bus=f"{number % 256:02x}")
    assert len(log.look()) == 3_000
    assert len(log.sensor._times) <= 2_048


# -- occurrences, and switches -----------------------------------------------------------------------------------------


def test_a_flood_of_one_cause_is_one_occurrence(log: Log) -> None:
    """One crash writes a line for each of its channels; the next crash, minutes later, is another."""
    for number in range(400):
        log.xid(31, 10.0 + number / 100)
    assert [(one.count, one.bursts) for one in log.sensor.poll()][-1] == (400, 1)
    log.xid(31, 13.99 + BURST_GAP_S)
    log.xid(31, 14.5 + 2 * BURST_GAP_S)
    assert [(one.count, one.bursts) for one in log.sensor.poll()] == [(401, 1), (402, 2)]


def test_an_occurrence_is_forgotten_when_its_last_error_is_a_day_old(log: Log) -> None:
    """And not when its first is: a flood that lasts for hours is still going on."""
    log.xid(13, 0.0)
    log.xid(13, BURST_GAP_S)
    log.xid(13, DAY_S + BURST_GAP_S)
    log.xid(13, DAY_S + BURST_GAP_S + 1.0)
    assert [one.bursts for one in log.sensor.poll()] == [1, 1, 2, 1]


def test_occurrences_are_counted_by_number_and_gpu(log: Log) -> None:
    """Two GPUs that fail at once have failed once each."""
    log.xid(31, 10.0)
    log.xid(31, 10.1, bus="3b")
    log.xid(13, 10.2)
    assert [one.bursts for one in log.sensor.poll()] == [1, 1, 1]


def test_the_gap_between_occurrences_is_that_of_the_servers_rules() -> None:
    """Two places that cannot import each other, one rule."""
    assert {rules.burst_gap_s for rules in REPEATS.values()} == {BURST_GAP_S}
    assert {rules.within_s for rules in REPEATS.values()} == {DAY_S}


def test_an_error_of_a_switch_is_seen_with_whether_it_is_fatal(log: Log) -> None:
    """It has a number space of its own: SXid 31 is no XID 31."""
    log.add("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 24007, Fatal, Link 28 sourceid mismatch", 11.0)
    log.add("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 31, Non-fatal, Link 28 something", 12.0)
    log.xid(31, 13.0)
    log.add("nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 24007, Fatal, Link 29 sourceid mismatch", 14.0)
    seen = [(one.xid, one.fatal, one.count, one.bursts) for one in log.sensor.poll()]
    assert seen == [(24007, True, 1, 1), (31, False, 1, 1), (31, None, 1, 1), (24007, True, 2, 1)]
    assert log.sensor.poll() == []
