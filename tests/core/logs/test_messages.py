"""Messages that programs can print, by the program and the file that prints them: `messages.jsonl`.

The messages were enumerated from sources and documents, with invented values. Rows without a file are further wordings
of the same programs. Rules were developed on all of them, so their score says nothing about unseen lines:
`log_kinds.HISTORY` does. The rows of the kind "benign" are what the same programs print in healthy runs.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from gpu_recovery.core.logs.classify import classify
from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import DECISIVE

ROWS = [
    json.loads(text) for text in Path(__file__).with_name("messages.jsonl").read_text(encoding="utf-8").splitlines()
]
KINDS = sorted({row["kind"] for row in ROWS} - {LineKind.BENIGN})
BENIGN = [row["line"] for row in ROWS if row["kind"] == LineKind.BENIGN]


@pytest.mark.parametrize("kind", KINDS)
def test_each_message_of_a_program_has_its_kind(kind: str) -> None:
    """The structure decides: the program's prefix and its definite predicate."""
    wrong = {
        row["line"]: str(found)
        for row in ROWS
        if row["kind"] == kind and (found := classify([row["line"]]).kind) != kind
    }
    assert not wrong


def test_what_the_same_programs_print_in_healthy_runs_is_no_finding() -> None:
    """Alone and together; advice may be told."""
    told = {
        finding.line: str(finding.kind) for finding in classify(BENIGN).findings if finding.role is not LineRole.ADVICE
    }
    assert not told


def test_the_messages_are_of_many_programs_and_kinds() -> None:
    """No kind has fewer than twenty, and no line is there twice."""
    counts = Counter(row["kind"] for row in ROWS)
    assert len(ROWS) == len({row["line"] for row in ROWS}) >= 1000
    assert min(counts.values()) >= 20
    assert len({row["program"] for row in ROWS}) >= 150
    assert set(counts) <= set(LineKind)


@pytest.mark.parametrize(
    "line",
    [
        'MountVolume.SetUp failed for volume "conf" : configmap "train-conf" not found',
        "ninja: build stopped: subcommand failed.",
        "x.cpp:3:10: fatal error: libaio.h: No such file or directory",
        "  Input should be a valid integer [type=int_parsing, input_value='x', input_type=str]",
        "An error occurred (ExpiredToken) when calling the PutObject operation: The provided token has expired.",
        "/bin/sh: 1: nvidia-smi: not found",
    ],
)
def test_a_message_after_which_programs_often_go_on_ends_no_job(line: str) -> None:
    """Its kind may end a job, so it is a warning unless an exception follows."""
    found = classify([line]).verdict
    assert found is None or found.kind not in DECISIVE or found.role is LineRole.WARNING


@pytest.mark.parametrize("host", ["gpu-7", "h100-node-3", "nccl-test-1"])
def test_the_name_of_a_host_says_nothing_about_a_gpu(host: str) -> None:
    """Slurm begins its messages with the host."""
    assert classify([f"srun: error: {host}: tasks 0,3-5: Out Of Memory"]).kind is LineKind.HOST_OOM
    assert classify([f"srun: error: Node failure on {host}"]).kind is LineKind.NODE_KERNEL


@pytest.mark.parametrize("path", ["/lustre/x.sif", "/fsx/data/x.bin", "/efs/data", "/weka/u/x"])
def test_a_path_with_the_name_of_a_file_system_is_no_storage_failure(path: str) -> None:
    """A file that is missing there is missing because of its name."""
    assert classify([f"FileNotFoundError: failed to open {path}"]).kind is LineKind.USER_ERROR_CONFIG
