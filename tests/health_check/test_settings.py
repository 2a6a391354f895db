"""The settings of a check come from the environment, and a mistake in them is told by the variable's name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from health_check.settings import TIMEOUT_S_BY_LEVEL, Settings, SettingsError
from health_check.xid_table import XidPolicy

ENVIRONMENT = {
    "CHECK_ID": "check/i-0abc/3",
    "INSTANCE_ID": "i-0abc",
    "VERDICT_BUCKET": "verdicts-bucket",
    "VERDICT_KEY": "verdicts/check/i-0abc/3.json",
    "CHECK_LEVEL": "2",
}


def test_what_is_not_set_has_a_default() -> None:
    """Expected GPUs unknown, the deadline of the level, the container's own /proc."""
    settings = Settings.from_environment(ENVIRONMENT)
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
    settings = Settings.from_environment(ENVIRONMENT | optional | {"AWS_DEFAULT_REGION": "us-east-1"})
    assert (settings.expected_gpus, settings.timeout_s, settings.host_proc, settings.region) == (
        8,
        30,
        Path("/host"),
        "cn-north-1",
    )


def test_what_is_asked_about_is_taken() -> None:
    """Where the log is, since when, which GPUs, whose list; a check may also be passive."""
    asked = {"HOST_KMSG": "/log", "FOCUS": " 3, GPU-5e,3,", "SINCE": "2026-03-01T18:00:00+08:00", "XID_POLICY": "aws"}
    settings = Settings.from_environment(ENVIRONMENT | asked | {"CHECK_LEVEL": "0"})
    assert (settings.level, settings.timeout_s) == (0, TIMEOUT_S_BY_LEVEL[0])
    assert (settings.host_kmsg, settings.focus, settings.since, settings.xid_policy) == (
        Path("/log"),
        ("3", "GPU-5e"),
        datetime(2026, 3, 1, 10, tzinfo=UTC),
        XidPolicy.AWS,
    )


def test_a_time_without_a_zone_is_utc() -> None:
    """As all our times are."""
    settings = Settings.from_environment(ENVIRONMENT | {"SINCE": "2026-03-01T10:00:00"})
    assert settings.since == datetime(2026, 3, 1, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SINCE", "yesterday"),
        ("SINCE", "0001-01-01T00:00:00+23:00"),
        ("FOCUS", "0,all"),
        ("FOCUS", "-1"),
        ("FOCUS", "GPU-"),
        ("FOCUS", ",".join(map(str, range(65)))),
        ("XID_POLICY", "AWS"),
        ("XID_POLICY", "none"),
    ],
)
def test_what_cannot_be_understood_is_named(name: str, value: str) -> None:
    """A check that was asked wrongly checks nothing."""
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment(ENVIRONMENT | {name: value})


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_a_missing_variable_is_named(name: str) -> None:
    """Absent and empty are the same mistake."""
    for value in ({}, {name: ""}, {name: "  "}):
        environment = {key: text for key, text in ENVIRONMENT.items() if key != name} | value
        with pytest.raises(SettingsError, match=name):
            Settings.from_environment(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CHECK_LEVEL", "-1"),
        ("CHECK_LEVEL", "5"),
        ("CHECK_LEVEL", "two"),
        ("CHECK_LEVEL", "2.0"),
        ("EXPECTED_GPUS", "-1"),
        ("EXPECTED_GPUS", "all"),
        ("EXPECTED_GPUS", "٨"),
        ("EXPECTED_GPUS", "9" * 5_000),
        ("CHECK_TIMEOUT_S", "0"),
        ("CHECK_TIMEOUT_S", "1e3"),
        ("CHECK_TIMEOUT_S", "1_000"),
    ],
)
def test_a_number_out_of_range_is_named(name: str, value: str) -> None:
    """Whole numbers in ASCII digits, nothing that int() would also take."""
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment(ENVIRONMENT | {name: value})
