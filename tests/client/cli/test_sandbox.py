"""`gpu-recovery sandbox`: what is asked of the sandbox's code, and how its answers are shown."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.cli import app
from gpu_recovery_client.cli.sandbox import FaultKind
from typer.testing import CliRunner, Result

from sandbox import sandbox
from sandbox.cluster.power import FAULT_KINDS
from sandbox.processes import SandboxError

STATE = {
    "endpoint_url": "http://127.0.0.1:1",
    "ecs_endpoint_url": "http://127.0.0.1:2",
    "api_url": "http://127.0.0.1:1/api",
    "console_url": "http://127.0.0.1:1/api/console",
    "operator_token": "operators-secret",
    "node_token": "nodes-secret",
    "cluster": "nwcd-gpu-testing",
}


class Recorder:
    """Stands in for the sandbox's functions, keeps the real signatures, and answers with `answers`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {
            "up": STATE,
            "down": True,
            "fault": {"instance": "i-1", "kind": "ecc", "tasks": []},
            "status": {"running": True, "servers": {"ministack": True, "cluster": True}, "sandbox": STATE},
            "read_mailbox": [],
        }
        for name in self.answers:
            monkeypatch.setattr(sandbox, name, self._recorded(name, inspect.signature(getattr(sandbox, name))))

    def _recorded(self, name: str, signature: inspect.Signature) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            given = signature.bind(*arguments, **named).arguments
            if "progress" in given:
                given["progress"]("one step")
            self.calls.append((name, {key: value for key, value in given.items() if key != "progress"}))
            if isinstance(self.answers[name], Exception):
                raise self.answers[name]
            return self.answers[name]

        return call


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """The sandbox's functions, replaced."""
    return Recorder(monkeypatch)


def run(*arguments: str) -> Result:
    """One verb of the sandbox."""
    return CliRunner().invoke(app.app, ["sandbox", *arguments])


def test_up_prints_what_the_sandbox_says_as_json_and_its_progress_beside(recorder: Recorder) -> None:
    """stdout is one document for a program, stderr is for whoever waits."""
    result = run("up", "--json", "--instances", "3", "--gpus", "4", "--preset", "classic")
    assert (result.exit_code, json.loads(result.stdout), result.stderr) == (0, STATE, "one step\n")
    given = {"directory": sandbox.DEFAULT_DIRECTORY, "instances": 3, "gpus": 4, "preset": "classic"}
    assert recorder.calls == [("up", {**given, "agents": False, "ray": False})]


def test_up_runs_node_agents_when_it_is_asked_to(recorder: Recorder) -> None:
    """They report for ever, so nobody has them unasked."""
    assert run("up", "--agents").exit_code == 0
    assert recorder.calls[0][1]["agents"] is True


def test_up_runs_a_ray_head_when_it_is_asked_to(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says where its dashboard is."""
    monkeypatch.setitem(STATE, "ray_dashboard", "http://127.0.0.1:2")
    result = run("up", "--ray")
    assert recorder.calls[0][1]["ray"] is True
    assert "The Ray dashboard is http://127.0.0.1:2\n" in result.stdout


def test_up_in_words_keeps_the_tokens_to_itself(recorder: Recorder, tmp_path: Path) -> None:
    """Where it is and where its tokens lie, not what they are."""
    result = run("up", "--directory", str(tmp_path / "box"))
    assert result.exit_code == 0
    assert "http://127.0.0.1:1/api" in result.stdout
    assert str(tmp_path / "box" / "state.json") in result.stdout
    assert "secret" not in result.output
    assert recorder.calls[0][1]["directory"] == tmp_path / "box"


def test_down_status_and_fault_act_on_the_sandbox_found_from_here(recorder: Recorder, tmp_path: Path) -> None:
    """The nearest .sandbox with a state, else the repository's, unless a directory is given."""
    run("down")
    (tmp_path / ".sandbox").mkdir()
    (tmp_path / ".sandbox" / "state.json").write_text("{}")
    run("down")
    run("status")
    run("fault", "--instance", "i-1", "--kind", "ecc", "--cured-by", "replace", "--reboot", "silent")
    run("down", "--directory", "elsewhere")
    here = tmp_path / ".sandbox"
    fault = {"directory": here, "instance": "i-1", "kind": "ecc", "cured_by": "replace", "reboot": "silent"}
    assert recorder.calls == [
        ("down", {"directory": sandbox.DEFAULT_DIRECTORY}),
        ("down", {"directory": here}),
        ("status", {"directory": here}),
        ("fault", fault),
        ("down", {"directory": Path("elsewhere")}),
    ]


def test_down_says_whether_there_was_a_sandbox(recorder: Recorder) -> None:
    """Ending nothing is no error."""
    assert run("down").stdout == "The sandbox has ended.\n"
    recorder.answers["down"] = False
    result = run("down")
    assert (result.exit_code, result.stdout) == (0, "There was no sandbox.\n")


def test_fault_shows_the_clusters_answer(recorder: Recorder) -> None:
    """In words and as JSON."""
    arguments = ("fault", "--instance", "i-1", "--kind", "ecc")
    assert run(*arguments).stdout == "ecc on i-1\n"
    assert json.loads(run(*arguments, "--json").stdout) == recorder.answers["fault"]


def test_status_is_0_only_while_the_sandbox_runs(recorder: Recorder) -> None:
    """Scripts may ask; words show no token."""
    result = run("status")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()][:2] == [
        ["sandbox", "running"],
        ["api_url", "http://127.0.0.1:1/api"],
    ]
    assert "secret" not in result.output
    assert json.loads(run("status", "--json").stdout) == recorder.answers["status"]
    recorder.answers["status"] = {"running": False, "servers": {"cluster": False}, "sandbox": None}
    result = run("status")
    assert (result.exit_code, result.stdout) == (1, "not running\ncluster  has ended\n")
    recorder.answers["status"] = {"running": False, "servers": {}, "sandbox": None}
    assert run("status").stdout == "not running\n"


