"""The engine of the host runs the diagnostic if the deployment allows it and the engine fits; else the check's own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from health_check import examine as examining
from health_check.document import document
from health_check.examine import examine, judge
from health_check.host_engines import HostEngineChoice, usable_engine
from health_check.remedies import HealthOutcome
from health_check.settings import HOST_ENGINE_SOCKET, CheckSettings
from tests.health_check.diagnostics import dcgm4, result
from tests.health_check.examinations import SETTINGS, answer, gpu_xml
from tests.health_check.stub_programs import HOST_ENGINE, install
from tests.health_check.test_document import host_proc

HEALTHY = dcgm4([result(gpu) for gpu in range(8)], gpus=8)


def release(text: str) -> str:
    """The part of `dcgmi -v` about one program, as printed by DCGM 3 and 4."""
    return f"Version : {text}\nBuild ID : 26\nBuild Date : 2026-07-06\nBuild Type : Release\nCPU Arch : x86_64\n"


def versions(ours: str, theirs: str) -> str:
    return release(ours) + ("\nHostengine build info:\n" + release(theirs) if theirs else "")


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    """A socket that accepts connections."""
    address = tmp_path / "run" / "nv-hostengine"
    address.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        yield address


@pytest.mark.parametrize(
    ("ours", "theirs", "why_not"),
    [
        ("4.6.0", "4.6.0", ""),
        ("4.6.0", "4.7.1", ""),
        ("4.6.0", "4.10.0", ""),
        ("4.6.0", "4.5.9", "DCGM 4.5.9 at SOCKET is older than 4.6.0"),
        ("4.6.0", "3.3.7", "is older than 4.6.0"),
        ("4.6.0", "5.0.0", "is newer than 4.6.0"),
        ("4.6.0", "", "does not say the release of SOCKET"),
        ("?", "4.6.0", "does not say the release of itself"),
    ],
)
def test_an_engine_of_another_release_is_not_used(listening: Path, ours: str, theirs: str, why_not: str) -> None:
    """The error table of the check is that of its own release."""
    asked: list[list[str]] = []

    def output_of(command: list[str], timeout_s: float) -> str:
        asked.append(command)
        return versions(ours, theirs)

    choice = usable_engine(listening, output_of)
    assert asked == [["dcgmi", "-v", "--host", f"unix://{listening}"]]
    assert choice.address == (None if why_not else listening)
    assert why_not.replace("SOCKET", str(listening)) in choice.note and bool(choice.note) is bool(why_not)


def test_without_a_socket_nothing_is_asked_and_nothing_said(tmp_path: Path) -> None:
    """Most AMIs have no engine."""

    def output_of(command: list[str], timeout_s: float) -> str:
        raise AssertionError(command)

    assert usable_engine(tmp_path / "none", output_of) == HostEngineChoice()
    (tmp_path / "file").touch()
    assert "does not accept a connection" in usable_engine(tmp_path / "file", output_of).note
    assert "does not accept a connection" in usable_engine(tmp_path, output_of).note


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Path) -> CheckSettings:
    """A check that may use the engine of the host, on an instance with eight GPUs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(examining.driver, "ask", lambda timeout_s: answer(*(gpu_xml(gpu) for gpu in range(8))))
    proc = host_proc(tmp_path / "proc", boot_id="0c5d\n", stat="btime 1772355600\n")
    (tmp_path / "kmsg").write_text("4,1,100000000,-;quiet\n")
    install(tmp_path, "nv-hostengine", HOST_ENGINE)
    return replace(SETTINGS, host_proc=proc, host_kmsg=tmp_path / "kmsg", timeout_s=60, host_engine=listening)


def dcgmi(folder: Path, theirs: str) -> None:
    """A dcgmi that knows its release, and prints a healthy diagnostic."""
    body = (
        "import os, sys\n"
        'open(os.path.join(HERE, "arguments"), "a").write(" ".join(sys.argv[1:]) + "\\n")\n'
        f"sys.stdout.write({versions('4.6.0', theirs)!r} if sys.argv[1] == '-v' else {HEALTHY!r})\n"
    )
    install(folder, "dcgmi", body)


@pytest.mark.slow
@pytest.mark.parametrize(("theirs", "used"), [("4.6.0", True), ("4.2.3", False)])
def test_the_diagnostic_runs_in_the_engine_that_fits(
    settings: CheckSettings, tmp_path: Path, listening: Path, theirs: str, used: bool
) -> None:
    """With the host's, no second engine is started; the verdict's document says which one it was."""
    dcgmi(tmp_path, theirs)
    examination = examine(settings)
    verdict = judge(examination, level=settings.level, expected_gpus=8)
    assert verdict.outcome is HealthOutcome.HEALTHY
    diagnostic = (tmp_path / "arguments").read_text().splitlines()[-1]
    assert diagnostic.startswith("diag") and (f"--host unix://{listening}" in diagnostic) is used
    assert (tmp_path / "engine.pid").exists() is not used
    now = examination.boot.at
    assert now is not None
    found = json.dumps(document(verdict, examination, settings, started_at=now, ended_at=now))
    assert ("HOST_ENGINE_USED" if used else "HOST_ENGINE_NOT_USED") in found
    assert used or ("DCGM 4.2.3" in found and "older than 4.6.0" in found)


def from_environment(**more: str) -> CheckSettings:
    names = ("CHECK_ID", "INSTANCE_ID", "VERDICT_BUCKET", "VERDICT_KEY")
    return CheckSettings.from_environment({**dict.fromkeys(names, "x"), "CHECK_LEVEL": "2", **more})


def test_the_host_engine_is_used_only_where_the_deployment_says_so() -> None:
    """Off by default; a wrong value is a note and never a verdict."""
    assert from_environment().host_engine is None is from_environment(HOST_ENGINE="own").host_engine
    assert from_environment(HOST_ENGINE="host").host_engine == HOST_ENGINE_SOCKET
    wrong = from_environment(HOST_ENGINE="yes")
    assert wrong.host_engine is None and [one.name for one in wrong.unread] == ["HOST_ENGINE"]
