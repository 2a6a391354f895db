"""The verdict document has the committed shape, whatever was found."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import health_check
from health_check.document import Boot, document, read_boot
from health_check.judge import Verdict, judge
from health_check.parse import parse
from health_check.remedies import EXITS, Outcome, Remedy, Severity
from health_check.report import Report
from health_check.settings import Settings
from tests.health_check.diagnostics import OUTPUTS, output

SCHEMA = json.loads(Path(health_check.__file__).with_name("verdict.schema.json").read_text(encoding="utf-8"))
SETTINGS = Settings(
    check_id="check/i-0abc/3",
    instance_id="i-0abc",
    verdict_bucket="verdicts-bucket",
    verdict_key="verdicts/check/i-0abc/3.json",
    level=2,
    expected_gpus=8,
    timeout_s=60,
    host_proc=Path("/proc"),
    region=None,
)
BOOT = Boot("8a3b1c9e-7a52-4b0e-9f5e-2f8f1c0d7e11", "2026-03-01T09:00:00Z")
STARTED_AT = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


def document_of(verdict: Verdict, report: Report, boot: Boot = BOOT) -> dict[str, Any]:
    """The document as its reader gets it: through JSON text."""
    ended_at = STARTED_AT.astimezone(timezone(timedelta(hours=8))) + timedelta(seconds=90)
    written = document(verdict, report, SETTINGS, boot, started_at=STARTED_AT, ended_at=ended_at)
    return dict(json.loads(json.dumps(written)))


def test_the_document_says_what_was_found_and_when() -> None:
    """All fields of a reboot, times in UTC."""
    report = parse(output("dcgm4_memory_fail_synthetic.json"))
    written = document_of(judge(report, 205, level=2, expected_gpus=None), report)
    message = "CUDA detected an unrecoverable double-bit error"
    assert written == {
        "schema_version": 1,
        "check_id": "check/i-0abc/3",
        "instance_id": "i-0abc",
        "boot_id": "8a3b1c9e-7a52-4b0e-9f5e-2f8f1c0d7e11",
        "booted_at": "2026-03-01T09:00:00Z",
        "started_at": "2026-03-01T10:00:00Z",
        "ended_at": "2026-03-01T10:01:30Z",
        "level": 2,
        "outcome": "REBOOT",
        "exit_code": 1,
        "dcgm_version": "4.6.0",
        "driver_version": None,
        "summary": f"reboot the instance: memory on GPU 3: DCGM_FR_CUDA_DBE: {message}",
        "findings": [
            {
                "source": "dcgm",
                "test": "memory",
                "gpu_index": 3,
                "code": "DCGM_FR_CUDA_DBE",
                "id": 57,
                "severity": "ISOLATE",
                "remedy": "REBOOT_INSTANCE",
                "message": message,
            }
        ],
    }


@pytest.mark.parametrize("name", sorted(path.name for path in OUTPUTS.iterdir()))
def test_every_document_has_the_committed_shape(name: str) -> None:
    """Each known output with each known exit code, with and without a boot."""
    report = parse(output(name))
    for exit_code in {0, 139, 255, *EXITS}:
        verdict = judge(report, exit_code, level=2, expected_gpus=8)
        for boot in (BOOT, Boot(None, None)):
            jsonschema.Draft202012Validator(SCHEMA).validate(document_of(verdict, report, boot))


def test_the_schema_refuses_an_exit_code_that_contradicts_the_outcome() -> None:
    """The schema itself can fail."""
    report = parse(output("dcgm4_memory_fail_synthetic.json"))
    written = document_of(judge(report, 205, level=2, expected_gpus=None), report)
    changes: list[dict[str, Any]] = [
        {"exit_code": 0}, {"outcome": "FINE"}, {"findings": []}, {"booted_at": "today"}, {"more": 1},
    ]  # fmt: skip
    for change in changes:
        assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(written | change)


def test_the_schema_knows_the_words_of_the_program() -> None:
    """Remedies, severities and outcomes are listed twice; the lists are the same."""
    finding = SCHEMA["$defs"]["finding"]["properties"]
    assert set(finding["remedy"]["enum"]) == set(Remedy)
    assert set(finding["severity"]["enum"]) == {*Severity, None}
    assert set(SCHEMA["properties"]["outcome"]["enum"]) == set(Outcome)
    assert set(SCHEMA["properties"]["exit_code"]["enum"]) == {outcome.exit_code for outcome in Outcome}


def host_proc(folder: Path, *, boot_id: str | None, stat: str | None) -> Path:
    """A folder like /proc with the two files that matter."""
    if boot_id is not None:
        (folder / "sys/kernel/random").mkdir(parents=True)
        (folder / "sys/kernel/random/boot_id").write_text(boot_id)
    if stat is not None:
        (folder / "stat").write_text(stat)
    return folder


def test_the_boot_is_read_from_the_hosts_proc(tmp_path: Path) -> None:
    """boot_id ends with a line feed; btime stands among other counters."""
    folder = host_proc(tmp_path, boot_id="0c5d\n", stat="cpu  1 2 3\nbtime 1772355600\nprocesses 7\n")
    assert read_boot(folder) == Boot("0c5d", "2026-03-01T09:00:00Z")


@pytest.mark.parametrize(
    ("boot_id", "stat"),
    [(None, None), ("", ""), ("\n", "btime \n"), (None, "btime soon\n"), (None, "btime -5\n"), (None, "btime 1 2\n")],
)
def test_a_boot_that_proc_does_not_tell_is_null(tmp_path: Path, boot_id: str | None, stat: str | None) -> None:
    """A container may see only part of /proc."""
    assert read_boot(host_proc(tmp_path, boot_id=boot_id, stat=stat)) == Boot(None, None)
