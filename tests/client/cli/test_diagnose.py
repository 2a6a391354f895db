"""`gpu-recovery diagnose --log`: what is wrong, by a log, in words and as JSON, without a deployment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpu_recovery_client.cli import app
from typer.testing import CliRunner, Result

ECC = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
LOG = f"""step 1
n:1:2 [0] NCCL WARN Net : Connection closed by remote peer n2<40112>
{ECC}
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of a rank whose GPU has failed."""
    path = tmp_path / "rank-3.log"
    path.write_text(LOG, encoding="utf-8")
    return path


def diagnose(*words: str, stdin: bytes | None = None) -> Result:
    """The verb, with no address of any deployment."""
    return CliRunner().invoke(app.app, ["diagnose", *words], input=stdin)


def test_json_has_each_finding_and_the_verdict(log: Path) -> None:
    """Number and text of each line with its kind and role; the first root is the cause, though a cascade came first."""
    result = diagnose("--log", str(log), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert [(one["number"], one["kind"], one["role"]) for one in told["findings"]] == [
        (2, "network_peer_exit", "cascade"),
        (3, "hardware_gpu_ecc", "root"),
        (4, "benign", "advice"),
    ]
    assert [one["line"] for one in told["findings"]] == LOG.splitlines()[1:]
    assert told["verdict"] == "hardware_gpu_ecc"
    assert told["cause"] == told["findings"][1] | {
        "class": "hardware or node",
        "policy": "drain, reboot and check the instance; run again elsewhere",
    }


def test_words_name_the_line_the_kind_and_what_is_done(log: Path) -> None:
    """For a person."""
    result = diagnose("--log", str(log))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["LINE", "ROLE", "KIND", "TEXT"]
    assert ECC in lines[2]
    assert lines[-2:] == [
        "verdict: hardware_gpu_ecc (hardware or node), line 3 (root)",
        "next: drain, reboot and check the instance; run again elsewhere",
    ]


def test_standard_input_is_a_log_too(log: Path) -> None:
    """`gpu-recovery logs` is read without a file between."""
    from_file = diagnose("--log", str(log), "--json").stdout
    assert diagnose("--log", "-", "--json", stdin=LOG.encode()).stdout == from_file


def test_a_log_of_a_good_run_has_no_cause(tmp_path: Path) -> None:
    """Nothing is made up."""
    path = tmp_path / "good.log"
    path.write_text("step 1\nstep 2\n")
    assert json.loads(diagnose("--log", str(path), "--json").stdout) == {
        "findings": [],
        "verdict": "benign",
        "cause": None,
    }
    assert diagnose("--log", str(path)).stdout == "no line of this log is a known error\n"


def test_of_a_kernel_log_the_last_fault_is_the_verdict(tmp_path: Path) -> None:
    """A harmless note and an XID of days before are told, and are not the cause."""
    path = tmp_path / "dmesg.log"
    path.write_text(
        "[Mon Aug  4 10:00:00 2025] NVRM: RmFetchGspRmImages: Failed to load gsp_log_ga10x.bin, no GSP-RM logs will be "
        "printed (non-fatal)\n"
        "[Tue Aug  5 10:00:00 2025] NVRM: Xid (PCI:0000:00:06): 31, pid=1, name=python, Ch 00000008, MMU Fault\n"
        "[Sat Aug  9 10:00:00 2025] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    )
    found = json.loads(diagnose("--log", str(path), "--json").stdout)
    assert (found["verdict"], found["cause"]["number"]) == ("hardware_gpu_lost", 3)
    assert [finding["number"] for finding in found["findings"]] == [2, 3]


def test_of_a_log_with_warnings_only_nothing_follows(tmp_path: Path) -> None:
    """The warning is told with its kind, and no machine is drained for it."""
    path = tmp_path / "warned.log"
    path.write_text("EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0)\n")
    found = json.loads(diagnose("--log", str(path), "--json").stdout)
    assert (found["verdict"], found["cause"]["role"]) == ("node_kernel", "warning")
    assert found["cause"]["policy"] == "nothing: the program went on after this line"
    assert "next: nothing: the program went on after this line" in diagnose("--log", str(path)).stdout


def test_bytes_that_are_no_text_are_read_and_steer_no_terminal(tmp_path: Path) -> None:
    """A crash may leave anything in a log."""
    path = tmp_path / "torn.log"
    path.write_bytes(b"\xff\x00\x1b[2J" + ECC.encode() + b"\x1b]0;x\x07\n" + b"\x00" * 100)
    result = diagnose("--log", str(path))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "verdict: hardware_gpu_ecc" in result.stdout
    assert not set(result.stdout) & {"\x1b", "\x00", "\x07"}
    assert json.loads(diagnose("--log", str(path), "--json").stdout)["verdict"] == "hardware_gpu_ecc"


def test_a_line_without_end_is_held_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes without a line break fit into no memory."""
    monkeypatch.setattr("gpu_recovery_client.cli.diagnose.PIECE_MAX", 256)
    path = tmp_path / "endless.log"
    path.write_text("x" * 1_024 + ECC)
    assert json.loads(diagnose("--log", str(path), "--json").stdout)["findings"][0]["number"] == 5


