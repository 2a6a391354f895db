"""The settings of a check come from the environment, and a mistake in them is told by the variable's name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from health_check.remedies import FindingRemedy
from health_check.settings import FOCUS_MAX, PASSIVE, TIMEOUT_S_BY_LEVEL, CheckSettings, CheckSettingsError, gpu_name
from health_check.xid_table import XidPolicy

ENVIRONMENT = {
    "CHECK_ID": "check/i-0abc/3",
    "INSTANCE_ID": "i-0abc",
    "VERDICT_BUCKET": "verdicts-bucket",
    "VERDICT_KEY": "verdicts/check/i-0abc/3.json",
    "CHECK_LEVEL": "2",
}
NAMES = ("CHECK_LEVEL", "EXPECTED_GPUS", "CHECK_TIMEOUT_S", "SINCE", "FOCUS", "XID_POLICY")


def test_what_is_not_set_has_a_default() -> None:
    """Expected GPUs unknown, the deadline of the level, the container's own /proc."""
    settings = CheckSettings.from_environment(ENVIRONMENT)
    assert (settings.expected_gpus, settings.timeout_s, settings.host_proc, settings.region) == (
        None,
        TIMEOUT_S_BY_LEVEL[2],
        Path("/proc"),
        None,
    )
    assert (settings.host_kmsg, settings.focus, settings.since, settings.xid_policy) == (
        Path("/dev/kmsg"),
        (),
        None,
        XidPolicy.NVIDIA,
    )


def test_what_is_set_is_taken() -> None:
    """All optional variables; AWS_REGION before AWS_DEFAULT_REGION."""
    optional = {"EXPECTED_GPUS": "8", "CHECK_TIMEOUT_S": "30", "HOST_PROC": "/host", "AWS_REGION": "cn-north-1"}
    settings = CheckSettings.from_environment(ENVIRONMENT | optional | {"AWS_DEFAULT_REGION": "us-east-1"})
    assert (settings.expected_gpus, settings.timeout_s, settings.host_proc, settings.region) == (
        8,
        30,
        Path("/host"),
        "cn-north-1",
    )


def test_what_is_asked_about_is_taken() -> None:
    """Where the log is, since when, which GPUs, whose list; a check may also be passive."""
    asked = {"HOST_KMSG": "/log", "FOCUS": " 3, GPU-5e,3,", "SINCE": "2026-03-01T18:00:00+08:00", "XID_POLICY": "aws"}
    settings = CheckSettings.from_environment(ENVIRONMENT | asked | {"CHECK_LEVEL": "0"})
    assert (settings.level, settings.timeout_s) == (0, TIMEOUT_S_BY_LEVEL[0])
    assert (settings.host_kmsg, settings.focus, settings.since, settings.xid_policy) == (
        Path("/log"),
        ("3", "GPU-5e"),
        datetime(2026, 3, 1, 10, tzinfo=UTC),
        XidPolicy.AWS,
    )


def test_a_time_without_a_zone_is_utc() -> None:
    """As all our times are."""
    settings = CheckSettings.from_environment(ENVIRONMENT | {"SINCE": "2026-03-01T10:00:00"})
    assert settings.since == datetime(2026, 3, 1, 10, tzinfo=UTC)


def test_a_gpu_may_be_named_in_every_way_that_it_is_named_elsewhere() -> None:
    """By the kernel's log, NVML, nvidia-smi and the node agent; an address is one name, however it is written."""
    written = "0000:10:00, 0000:10:00.0, 00000000:10:00.0, PCI:0000:10:00, 0000:AB:00, GPU-5e, 12, MIG-1"
    settings = CheckSettings.from_environment(ENVIRONMENT | {"FOCUS": written})
    assert settings.focus == ("0000:10:00", "0000:ab:00", "GPU-5e", "12", "MIG-1")
    assert settings.unread == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FOCUS", "3,all"),
        ("FOCUS", "3,-1"),
        ("FOCUS", "3,GPU-"),
        ("FOCUS", "3,cuda:0"),
        ("FOCUS", ",".join(map(str, range(65)))),
        ("SINCE", "yesterday"),
        ("SINCE", "0001-01-01T00:00:00+23:00"),
        ("CHECK_TIMEOUT_S", "0"),
        ("CHECK_TIMEOUT_S", "1e3"),
        ("CHECK_TIMEOUT_S", "1_000"),
    ],
)
def test_a_hint_that_cannot_be_read_is_left_out_and_said(name: str, value: str) -> None:
    """The control plane sent it, so the host is not set up wrongly; the rest of what it sent stands."""
    settings = CheckSettings.from_environment(ENVIRONMENT | {"FOCUS": "3", name: value})
    ((told, remedy, message),) = [(one.name, one.remedy, one.message) for one in settings.unread]
    assert (told, remedy) == (name, FindingRemedy.IGNORE) and message.startswith(f"{name} ")
    assert settings.focus[:1] in (("3",), ("0",)) and len(settings.focus) <= FOCUS_MAX
    assert (settings.since, settings.timeout_s) == (None, TIMEOUT_S_BY_LEVEL[2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CHECK_LEVEL", ""),
        ("CHECK_LEVEL", "-1"),
        ("CHECK_LEVEL", "5"),
        ("CHECK_LEVEL", "two"),
        ("CHECK_LEVEL", "2.0"),
        ("EXPECTED_GPUS", "-1"),
        ("EXPECTED_GPUS", "all"),
        ("EXPECTED_GPUS", "٨"),
        ("EXPECTED_GPUS", "9" * 5_000),
    ],
)
def test_without_a_number_that_a_pass_depends_on_a_check_could_not_tell(name: str, value: str) -> None:
    """Whole numbers in ASCII digits, nothing that int() would also take. What accuses the hardware is still found."""
    settings = CheckSettings.from_environment(ENVIRONMENT | {name: value})
    assert [(one.name, one.remedy) for one in settings.unread] == [(name, FindingRemedy.CONTACT_SUPPORT)]
    assert settings.unread[0].message.startswith(f"{name} is ") and len(settings.unread[0].message) < 200
    assert (settings.level, settings.expected_gpus) == (PASSIVE if name == "CHECK_LEVEL" else 2, None)


@pytest.mark.parametrize("value", ["AWS", "none"])
def test_a_list_of_xids_that_nobody_knows_is_the_deployments_mistake(value: str) -> None:
    """It stands in the task definition, where a person can mend it."""
    settings = CheckSettings.from_environment(ENVIRONMENT | {"XID_POLICY": value})
    assert [(one.name, one.remedy) for one in settings.unread] == [("XID_POLICY", FindingRemedy.FIX_CONFIGURATION)]
    assert settings.xid_policy is XidPolicy.NVIDIA


@pytest.mark.parametrize("name", [name for name in ENVIRONMENT if name != "CHECK_LEVEL"])
def test_a_missing_variable_is_named(name: str) -> None:
    """Absent and empty are the same mistake."""
    for value in ({}, {name: ""}, {name: "  "}):
        environment = {key: text for key, text in ENVIRONMENT.items() if key != name} | value
        with pytest.raises(CheckSettingsError, match=name):
            CheckSettings.from_environment(environment)


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=40)))
def test_no_value_of_any_other_variable_ends_a_check(values: dict[str, str]) -> None:
    """Whatever stands in it, the check begins, and what it could not read is on its list."""
    settings = CheckSettings.from_environment(ENVIRONMENT | values)
    assert {one.name for one in settings.unread} <= set(NAMES)
    assert all(gpu_name(name) == name for name in settings.focus)
