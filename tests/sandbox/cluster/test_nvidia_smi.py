"""The stand-in for nvidia-smi shows what the driver of a real GPU shows, and the health check understands it."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from health_check import driver
from health_check.driver import DriverReport
from health_check.recovery_action import RecoveryAction
from sandbox.cluster import nvidia_smi
from tests.recorded_gpu.recorded import FOLDER as RECORDED

GPUS = [f"GPU-{index}" for index in range(3)]
RESET = ["--gpu-reset"]
PERSISTENCE = ["--query-gpu=pci.bus_id,persistence_mode", "--format=csv,noheader"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an instance with three GPUs, seen from the host."""
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    return faulty(tmp_path)


def faulty(folder: Path, kind: str = "") -> Path:
    (folder / "gpus.json").write_text(json.dumps({"gpus": GPUS, "faults": {"GPU-1": kind} if kind else {}}))
    return folder


def said(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[str, int]:
    """The output and the exit code of one call."""
    code = nvidia_smi.main([str(folder), *words])
    return capsys.readouterr().out, code


def read(capsys: pytest.CaptureFixture[str], folder: Path) -> DriverReport:
    output, code = said(capsys, folder, "-q", "-x")
    return driver.parse(output, "", code)


def paths(node: ElementTree.Element, above: str = "") -> set[str]:
    """The path of each element below this one."""
    found = {f"{above}/{child.tag}" for child in node}
    return found.union(*(paths(child, f"{above}/{child.tag}") for child in node))


@pytest.mark.parametrize(
    ("kind", "action", "errors"),
    [
        ("", RecoveryAction.NONE, 0),
        ("xid119", RecoveryAction.GPU_RESET, 0),
        ("ecc", RecoveryAction.NODE_REBOOT, 1),
    ],
)
def test_the_driver_asks_for_what_the_fault_needs(
    capsys: pytest.CaptureFixture[str], folder: Path, kind: str, action: RecoveryAction, errors: int
) -> None:
    """For the faulty GPU; the other GPUs need nothing."""
    report = read(capsys, faulty(folder, kind))
    assert [gpu.uuid for gpu in report.gpus] == GPUS and not report.lost
    assert [gpu.action for gpu in report.gpus] == [RecoveryAction.NONE, action, RecoveryAction.NONE]
    assert [gpu.uncorrected_errors for gpu in report.gpus] == [0, errors, 0]


def test_a_lost_gpu_is_named_and_shown_no_more(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """By its index and its address, before the document of the others."""
    report = read(capsys, faulty(folder, "xid79"))
    assert [(gpu.index, gpu.uuid) for gpu in report.gpus] == [(0, "GPU-0"), (2, "GPU-2")]
    assert [(gpu.index, gpu.pci_bus_id) for gpu in report.lost] == [(1, nvidia_smi.pci_address(1))]


def test_the_document_has_the_shape_of_a_recorded_one(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """It has no element that driver 580 of a real H200 does not have in the same place."""
    output, _ = said(capsys, folder, "-q", "-x")
    recorded = ElementTree.parse(RECORDED / "nvidia_smi.xml").getroot()
    shown = ElementTree.fromstring(output)
    assert paths(shown) <= paths(recorded) and shown.tag == recorded.tag
    assert [gpu.get("id") for gpu in shown.findall("gpu")] == [nvidia_smi.address(index) for index in range(3)]


def test_persistence_mode_keeps_the_driver_from_a_reset(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """It counts as a use of the GPU, so every GPU without it is named no more."""
    shown, _ = said(capsys, folder, *PERSISTENCE)
    where = [line.split(", ")[0] for line in shown.splitlines()]
    assert shown.splitlines() == [f"{each}, Enabled" for each in where]
    said(capsys, folder, "-i", where[0], "-pm", "0")
    said(capsys, folder, "-i", where[2], "-pm", "0")
    assert said(capsys, folder, *PERSISTENCE)[0].count("Disabled") == 2
    output, code = said(capsys, folder, *RESET)
    assert (code, output.count("In use by another client")) == (255, 1) and where[1] in output
    said(capsys, folder, "-i", where[0], "-pm", "1")
    assert said(capsys, folder, *PERSISTENCE)[0].count("Disabled") == 1


@pytest.mark.parametrize("words", [["-L", "-x"], ["--query-gpu=pci.bus_id,speed", "--format=csv,noheader"]])
def test_what_it_does_not_support_is_an_error(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str]
) -> None:
    """As of the real program, so that nobody relies on an empty answer."""
    output, code = said(capsys, folder, *words)
    assert code == 2 and output


def test_a_container_without_gpus_sees_none(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health check gets no answer then."""
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "void")
    report = read(capsys, folder)
    assert (report.gpus, report.lost) == ((), ()) and "No devices were found" in str(report.no_answer)
