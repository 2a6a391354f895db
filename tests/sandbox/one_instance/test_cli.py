"""The command line as people have it, in processes of its own, against a deployment in the sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.api_clients import operator
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow
PROGRAM = Path(sys.executable).parent / "gpu-recovery"
OK, FAILED, USAGE = 0, 1, 2
DOCUMENT = """\
workload: sft   # plain YAML
nnodes: 1
n_gpus_per_node: 8
task_definition: gpu-training
env: {TOTAL_STEPS: "5", STEP_SECONDS: "0.05"}
checkpoint_dir: /tmp/checkpoints
"""


@dataclass
class Shell:
    """A folder with a document in it, and the variables by which the deployment is found."""

    folder: Path
    state: dict[str, Any]

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """What the program does with these words, in a terminal that is none."""
        environment = {
            **os.environ,
            "GPU_RECOVERY_API_URL": self.state["api_url"],
            "COLUMNS": "160",
            "GPU_RECOVERY_TOKEN": self.state["operator_token"],
            **variables,
        }
        return subprocess.run(
            [PROGRAM, *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def said(self, *words: str) -> str:
        """What it prints, once it has ended well."""
        done = self.run(*words)
        assert done.returncode == OK, done.stderr
        return done.stdout

    def until(self, job_id: str, status: str) -> None:
        """Wait for a status of a job, without a process for each look."""
        with operator(self.state) as client:
            wait_until(lambda: client.get(f"/jobs/{job_id}").json()["status"] == status)

    def shown(self, *words: str) -> Any:
        """What it prints for programs."""
        return json.loads(self.said(*words, "--json"))


@pytest.fixture
def shell(state: dict[str, Any], tmp_path: Path) -> Shell:
    """A folder with the document."""
    (tmp_path / "job.yaml").write_text(DOCUMENT)
    return Shell(tmp_path, state)


def test_a_document_is_submitted_and_waited_for(shell: Shell) -> None:
    """0 because it succeeded; its log, its state and its decisions are shown."""
    job = shell.shown("submit", "job.yaml", "--wait")
    assert job["status"] == "SUCCEEDED"
    assert shell.said("logs", job["job_id"], "--tail", "1").strip()
    assert "step 5 " in shell.said("logs", job["job_id"], "--follow")
    assert "SUCCEEDED" in shell.said("status", job["job_id"])
    assert "submitted by" in shell.said("explain", job["job_id"])
    assert job["job_id"] in shell.said("list", "--status", "SUCCEEDED")


def test_a_job_that_fails_is_waited_for_and_says_so(shell: Shell) -> None:
    """1: a script that waits for its training must not go on."""
    done = shell.run("submit", "job.yaml", "--attempts-max", "1", "--wait", "--", "python", "-c", "raise SystemExit(3)")
    assert done.returncode == FAILED and "FAILED" in done.stdout + done.stderr, done.stderr


def test_who_waits_is_in_the_queue_with_why_and_can_be_canceled(shell: Shell) -> None:
    """The second job waits for the first one's GPUs; both are canceled, and the line is empty."""
    long = ("--env", "TOTAL_STEPS=100000")
    first = shell.shown("submit", "job.yaml", *long)["job_id"]
    shell.until(first, "RUNNING")
    rehearsed = shell.shown("submit", "job.yaml", "--dry-run")
    assert rehearsed["would_start"] is False and rehearsed["blockers"] == [first]
    second = shell.shown("submit", "job.yaml", *long)["job_id"]
    shell.until(second, "PENDING_RESOURCES")
    assert shell.shown("status", second)["status"] == "PENDING_RESOURCES"
    (waiting,) = shell.shown("queue")["waiting"]
    assert (waiting["job_id"], waiting["position"]) == (second, 1)
    assert second in shell.said("queue") and first in shell.said("explain", second)
    for job_id in (second, first):
        assert shell.run("cancel", job_id).returncode == OK
        shell.until(job_id, "CANCELED")
    assert shell.shown("queue")["waiting"] == []


@pytest.mark.parametrize(
    ("words", "variables", "code", "said"),
    [
        (("status", "no-such-job"), {}, FAILED, "no-such-job"),
        pytest.param(("cancel", "no-such-job"), {}, FAILED, "no-such-job", marks=pytest.mark.full),
        (("submit", "job.yaml", "--nnodes", "9"), {}, FAILED, "nnodes"),
        (("list",), {"GPU_RECOVERY_TOKEN": "wrong"}, FAILED, "token"),
        (("list",), {"GPU_RECOVERY_API_URL": "http://127.0.0.1:9"}, FAILED, "127.0.0.1:9"),
        pytest.param(("list",), {"GPU_RECOVERY_TOKEN": ""}, USAGE, "GPU_RECOVERY_TOKEN", marks=pytest.mark.full),
        pytest.param(("submit", "no-such-file.yaml"), {}, USAGE, "no-such-file.yaml", marks=pytest.mark.full),
        (("submitt",), {}, USAGE, "submit"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_goes_wrong_has_its_exit_code_and_its_sentence(
    shell: Shell, words: tuple[str, ...], variables: dict[str, str], code: int, said: str
) -> None:
    """1 for what the deployment refuses, 2 for what cannot be asked; the sentence is on stderr, and no traceback."""
    done = shell.run(*words, **variables)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr
