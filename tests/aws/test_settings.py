"""A function that is told too little, or something impossible, says which variable is wrong before it does anything."""

from __future__ import annotations

import pytest
from gpu_recovery.aws.settings import Settings, SettingsMissing
from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.policy import PRESETS, Preset

from tests.aws.environment import FUNCTION, REQUIRED


def test_the_deployed_environment_is_read_whole() -> None:
    """Every field, in its type."""
    told = Settings.from_environment(FUNCTION)
    assert (told.job_table, told.instance_table) == ("ecs-job-sub", "ecs_container_instance")
    assert (told.check_level, told.check_reserves_gpus, told.adoption) == (2, True, Adoption.OFF)
    assert told.policy == PRESETS[Preset.ADAPTIVE]
    assert told.operator_token_secret == "operator-token"


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named(name: str, value: str | None) -> None:
    """Absent or empty."""
    environment = {k: v for k, v in FUNCTION.items() if k != name} | ({} if value is None else {name: value})
    with pytest.raises(SettingsMissing, match=name):
        Settings.from_environment(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ADOPT", "perhaps"), ("CHECK_LEVEL", "5"), ("CHECK_LEVEL", "two"), ("CHECK_RESERVES_GPUS", "yes"),
        ("RECOVERY_POLICY", "not json"), ("RECOVERY_POLICY", "[]"),
    ],
)  # fmt: skip
def test_an_impossible_value_is_named(name: str, value: str) -> None:
    """With its variable."""
    with pytest.raises(SettingsMissing, match=name):
        Settings.from_environment(FUNCTION | {name: value})


def test_what_may_be_left_out_has_a_safe_default() -> None:
    """Adoption off, level 2, GPUs reserved, the adaptive preset."""
    told = Settings.from_environment(REQUIRED)
    assert (told.adoption, told.check_level, told.check_reserves_gpus) == (Adoption.OFF, 2, True)
    assert told.policy == PRESETS[Preset.ADAPTIVE]
    assert told.job_id_prefix == told.operator_token_secret == ""


def test_a_policy_setting_changes_its_threshold_only() -> None:
    """On top of the preset it names."""
    told = Settings.from_environment(FUNCTION | {"RECOVERY_POLICY": '{"preset": "classic", "attempts_max": 4}'})
    assert told.policy.attempts_max == 4 and told.policy.only_exit_one_is_checked


@pytest.mark.parametrize("text", ['{"preset": "bold"}', '{"attempts": 3}', '{"attempts_max": "3"}', '{"look_s": 0}'])
def test_a_policy_that_cannot_be_is_refused(text: str) -> None:
    """An unknown preset or threshold, another type, a time of nothing."""
    with pytest.raises(PolicyInvalid):
        Settings.from_environment(FUNCTION | {"RECOVERY_POLICY": text})
