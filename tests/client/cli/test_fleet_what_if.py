"""`gpu-recovery fleet what-if`: what a user sees, from the records of the API and from a saved folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from click.testing import Result
from gpu_recovery.core.policy import XidProfile, policy_from
from gpu_recovery_client.cli import app, what_if
from gpu_recovery_client.texts import Language, use_language
from typer.testing import CliRunner

from infra.settings_file import settings_of
from simulator.replay.command import policy_file
from tests.simulator.replay.recorded_runs import elastic_job, policy, run_of, saved

Run = Callable[..., Result]
PAGE = 50


def _api(request: httpx.Request) -> httpx.Response:
    """The events of a recorded run, page by page."""
    assert (request.method, request.url.path) == ("GET", "/api/v2/events/records")
    begin = int(request.url.params.get("cursor", "0"))
    texts = run_of(1).texts
    following = str(begin + PAGE) if begin + PAGE < len(texts) else None
    records = [json.loads(text) for text in texts[begin : begin + PAGE]]
    return httpx.Response(200, json={"records": records, "next_cursor": following})


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line against the API of the recorded run."""
    monkeypatch.setenv("GPU_RECOVERY_API_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", "grt_0")
    monkeypatch.setattr(what_if, "now", lambda: run_of(1).course.ends_at)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(app.app, list(arguments), obj=httpx.MockTransport(_api))

    return invoke


@pytest.mark.slow
def test_the_records_of_the_account_are_collected_saved_and_replayed(cli: Run, tmp_path: Path) -> None:
    """The same report follows from the saved folder, without the API."""
    folder = tmp_path / "records"
    asked = ("fleet", "what-if", "--set", "replace=false", "--json")
    first = cli(*asked, "--since", "2026-11-21", "--save", str(folder))
    assert first.exit_code == 0, first.output
    assert "events since 2026-11-21T00:00+00:00 were collected" in first.stderr
    report = json.loads(first.stdout)
    again = json.loads(cli(*asked, "--records", str(folder)).stdout)
    assert again == report
    counts = report["interruptions"]
    assert counts["recorded"] == len(run_of(1).course.interruptions)
    assert counts["reproduced"] == counts["replayed"] and report["not_reproduced"] == []
    assert report["policies"][0]["changed"] == {"replace": [True, False]}


@pytest.mark.slow
def test_the_text_names_the_control_the_figures_and_each_other_incident(cli: Run, tmp_path: Path) -> None:
    """In the language of the user; sentences of decisions stay as they are."""
    folder = saved(tmp_path / "records", run_of(1))
    asked = ("fleet", "what-if", "--records", str(folder), "--set", "replace=false")
    told = cli(*asked).stdout
    number = len(run_of(1).course.interruptions)
    assert f"Control: {number} of {number} replayed interruptions are decided as recorded" in told
    assert "replace true -> false" in told and "incidents would have gone otherwise\n" in told
    assert " -> REPLACING: " in told
    try:
        zh = cli("--language", "zh", *asked).stdout
    finally:
        use_language(Language.ENGLISH)
    assert f"对照：重放的 {number} 次中断中有 {number} 次与记录的决定一致" in zh


@pytest.mark.slow
def test_the_policy_of_a_deployment_is_read_from_the_settings_file_that_init_writes(
    cli: Run, settings_file: Path, tmp_path: Path
) -> None:
    """The file has no table `policy`. The policy is the one that the deployment would have."""
    assert cli("init", "prod", "--email", "a@example.com", "--yes").exit_code == 0
    settings_file.write_text(settings_file.read_text() + 'xid_policy = "aws"\nreplace = true\n')
    [settings, _] = settings_of({"gpu-recovery:settings": "prod"}, tmp_path, {})
    deployed = policy_from(settings.recovery_policy)
    assert deployed.xid_profile is XidProfile.AWS and policy_from(policy_file(settings_file)) == deployed
    folder = saved(tmp_path / "records", run_of(1))
    told = cli("fleet", "what-if", "--records", str(folder), "--policy", "settings/prod.toml", "--json")
    assert told.exit_code == 0, told.output
    changed = json.loads(told.stdout)["policies"][0]["changed"]
    recorded = policy()
    assert changed == {
        name: [value, getattr(deployed, name)]
        for name, value in asdict(recorded).items()
        if getattr(deployed, name) != value
    }


def test_an_elastic_job_is_listed_as_not_replayable_with_the_reason(cli: Run, tmp_path: Path) -> None:
    """No fault of the job is replayed, and no instance is invented for a width that the job did not have."""
    folder = tmp_path / "records"
    job_id, interruptions = elastic_job(folder)
    told = cli("fleet", "what-if", "--records", str(folder), "--set", "replace=true")
    assert told.exit_code == 0, told.output
    assert f"{job_id} cannot be replayed: the job is elastic, and the replay knows only jobs of" in told.stdout
    assert "Control: 0 of 0 replayed interruptions" in told.stdout
    report = json.loads(cli("fleet", "what-if", "--records", str(folder), "--set", "replace=true", "--json").stdout)
    assert report["interruptions"] == {"recorded": interruptions, "replayed": 0, "reproduced": 0}
    assert report["incidents"] == report["policies"] == [] and report["control"]["interruptions"] == 0


@pytest.mark.parametrize(
    ("holds", "target", "message"),
    [
        ("records.json", "records", "records.json: there are records in this folder already"),
        ("file", "records/file", "file cannot be written: File exists"),
        ("file", "records/file/deeper", "deeper cannot be written: Not a directory"),
    ],
)
def test_a_folder_that_cannot_take_the_records_is_refused_before_any_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, holds: str, target: str, message: str
) -> None:
    """The pages of a large account take minutes."""
    monkeypatch.setenv("GPU_RECOVERY_API_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", "grt_0")
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / holds).write_text("{}")
    requests: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json={"records": [], "next_cursor": None})

    asked = ["fleet", "what-if", "--set", "replace=true", "--save", str(tmp_path / target)]
    result = CliRunner().invoke(app.app, asked, obj=httpx.MockTransport(answer))
    assert result.exit_code == 2 and message in result.output.replace("\n", " "), result.output
    assert requests == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give --set or --policy"),
        (("--set", "nothing=1"), "there is no policy setting 'nothing'"),
        (("--set", "replace=2"), "policy replace must be of type bool, not '2'"),
        (("--set", "replace"), "a setting is written NAME=VALUE, not 'replace'"),
        (("--set", "replace=true", "--records", "absent"), "records.json cannot be read"),
        (("--set", "replace=true", "--records", "a", "--save", "b"), "give either --records or --save"),
        (("--policy", "absent.toml"), "absent.toml cannot be read"),
    ],
)
def test_a_wrong_request_says_why_and_calls_nothing(cli: Run, arguments: tuple[str, ...], message: str) -> None:
    """With the exit code of a usage error."""
    result = cli("fleet", "what-if", *arguments)
    assert result.exit_code == 2 and message in result.output.replace("\n", " "), result.output
