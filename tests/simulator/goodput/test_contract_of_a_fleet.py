"""`gpu-recovery simulate contract --records`: the failure rate of a fleet, from the records that `what-if` replays."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from gpu_recovery.core.event_history.recorded_event import text_of
from gpu_recovery_client.cli import app
from gpu_recovery_client.texts import Language, use_language
from typer.testing import CliRunner

from simulator.goodput import contract
from simulator.replay.records import write_records
from tests.core.event_history.recorded import JOB, OPENED, at, job_moved, recovery

Run = Callable[..., Result]
DAYS, DAY_S, DOWN_S = 20, 86_400, 600
DOCUMENT = """\
workload: sft
nnodes: 2
n_gpus_per_node: 8
task_definition: gpu-training
max_down_minutes: 600
max_runtime_s: 864000
"""


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the incidents of the simulator by one short incident; the rates of the fleet that it was asked for."""
    rates = list[float]()

    def incidents(_setup: object, _days: float, _seed: int, own_rate: float) -> list[contract.Incident]:
        rates.append(own_rate)
        return [contract.Incident(60.0, 120.0, returned=False)]

    monkeypatch.setattr(contract, "incidents_of", incidents)
    return rates


@pytest.fixture
def run(tmp_path: Path, simulated: list[float]) -> Run:
    """Run the verb with a job of two instances with 8 GPUs."""
    document = tmp_path / "job.yaml"
    document.write_text(DOCUMENT)

    def invoke(*arguments: str) -> Result:
        asked = ["simulate", "contract", str(document), "--seeds", "0", *arguments]
        return CliRunner().invoke(app.app, asked)

    return invoke


def records(folder: Path, causes: tuple[str | None, ...]) -> Path:
    """Write the records of two instances with 8 GPUs that train for DAYS, with an incident of each cause. An incident
    without a cause is still open, or of an older release: it has no bill.
    """
    events = [job_moved(1, "", "SUBMITTING", 0, incident_id=None, opened_at=None)]
    events += [job_moved(2, "SUBMITTING", "RUNNING", 0, incident_id=None, opened_at=None)]
    for number, cause in enumerate(causes, 1):
        begin, version = number * DAY_S / 2, 10 * number
        about = {"incident_id": f"{JOB}--a{number:02d}", "opened_at": at(begin)}
        phases = {"notice": 10, "stop": 20, "check": 130, "start": 40, "first_step": DOWN_S - 200}
        bill = {"down_s": DOWN_S, "phases": phases, "repeated_s": 60, "cause": cause, "recovered": True, "kept": None}
        move = partial(job_moved, **about)
        events += [
            move(version, "RUNNING", "STOPPING", begin),
            move(version + 1, "STOPPING", "DIAGNOSING", begin + 20),
            move(version + 2, "DIAGNOSING", "SUBMITTING", begin + 150),
            move(version + 3, "SUBMITTING", "RUNNING", begin + 190),
        ]
        if cause is not None:
            events.append(recovery(version + 4, "Succeeded", begin + DOWN_S, bill=bill, **about))
    end = OPENED + timedelta(days=DAYS)
    write_records(folder, (text_of(*event, at(0)) for event in events), OPENED, end)
    return folder


def told(result: Result) -> dict[str, Any]:
    """The failure rate and the expected incidents of a report in JSON."""
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    return report["failure_rate"] | {"expected": report["expected_incidents"]}


def test_the_rate_is_that_of_the_recorded_incidents_by_cause(run: Run, tmp_path: Path, simulated: list[float]) -> None:
    """12 incidents in 40 instance-days of two instances, blended with the 3 of the published rate in 461.5."""
    folder = records(tmp_path / "records", ("hardware",) * 9 + ("application", "application", "interruption"))
    found = told(run("--records", str(folder), "--json"))
    rate = 1_000 * (12 + 3) / (40 + 3 / 6.5 * 1_000)
    assert found["source"] == "fleet" and found["own_incidents"] == found["own_recoveries"] == 12
    assert found["own_instance_days"] == pytest.approx(40, rel=0.01) and found["own_gpu_days"] == pytest.approx(
        320, rel=0.01
    )
    assert found["per_1000_instance_days"] == pytest.approx(rate, rel=0.01)
    assert 0 < found["low"] < rate < found["high"] < 1_000 * 12 / 40
    assert {cause: one["incidents"] for cause, one in found["by_cause"].items()} == {
        "hardware": 9,
        "application": 2,
        "interruption": 1,
    }
    assert found["by_cause"]["hardware"]["per_1000_instance_days"] == pytest.approx(9 / 40 * 1_000, rel=0.01)
    assert found["expected"]["mean"] == pytest.approx(rate / 1_000 * 2 * 10, rel=0.01)
    assert simulated == pytest.approx([rate], rel=0.01)
    text = run("--records", str(folder)).stdout
    assert "failure rate: 12 incident(s) in 40.0 instance-days (320 GPU-days) of this fleet in 20 days" in text
    assert "the records alone: 12 incident(s) in 40.0 instance-days with 8 GPUs, 300" in text
    assert "cause application: 2 incident(s), 50" in text and "12 recoveries of this fleet" in text


