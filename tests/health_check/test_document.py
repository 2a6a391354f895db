"""The verdict document has the committed shape, whatever was found."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from health_check.boot import Boot, read_boot
from health_check.document import utc
from health_check.driver import RecoveryAction
from health_check.examine import judge
from health_check.kernel_log import KernelLog
from health_check.remedies import EXITS, ErrorSeverity, FindingRemedy, HealthOutcome
from health_check.verdict import CHECK, DCGM, DRIVER, KERNEL_LOG
from health_check.xid_table import XID_TABLE_VERSION, XidClass, XidPolicy
from tests.health_check.diagnostics import OUTPUTS, output
from tests.health_check.examinations import (
    BOOT,
    BOOTED_AT,
    SCHEMA,
    answer,
    document_of,
    evidence_of,
    examination,
    gpu_xml,
    judged,
    log,
    xid,
)


def test_the_document_says_what_was_found_and_when() -> None:
    """All fields of a reboot, times in UTC."""
    text = output("dcgm4_memory_fail_synthetic.json")
    written = document_of(judged(text, 205), examination((text, 205)))
    message = "CUDA detected an unrecoverable double-bit error"
    assert written == {
        "schema_version": 3,
        "check_id": "check/i-0abc/3",
        "instance_id": "i-0abc",
        "boot_id": "8a3b1c9e-7a52-4b0e-9f5e-2f8f1c0d7e11",
        "booted_at": "2026-03-01T09:00:00Z",
        "started_at": "2026-03-01T10:00:00Z",
        "ended_at": "2026-03-01T10:01:30Z",
        "level": 2,
        "focus": [],
        "suspects": [],
        "xid_policy": "nvidia",
        "xid_table_version": XID_TABLE_VERSION,
        "diagnostics": [{"level": 2, "gpus": None, "exit_code": 205}],
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
        "kernel_log": {"unread": None, "since": None, "begins_at": None},
        "xids": [],
        "driver": {"silent": None, "recovery_action": "UNKNOWN", "gpus": []},
    }


def test_the_document_of_a_decision_without_a_diagnostic_names_its_evidence() -> None:
    """An XID on GPU 1, the driver's word on every GPU, and no diagnostic."""
    messages = log((61.5, xid(79, 1)), (62, xid(79, 1))).messages
    seen, said = KernelLog(messages, begins_at=messages[0].at), answer(gpu_xml(0), gpu_xml(1, "Reboot"))
    of = examination(seen=seen, said=said, evidence=evidence_of(seen, said, expected_gpus=2))
    written = document_of(judge(of, level=2, expected_gpus=2), of, focus=("1",), since=BOOTED_AT)
    jsonschema.Draft202012Validator(SCHEMA).validate(written)
    assert (written["outcome"], written["diagnostics"], written["focus"]) == ("REBOOT", [], ["1"])
    assert written["xids"] == [
        {
            "code": 79,
            "mnemonic": "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
            "class": "REBOOT",
            "gpu_index": 1,
            "pci_bus_id": "0000:11:00",
            "count": 2,
            "first_at": "2026-03-01T09:01:01Z",
            "last_at": "2026-03-01T09:01:02Z",
        }
    ]
    assert written["driver"]["recovery_action"] == "NODE_REBOOT"
    assert [gpu["recovery_action"] for gpu in written["driver"]["gpus"]] == ["NONE", "NODE_REBOOT"]
    assert {(one["source"], one["gpu_index"]) for one in written["findings"]} == {
        ("kernel_log", 1),
        ("driver", 1),
        ("check", None),
    }
    assert written["kernel_log"] == {
        "unread": None,
        "since": "2026-03-01T09:00:00Z",
        "begins_at": "2026-03-01T09:01:01Z",
    }
    assert written["driver_version"] == "580.82.09"


@pytest.mark.parametrize("name", sorted(path.name for path in OUTPUTS.iterdir()))
def test_every_document_has_the_committed_shape(name: str) -> None:
    """Each known output with each known exit code, with and without a boot."""
    for exit_code in {0, 139, 255, *EXITS}:
        verdict = judged(output(name), exit_code, expected_gpus=8)
        for boot in (BOOT, Boot(None, None)):
            of = examination((output(name), exit_code), boot=boot)
            jsonschema.Draft202012Validator(SCHEMA).validate(document_of(verdict, of))


def test_the_schema_refuses_an_exit_code_that_contradicts_the_outcome() -> None:
    """The schema itself can fail."""
    text = output("dcgm4_memory_fail_synthetic.json")
    written = document_of(judged(text, 205), examination((text, 205)))
    changes: list[dict[str, Any]] = [
        {"exit_code": 0},
        {"outcome": "FINE"},
        {"findings": []},
        {"booted_at": "today"},
        {"more": 1},
        {"level": 5},
        {"schema_version": 2},
        {"xid_table_version": "2026"},
        {"xids": [{"code": 79}]},
        {"driver": None},
    ]
    for change in changes:
        assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(written | change)


def test_the_schema_knows_the_words_of_the_program() -> None:
    """Remedies, severities and outcomes are listed twice; the lists are the same."""
    finding = SCHEMA["$defs"]["finding"]["properties"]
    assert set(finding["remedy"]["enum"]) == set(FindingRemedy)
    assert set(finding["severity"]["enum"]) == {*ErrorSeverity, None}
    assert set(SCHEMA["properties"]["outcome"]["enum"]) == set(HealthOutcome)
    assert finding["source"]["enum"] == [DCGM, KERNEL_LOG, DRIVER, CHECK]
    assert set(SCHEMA["$defs"]["recovery_action"]["enum"]) == set(RecoveryAction)
    assert SCHEMA["$defs"]["xid"]["properties"]["class"]["enum"] == list(XidClass)
    assert set(SCHEMA["properties"]["xid_policy"]["enum"]) == set(XidPolicy)
    assert set(SCHEMA["properties"]["exit_code"]["enum"]) == {outcome.exit_code for outcome in HealthOutcome}


def test_the_version_of_the_table_of_xids_is_that_of_its_rows() -> None:
    """Whoever changes a row changes what verdicts are reached by, and the document says so."""
    rows = (Path(__file__).parents[2] / "health_check/xid_table.csv").read_bytes()
    assert XID_TABLE_VERSION.rsplit("-", 1)[1] == hashlib.sha256(rows).hexdigest()[:8]


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
    assert read_boot(folder) == Boot("0c5d", BOOTED_AT)


@pytest.mark.parametrize(
    ("boot_id", "stat"),
    [(None, None), ("", ""), ("\n", "btime \n"), (None, "btime soon\n"), (None, "btime -5\n"), (None, "btime 1 2\n")],
)
def test_a_boot_that_proc_does_not_tell_is_null(tmp_path: Path, boot_id: str | None, stat: str | None) -> None:
    """A container may see only part of /proc."""
    assert read_boot(host_proc(tmp_path, boot_id=boot_id, stat=stat)) == Boot(None, None)


def test_times_are_told_in_utc() -> None:
    """Whatever zone they come in."""
    assert utc(datetime(2026, 3, 1, 18, 0, 1, 900_000, tzinfo=timezone(timedelta(hours=8)))) == "2026-03-01T10:00:01Z"
    assert utc(datetime(2026, 3, 1, tzinfo=UTC)) == "2026-03-01T00:00:00Z"