@pytest.mark.parametrize("error", [SandboxError("no luck"), ConnectionRefusedError("no luck")])
def test_what_the_sandbox_cannot_do_is_1(recorder: Recorder, error: Exception) -> None:
    """Its own errors and those of its sockets are one line."""
    recorder.answers["fault"] = error
    result = run("fault", "--instance", "i-1", "--kind", "kill")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "gpu-recovery: sandbox: no luck\n")


def test_the_kinds_of_fault_are_those_of_the_cluster() -> None:
    """The command line and the cluster know the same faults."""
    assert tuple(FaultKind) == FAULT_KINDS


@pytest.mark.slow
def test_the_sandbox_is_imported_only_when_it_is_needed() -> None:
    """A user's machine has neither MiniStack nor boto3."""
    code = "import sys, gpu_recovery_client.cli; print([m for m in sys.modules if m in ('sandbox', 'boto3')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_its_code_the_sandbox_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the repository has no sandbox."""
    monkeypatch.setitem(sys.modules, "sandbox.sandbox", None)
    result = run("status")
    assert result.exit_code == 1
    assert "make setup" in result.stderr


def test_mail_shows_what_the_operators_were_sent(recorder: Recorder) -> None:
    """As its reader sees it, oldest first; nothing in it steers the terminal."""
    mails = [
        {
            "subject": "[GPU-RECOVERY][SEV3] sft-1: attempt 1 failed",
            "body": "WHAT\x1b[2J\nwhy\n",
            "at": "2026-11-21T09:00:00Z",
        }
    ]
    recorder.answers["read_mailbox"] = mails
    shown = run("mail")
    assert shown.stdout == "2026-11-21 09:00:00Z  [GPU-RECOVERY][SEV3] sft-1: attempt 1 failed\n\nWHAT?[2J\nwhy\n"
    assert json.loads(run("mail", "--json").stdout) == mails
    recorder.answers["read_mailbox"] = []
    assert run("mail").stdout == "no e-mail\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--preset", "adaptiv"),
        ("fault", "--instance", "i-1", "--kind", "ecc", "--cured-by", "prayer"),
        ("fault", "--instance", "i-1", "--kind", "ecc", "--reboot", "slow"),
    ],
)
def test_a_wrong_choice_is_refused_before_anything_happens(recorder: Recorder, arguments: tuple[str, ...]) -> None:
    """A running sandbox must not end because of a mistyped preset."""
    result = run(*arguments)
    assert (result.exit_code, recorder.calls) == (2, [])
    assert "Traceback" not in result.output


def test_up_says_how_to_reach_a_sandbox_of_another_folder(recorder: Recorder, tmp_path: Path) -> None:
    """Only a folder named .sandbox is found from beside it; for any other the variables are printed."""
    told = run("up", "--directory", str(tmp_path / ".sandbox")).stdout
    assert f"In {tmp_path} and below, gpu-recovery finds it" in told
    told = run("up", "--directory", str(tmp_path / "other")).stdout
    assert "gpu-recovery finds it" not in told
    assert f"export GPU_RECOVERY_API_URL='{STATE['api_url']}'" in told
    assert "operators-secret" not in told


def test_a_person_is_asked_before_a_running_sandbox_ends(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script is not."""
    (tmp_path / "state.json").write_text("{}")
    assert run("up", "--directory", str(tmp_path)).exit_code == 0
    recorder.calls.clear()
    monkeypatch.setattr("gpu_recovery_client.cli.confirmation.is_interactive", lambda: True)
    result = CliRunner().invoke(app.app, ["sandbox", "up", "--directory", str(tmp_path)], input="n\n")
    assert (result.exit_code, recorder.calls) == (1, [])
    assert f"A sandbox runs in {tmp_path}. End it, with its jobs? [y/N]" in result.stderr


def test_the_status_names_the_server_and_the_cluster_differently(recorder: Recorder) -> None:
    """Two rows of one name say nothing."""
    names = [line.split("  ")[0] for line in run("status").stdout.splitlines()]
    assert len(set(names)) == len(names)
