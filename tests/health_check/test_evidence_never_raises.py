"""No kernel log and no answer of the driver makes the check fail, and garbage accuses nobody."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import jsonschema
from hypothesis import example, given
from hypothesis import strategies as st

from health_check import driver, kernel_log
from health_check.driver import DriverReport
from health_check.evidence import CheckEvidence, plan
from health_check.examine import judge
from health_check.kernel_log import KernelLog
from health_check.remedies import HealthOutcome
from health_check.settings import TIMEOUT_S_BY_LEVEL
from health_check.verdict import SUMMARY_MAX
from health_check.xid_table import XidPolicy
from tests.health_check.diagnostics import dcgm4, result
from tests.health_check.examinations import (
    ADDRESSES,
    BOOTED_AT,
    SCHEMA,
    document_of,
    evidence_of,
    examination,
    gpu_xml,
    smi,
    xid,
)

VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
PASS = dcgm4([result(gpu) for gpu in range(8)], gpus=8)
WORDS = st.sampled_from(
    [
        "NVRM: ",
        "Xid ",
        "(PCI:0000:10:00)",
        "(PCI:...)",
        "(",
        ")",
        ": ",
        ", ",
        "79",
        "154",
        "74",
        "149",
        "13",
        "45",
        "GPU has fallen off the bus",
        "The NVIDIA GPU 0000:10:00.0",
        " to ",
        " from ",
        "0x2",
        "(Node Reboot Required)",
        "(None)",
        "SXid (PCI:0000:00:00.0): 20034, Fatal, ",
        "detected NVSwitch fatal error 9 ",
        "NVLink: fatal error",
        "detected on link 10(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
        "Fatal XC0 i0 Link 02 (0x004505c6 0x00000000",
        "4,1,99999999999999999999,-;",
        "6,2,5,-;",
        "[  1.5] ",
        "\\x0a",
        "\n",
        " ",
        "GPC 1, TPC 2",
        "\x00",
        "é",
        "fallen off the bus and is not responding to commands.",
        "NVRM: loading NVIDIA UNIX Kernel Module  580.1",
    ]
)
LOGS = st.lists(WORDS | st.text(max_size=8), max_size=40).map("".join) | st.text(max_size=400)
LINES = st.builds(
    lambda at_us, code, gpu, rest: f"4,1,{at_us},-;{xid(code, gpu, rest)}",
    st.integers(0, 10**13),
    st.integers(0, 200),
    st.integers(0, 7),
    st.sampled_from(
        [
            "",
            ", x",
            ", GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
            ", GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
        ]
    ),
)
TAGS = ["<gpu>", "</gpu>", "<uuid>", "</uuid>", "<gpu_recovery_action>", "</gpu_recovery_action>", "Reboot", "Yes"]
ANSWERS = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from([*TAGS, "<nvidia_smi_log>", "</nvidia_smi_log>", "&", "<!ENTITY a 'b'>"]), max_size=30
    ).map("".join),
    st.lists(st.sampled_from([gpu_xml(0), gpu_xml(1, "Reboot"), gpu_xml(2, "???"), *TAGS]), max_size=9).map(smi),
    st.just("Unable to determine the device handle for GPU1: 0000:11:00.0: Unknown Error"),
)
POLICIES = st.sampled_from(XidPolicy)
SINCE = st.none() | st.timedeltas(timedelta(0), timedelta(days=9)).map(lambda later: BOOTED_AT + later)
EXPECTED = st.none() | st.integers(0, 16)
FOCUS_NAMES = ["0", "7", "999", "GPU-1", "GPU-x", "0000:11:00", "0000:99:00"]
FOCUS = st.lists(st.sampled_from(FOCUS_NAMES), max_size=4).map(tuple)


def check_all_that_must_hold(seen: KernelLog, said: DriverReport, level: int, evidence: CheckEvidence) -> None:
    """A verdict, bounded and of the committed shape; a plan that fits; an accusation that names its evidence."""
    steps = plan(level, 5_000, evidence)
    assert sum(step.timeout_s or TIMEOUT_S_BY_LEVEL[step.level] for step in steps) <= max(5_000, TIMEOUT_S_BY_LEVEL[4])
    assert bool(steps) is (level > 0 and not evidence.decides)
    ran = [(PASS, 0)] if steps else []
    of = examination(*ran, level=level, seen=seen, said=said, evidence=evidence)
    verdict = judge(of, level=level, expected_gpus=None)
    VALIDATOR.validate(document_of(verdict, of))
    assert 0 < len(verdict.summary) <= SUMMARY_MAX
    assert evidence.decides is (verdict.outcome in (HealthOutcome.REBOOT, HealthOutcome.REPLACE))
    if evidence.decides:
        worst = verdict.findings[0]
        assert worst.source in ("kernel_log", "driver")
        assert worst.source == "driver" or any(re.search(r"NV|SXid", one.text) for one in seen.messages)


@given(
    text=LOGS,
    said=ANSWERS,
    code=st.integers(0, 255),
    level=st.integers(0, 4),
    policy=POLICIES,
    since=SINCE,
    expected=EXPECTED,
    focus=FOCUS,
)
@example(
    text="NVRM: Xid (PCI:0000:10:00): 79",
    said=smi([gpu_xml(0)]),
    code=0,
    level=0,
    policy=XidPolicy.AWS,
    since=None,
    expected=8,
    focus=(),
)
def test_any_log_and_any_answer_get_a_verdict(
    text: str,
    said: str,
    code: int,
    level: int,
    policy: XidPolicy,
    since: object,
    expected: int | None,
    focus: tuple[str, ...],
) -> None:
    """Words of the kernel's log and of nvidia-smi in any order, and text that is neither."""
    seen = KernelLog(kernel_log.parse(text, BOOTED_AT))
    answer = driver.parse(said, "", code)
    facts = {"level": level, "policy": policy, "since": since, "expected_gpus": expected, "focus": focus}
    check_all_that_must_hold(seen, answer, level, evidence_of(seen, answer, **facts))


