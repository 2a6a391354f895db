"""The settings of a check come from the environment, and a mistake in them is told by the variable's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from health_check.settings import TIMEOUT_S_BY_LEVEL, Settings, SettingsError

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
        None, TIMEOUT_S_BY_LEVEL[2], Path("/proc"), None,
    )  # fmt: skip


def test_what_is_set_is_taken() -> None:
    """All optional variables; AWS_REGION before AWS_DEFAULT_REGION."""
    optional = {"EXPECTED_GPUS": "8", "CHECK_TIMEOUT_S": "30", "HOST_PROC": "/host", "AWS_REGION": "cn-north-1"}
    settings = Settings.from_environment(ENVIRONMENT | optional | {"AWS_DEFAULT_REGION": "us-east-1"})
    assert (settings.expected_gpus, settings.timeout_s, settings.host_proc, settings.region) == (
        8, 30, Path("/host"), "cn-north-1",
    )  # fmt: skip


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
        ("CHECK_LEVEL", "0"), ("CHECK_LEVEL", "5"), ("CHECK_LEVEL", "two"), ("CHECK_LEVEL", "2.0"),
        ("EXPECTED_GPUS", "-1"), ("EXPECTED_GPUS", "all"), ("EXPECTED_GPUS", "٨"), ("EXPECTED_GPUS", "9" * 5_000),
        ("CHECK_TIMEOUT_S", "0"), ("CHECK_TIMEOUT_S", "1e3"), ("CHECK_TIMEOUT_S", "1_000"),
    ],
)  # fmt: skip
def test_a_number_out_of_range_is_named(name: str, value: str) -> None:
    """Whole numbers in ASCII digits, nothing that int() would also take."""
    with pytest.raises(SettingsError, match=name):
        Settings.from_environment(ENVIRONMENT | {name: value})
