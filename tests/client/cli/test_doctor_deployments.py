"""The verb doctor with the name of a deployment: what it says if the API, or the stack itself, does not work."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_client.account.deployment import Deployment
from gpu_recovery_client.account.examination import Examination
from gpu_recovery_client.account.findings import Finding, Settings
from gpu_recovery_client.account.instances import Fleet
from gpu_recovery_client.cli import doctor
from typer.testing import Result

from tests.client.conftest import URL, FakeApi, problem

LOST = Finding("functions", "job_api", "the function has lost its layer", "each invocation fails", "make deploy")
Run = Callable[..., Result]


@pytest.fixture
def diagnosed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs the verb for a stack with these outputs, a function of which has lost its layer."""
    (tmp_path / "settings").mkdir()
    (tmp_path / "cdk.json").write_text("{}")
    (tmp_path / "settings/prod.toml").write_text('region = "us-east-1"\n')

    def examine(examination: Examination, *_: Any) -> None:
        examination.findings.append(LOST)

    def invoke(outputs: dict[str, str]) -> tuple[int, dict[str, Any]]:
        stack = Deployment(None, "GpuRecovery", "UPDATE_COMPLETE", outputs)  # type: ignore[arg-type]
        monkeypatch.setattr(doctor, "deployed", lambda account, name: stack)
        monkeypatch.setattr(doctor, "examine_account", lambda *_: None)
        monkeypatch.setattr(doctor, "examine_deployment", examine)
        result = run("doctor", "prod", "--json")
        return result.exit_code, json.loads(result.stdout)

    return invoke


def test_an_api_that_fails_does_not_hide_why_it_fails(diagnosed: Any, api: FakeApi) -> None:
    """The verb is called because the API does not answer, and the account shows the cause."""
    api.answer = lambda request: problem(500, "The request failed", "see the log")
    code, view = diagnosed({"ApiId": URL.split("//")[1].split(".")[0]})
    assert code == 1 and [one["sentence"] for one in view["findings"]] == [LOST.sentence]
    assert view["not_checked"] == ["deployment: The request failed (500): see the log"]


def test_a_stack_without_the_output_of_its_api_is_not_taken_for_another(diagnosed: Any, api: FakeApi) -> None:
    """The selected deployment may be any other, and --health-check would take an instance of it out of use."""
    _, view = diagnosed({"ApiUrl": "https://other"})
    assert api.requests == [] and view["not_checked"][0].startswith("tokens: no token of the API is saved")


@pytest.fixture
def selected(run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs the verb for the deployment that is selected; the account is not read."""
    stack = Deployment(None, "GpuRecovery", "UPDATE_COMPLETE", {})  # type: ignore[arg-type]
    stack.__dict__["settings"] = Settings({"node_agent": "daemon"}, known=False)
    for name in ("examine_account", "examine_deployment", "examine_instances"):
        monkeypatch.setattr(doctor, name, lambda *_: None)
    monkeypatch.setattr(doctor, "read_fleet", lambda *_: Fleet(()))

    def invoke(*options: str, deployed: bool = True) -> tuple[int, dict[str, Any]]:
        monkeypatch.setattr(doctor, "of_address", lambda *_: stack if deployed else None)
        result = run("doctor", "--region", "us-east-1", "--json", *options)
        return result.exit_code, json.loads(result.stdout)

    return invoke


def test_the_instances_are_listed_once(selected: Any, api: FakeApi) -> None:
    """A second list could miss other records than the first, whose missing records decide the exit code."""
    code, view = selected()
    assert (code, view["checked"]) == (0, ["tokens", "evidence"])
    assert [one.url.path.rsplit("/", 1)[-1] for one in api.requests].count("instances") == 1
    api.unreadable = ["i-0aaa00000000000a1"]
    assert selected()[0] == 1


def test_without_a_stack_the_tokens_are_not_checked(selected: Any) -> None:
    """It is not known whether agents need tokens. Exit code 0 says that every check was made."""
    code, view = selected(deployed=False)
    assert code == 1 and view["checked"] == [] and view["not_checked"][0].startswith("tokens: ")
    code, view = selected("--skip", "tokens", deployed=False)
    assert code == 0 and view["not_checked"] == []


def test_a_note_changes_no_exit_code(selected: Any, run: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """An account without node agents is told so, after the result. A finding is told first."""
    note = replace(LOST, check="evidence", sentence="no node agent reports", is_note=True)
    monkeypatch.setattr(doctor, "check_evidence", lambda *_: iter([note]))
    code, view = selected()
    assert (code, view["findings"]) == (0, []) and [one["sentence"] for one in view["notes"]] == [note.sentence]
    assert "is_note" not in view["notes"][0]
    text = run("doctor", "--region", "us-east-1").stdout
    assert text.index("nothing to change") < text.index("note: evidence: job_api: no node agent reports")
    assert "to change it: make deploy" in text
    monkeypatch.setattr(doctor, "check_evidence", lambda *_: iter([note, LOST]))
    code, view = selected()
    assert code == 1 and len(view["findings"]) == len(view["notes"]) == 1