@given(
    lines=st.lists(LINES, max_size=30), policy=POLICIES, since=SINCE, action=st.sampled_from(["None", "Reset", None])
)
def test_any_history_of_errors_gets_a_verdict(
    lines: list[str], policy: XidPolicy, since: object, action: str | None
) -> None:
    """Every code at any time on any GPU, with the driver's action changing in between."""
    seen = KernelLog(kernel_log.parse("\n".join(lines), BOOTED_AT))
    said = driver.parse(smi([gpu_xml(index, action) for index in range(8)]), "", 0)
    evidence = evidence_of(seen, said, policy=policy, since=since)
    check_all_that_must_hold(seen, said, 2, evidence)
    assert sum(one.count for one in evidence.xids) <= len(lines)
    assert {one.pci_bus_id for one in evidence.xids} <= set(ADDRESSES)


@given(raw=st.binary(max_size=300), said=st.text(max_size=300), code=st.integers(0, 255))
def test_garbage_accuses_nobody(raw: bytes, said: str, code: int) -> None:
    """Neither as a log nor as an answer, whatever the exit code."""
    text = raw.decode("utf-8", errors="replace")
    seen = KernelLog(kernel_log.parse(text, BOOTED_AT))
    answer = driver.parse(said, text, code)
    evidence = evidence_of(seen, answer)
    assert (evidence.decides, evidence.xids, answer.gpus) == (False, (), ())


@given(cut=st.integers(0, 4_000))
def test_an_answer_that_was_cut_accuses_nobody(cut: int) -> None:
    """Half an answer would show half of the GPUs, and the others as lost."""
    whole = smi([gpu_xml(0, "Reboot"), *map(gpu_xml, range(1, 8))])
    answer = driver.parse(whole[: min(cut, whole.index("</nvidia_smi_log>") + 16)], "", 0)
    assert answer.gpus == ()
    assert not evidence_of(KernelLog(), answer).decides


@given(raw=st.binary(max_size=2_000))
def test_any_file_can_be_read_as_a_log(tmp_path_factory: object, raw: bytes) -> None:
    """Bytes of any kind."""
    path = Path(tmp_path_factory.mktemp("log")) / "kmsg"  # type: ignore[attr-defined]
    path.write_bytes(raw)
    log = kernel_log.read(path, BOOTED_AT)
    assert log.unread is None
    assert all(len(message.text) <= kernel_log.TEXT_MAX for message in log.messages)
