"""The stand-in for dcgmi answers as the health check asks, and the health check understands its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from health_check.judge import findings_of
from health_check.parse import parse
from sandbox.cluster import dcgmi

GPUS = [f"GPU-{index}" for index in range(4)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an instance with four GPUs, the second of them at fault."""
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    return fault(tmp_path, "ecc")


def fault(folder: Path, kind: str | None) -> Path:
    (folder / "gpus.json").write_text(json.dumps({"gpus": GPUS, "faults": {"GPU-1": kind} if kind else {}}))
    return folder


def diagnosed(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[dict[str, Any], int]:
    """(document, exit code) of `dcgmi diag`."""
    code = dcgmi.main([str(folder), "diag", *words])
    return json.loads(capsys.readouterr().out), code


def examined(document: dict[str, Any]) -> set[int]:
    """The GPUs that any test ran on."""
    return {gpu for result in parse(json.dumps(document)).results for gpu in result.gpus or ()}


def test_only_the_gpus_that_are_named_are_examined(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """And only they are listed, as a group of their own."""
    document, code = diagnosed(capsys, folder, "-r", "3", "-j", "-i", "0,3")
    assert (examined(document), code, parse(json.dumps(document)).gpu_count) == ({0, 3}, 0, 2)
    document, code = diagnosed(capsys, folder, "-r", "3", "-j", "-i", "1")
    assert (examined(document), code) == ({1}, 205)
    document, code = diagnosed(capsys, folder, "-r", "2", "-j")
    assert (examined(document), code) == ({0, 1, 2, 3}, 205)


def test_a_gpu_that_is_not_there_is_no_gpu(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """As where a container was given none."""
    document, code = diagnosed(capsys, folder, "-r", "2", "-j", "-i", "7")
    assert (list(document["DCGM Diagnostic"]), code) == (["runtime_error"], 198)


@pytest.mark.parametrize("kind", ["xid79", "xid119", "ecc", None])
def test_the_health_check_blames_what_the_stand_in_reports(
    capsys: pytest.CaptureFixture[str], folder: Path, kind: str | None
) -> None:
    """A fault is blamed on its GPU, on nothing else, and a healthy instance on nobody."""
    document, code = diagnosed(capsys, fault(folder, kind), "-r", "2", "-j")
    findings = findings_of(parse(json.dumps(document)), code, level=2, expected_gpus=4)
    assert {one.gpu_index for one in findings if one.blames_hardware} == ({1} if kind else set())
    assert all(one.blames_hardware for one in findings)