def test_a_file_that_cannot_be_read_is_a_failure_and_no_log_is_wrong_usage(tmp_path: Path) -> None:
    """Exit codes as everywhere: 1 failed, 2 usage."""
    missing = diagnose("--log", str(tmp_path / "none.log"))
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert "none.log cannot be read: No such file or directory" in missing.stderr
    assert diagnose("--log", str(tmp_path)).exit_code == 1
    assert diagnose().exit_code == 2


REPORTS = """\
{"type": "worker", "name": "w0", "instance_id": "i-0a", "rank": 0}
{"type": "worker", "name": "w1", "instance_id": "i-0b", "rank": 1}

{"type": "stage", "id": "s1", "at_s": 10, "instance": "i-0b", "worker": "w1", "rank": 1, "stage": "rollout", \
"gpu": "3", "probe": "passed", "synchronised": true, "matches": false}
"""


def test_reports_are_judged_without_a_deployment(tmp_path: Path) -> None:
    """The page in two languages, the same verdict as JSON."""
    path = tmp_path / "reports.jsonl"
    path.write_text(REPORTS, encoding="utf-8")
    told = json.loads(diagnose("--file", str(path), "--json").stdout)
    assert (told["cause"], told["decided"]) == ("GPU_FAULT", True)
    assert told["evidence"] == ["s1"]
    english, chinese = diagnose("--file", str(path)), diagnose("--file", str(path), "--language", "zh")
    assert "What: GPU_FAULT" in english.stdout and "(s1)" in english.stdout
    assert "原因: GPU_FAULT" in chinese.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: not JSON"),
        ("[" * 100_000, "line 1: not JSON"),
        ("7", "reports[0]"),
        ('{"type": "later", "id": "x", "at_s": 1}', "reports[0]"),
        ('{"type": "worker", "name": "w"}', "workers[0]: must have a name and an instance_id"),
        ('{"type": "worker", "name": "w", "instance_id": "i", "colour": "red"}', "workers[0].colour"),
    ],
)
def test_reports_that_cannot_be_read_are_named(tmp_path: Path, text: str, said: str) -> None:
    """Exit code 1, the file and the line, and nothing on standard output."""
    path = tmp_path / "reports.jsonl"
    path.write_text(text, encoding="utf-8")
    result = diagnose("--file", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr


@pytest.mark.parametrize("words", [(), ("sft-1", "--log", "x"), ("--file", "x", "--log", "y")])
def test_exactly_one_thing_is_diagnosed(words: tuple[str, ...]) -> None:
    """A usage error otherwise."""
    assert diagnose(*words).exit_code == 2
