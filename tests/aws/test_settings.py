"""A function that is told too little, or something impossible, says which variable is wrong before it does anything."""

from __future__ import annotations

import pytest
from gpu_recovery.aws.settings import LambdaSettings, LambdaSettingsInvalid
from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.job.adoption import Adoption
from gpu_recovery.core.policy import PRESETS, Preset

from tests.aws.environment import FUNCTION, REQUIRED


def test_the_deployed_environment_is_read_whole() -> None:
    """Every field, in its type."""
    told = LambdaSettings.from_environment(FUNCTION)
    assert (told.job_table, told.instance_table) == ("ecs-job-sub", "ecs_container_instance")
    assert (told.check_level, told.check_reserves_gpus, told.adoption) == (2, True, Adoption.OFF)
    assert told.policy == PRESETS[Preset.ADAPTIVE]
    assert told.operator_token_secret == "operator-token"


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named(name: str, value: str | None) -> None:
    """Absent or empty."""
    environment = {k: v for k, v in FUNCTION.items() if k != name} | ({} if value is None else {name: value})
    with pytest.raises(LambdaSettingsInvalid, match=name):
        LambdaSettings.from_environment(environment)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ADOPT", "perhaps"),
        ("USER_PRIORITY_MAX", "URGENT"),
        ("CHECK_LEVEL", "5"),
        ("CHECK_LEVEL", "two"),
        ("CHECK_RESERVES_GPUS", "yes"),
        ("RECOVERY_POLICY", "not json"),
        ("RECOVERY_POLICY", "[]"),
    ],
)
def test_an_impossible_value_is_named(name: str, value: str) -> None:
    """With its variable."""
    with pytest.raises(LambdaSettingsInvalid, match=name):
        LambdaSettings.from_environment(FUNCTION | {name: value})


STALE_S = "GPUTASKER_TASK_HEARTBEAT_STALE_SECONDS"


@pytest.mark.parametrize(
    ("text", "suspect_s", "unreachable_s", "stale_s"),
    [("", 45, 120, 180), ("300", 45, 120, 300), ("120", 45, 120, 120), ("60", 45, 60, 60), ("10", 10, 10, 10)],
)
def test_seed_000s_own_variable_says_when_an_instance_is_lost(
    text: str, suspect_s: int, unreachable_s: int, stale_s: int
) -> None:
    """It goes before the policy; suspicion and doubt come no later than loss."""
    told = LambdaSettings.from_environment(FUNCTION | {STALE_S: text}).policy
    assert (told.suspect_s, told.unreachable_s, told.heartbeat_stale_s) == (suspect_s, unreachable_s, stale_s)
    policy = {"RECOVERY_POLICY": '{"heartbeat_stale_s": 600, "unreachable_s": 400}'}
    told = LambdaSettings.from_environment(FUNCTION | policy | {STALE_S: "500"}).policy
    assert (told.unreachable_s, told.heartbeat_stale_s) == (400, 500)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "3 minutes", "\u0663", "9" * 12, " 180"])
def test_a_time_of_seed_000_that_is_none_is_named(text: str) -> None:
    """A function that guessed would call machines lost that are not."""
    with pytest.raises(LambdaSettingsInvalid, match=STALE_S):
        LambdaSettings.from_environment(FUNCTION | {STALE_S: text})


@pytest.mark.parametrize(("text", "roles"), [("", ()), ("arn:a arn:b", ("arn:a", "arn:b"))])
def test_the_roles_that_may_sign_are_listed_with_spaces(text: str, roles: tuple[str, ...]) -> None:
    """None is the default."""
    assert LambdaSettings.from_environment(FUNCTION | {"NODE_ROLE_ARNS": text}).node_roles == roles


def test_what_may_be_left_out_has_a_safe_default() -> None:
    """Adoption off, level 2, GPUs reserved, the adaptive preset."""
    told = LambdaSettings.from_environment(REQUIRED)
    assert (told.adoption, told.check_level, told.check_reserves_gpus) == (Adoption.OFF, 2, True)
    assert told.policy == PRESETS[Preset.ADAPTIVE]
    assert told.job_id_prefix == told.operator_token_secret == ""


def test_a_policy_setting_changes_its_threshold_only() -> None:
    """On top of the preset it names."""
    told = LambdaSettings.from_environment(FUNCTION | {"RECOVERY_POLICY": '{"preset": "classic", "attempts_max": 4}'})
    assert told.policy.attempts_max == 4 and told.policy.diagnose_exit_code_1_only


@pytest.mark.parametrize(
    "text", ['{"preset": "bold"}', '{"attempts": 3}', '{"attempts_max": "3"}', '{"poll_interval_s": 0}']
)
def test_a_policy_that_cannot_be_is_refused(text: str) -> None:
    """An unknown preset or threshold, another type, a time of nothing."""
    with pytest.raises(PolicyInvalid):
        LambdaSettings.from_environment(FUNCTION | {"RECOVERY_POLICY": text})