def test_a_simulated_fleet_fails_at_ten_times_the_published_rate_unless_its_own_is_higher(monkeypatch: Any) -> None:
    """So that few days have enough incidents."""
    asked = list[float]()

    def drawn(profile: Any, *_: object) -> Any:
        asked.append(profile.rate)
        raise contract.ContractInvalid("drawn")

    monkeypatch.setattr(contract, "failure_trace", drawn)
    for own in (6.5, 99.0):
        with pytest.raises(contract.ContractInvalid, match="drawn"):
            contract.incidents_of(contract.Setup(2, 8), 1.0, 0, own)
    assert asked == [contract.RATE, 99.0]


def test_few_incidents_are_told_to_be_too_few(run: Run, tmp_path: Path) -> None:
    """The rate stays near the published one. An incident without a bill has an unknown cause and no measured times."""
    folder = records(tmp_path / "records", ("hardware", None))
    found = told(run("--records", str(folder), "--json"))
    assert found["source"] == "blended" and found["own_incidents"] == 2 and found["own_recoveries"] == 1
    assert {cause: one["incidents"] for cause, one in found["by_cause"].items()} == {"hardware": 1, "unknown": 1}
    text = run("--records", str(folder)).stdout
    assert "2 incident(s) in 40.0 instance-days" in text and "too few for a rate of its own" in text


def test_a_fleet_without_an_incident_lowers_the_published_rate(run: Run, tmp_path: Path) -> None:
    """Days without a failure are a figure, too."""
    folder = records(tmp_path / "records", ())
    found = told(run("--records", str(folder), "--json"))
    assert (found["source"], found["own_incidents"], found["by_cause"]) == ("blended", 0, {})
    assert found["per_1000_instance_days"] == pytest.approx(3_000 / (40 + 3 / 6.5 * 1_000), rel=0.01)
    assert found["per_1000_instance_days"] < 6.2
    text = run("--records", str(folder)).stdout
    assert "0 incident(s) in 40.0 instance-days" in text and "too few for a rate of its own" in text


def test_without_records_the_published_rate_is_named(run: Run) -> None:
    """And that no records were given."""
    found = told(run("--json"))
    assert (found["source"], found["per_1000_instance_days"], found["own_gpu_days"]) == ("published", 6.5, 0)
    said = (
        "failure rate: the published rate of 6.5 per 1,000 instance-days (arXiv 2410.21680, RSC-1): no records of this"
    )
    text = run().stdout
    assert said in text and "the records alone" not in text and "published times" in text


def test_records_in_which_no_job_ran_leave_the_published_rate(run: Run, tmp_path: Path) -> None:
    """The sentence says that these records have no figures."""
    waits = job_moved(1, "", "PENDING_RESOURCES", 0, incident_id=None, opened_at=None)
    write_records(tmp_path / "records", [text_of(*waits, at(0))], OPENED, OPENED + timedelta(days=1))
    text = run("--records", str(tmp_path / "records")).stdout
    assert "RSC-1): no job held an instance in the records of this fleet" in text


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("records.json", "{", "records.json: it is no JSON: "),
        ("records.json", '{"format": "other"}', "records.json: it does not describe records of gpu-recovery"),
        ("events.jsonl", '{"type": "Job State Changed"}', "events.jsonl, line 1: "),
        ("events.jsonl", "\n", "events.jsonl: there is no event in it"),
        ("", "", "records.json cannot be read: "),
        (
            "records.json",
            '{"format": "gpu-recovery/records", "version": 1, "since": "2026-12-01", "until": "2026-11-01"}',
            "records.json: 'until' is before 'since'",
        ),
    ],
)
def test_records_that_cannot_be_read_are_refused_with_the_reason(
    run: Run, simulated: list[float], tmp_path: Path, file: str, text: str, message: str
) -> None:
    """In the user's language, and before anything is simulated."""
    folder = records(tmp_path / "records", ("hardware",))
    if file:
        (folder / file).write_text(text)
    else:
        (folder / "records.json").unlink()
    result = run("--records", str(folder))
    assert result.exit_code == 2 and simulated == [], result.output
    assert message in result.stderr.replace("\n", " ")
    try:
        chinese = CliRunner().invoke(
            app.app,
            ["--language", "zh", "simulate", "contract", str(tmp_path / "job.yaml"), "--records", str(folder)],
        )
    finally:
        use_language(Language.ENGLISH)
    assert chinese.exit_code == 2 and chinese.stderr.startswith("错误：")
