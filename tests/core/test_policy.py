"""The thresholds, the two presets, and how settings change them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.policy import PRESETS, RENAMED, Preset, RecoveryPolicy, policy_from

from tests.core.build import ADAPTIVE, CLASSIC


def test_nothing_said_is_the_adaptive_policy() -> None:
    """The default of a deployment that sets nothing."""
    assert policy_from({}) == RecoveryPolicy() == PRESETS[Preset.ADAPTIVE]


def test_classic_is_what_seed_001_says() -> None:
    """One re-run on the same instances after one reboot, for the exit code 1 only."""
    policy = policy_from({"preset": "classic"})
    assert policy == CLASSIC
    assert (policy.attempts_max, policy.reboots_max) == (2, 1)
    assert policy.diagnose_exit_code_1_only
    assert policy.relaunch_on_same_instances
    assert not policy.retry_crashes
    assert not policy.require_verdict_document


def test_settings_change_single_thresholds_of_a_preset() -> None:
    """The rest stays as the preset has it."""
    assert policy_from({"preset": "classic", "attempts_max": 4}) == replace(CLASSIC, attempts_max=4)
    assert policy_from({"retry_crashes": False}) == replace(ADAPTIVE, retry_crashes=False)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"preset": "brave"}, "preset"),
        ({"preset": []}, "preset"),
        ({"attempt_max": 3}, "attempt_max"),
        ({"attempts_max": "3"}, "attempts_max"),
        ({"attempts_max": 3.0}, "attempts_max"),
        ({"attempts_max": True}, "attempts_max"),
        ({"attempts_max": None}, "attempts_max"),
        ({"retry_crashes": 1}, "retry_crashes"),
        ({"stop_timeout_s": 0}, "stop_timeout_s"),
        ({"poll_interval_s": -5}, "poll_interval_s"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], named: str) -> None:
    """A deployment with a wrong threshold fails at its first cold start, and says which."""
    with pytest.raises(PolicyInvalid, match=named):
        policy_from(settings)


@pytest.mark.parametrize("policy", [CLASSIC, ADAPTIVE], ids=["classic", "adaptive"])
def test_a_claim_outlives_every_function(policy: RecoveryPolicy) -> None:
    """Functions run for less than 120 s; a claim that ended sooner would have two actors on one command."""
    assert policy.command_lease_s >= 120


@pytest.mark.parametrize("old", RENAMED)
def test_a_former_name_of_a_setting_is_accepted(old: str) -> None:
    """A deployment that still has the old name gets the same policy as with the new name."""
    default = getattr(PRESETS[Preset.ADAPTIVE], RENAMED[old])
    value = not default if isinstance(default, bool) else default + 1
    assert policy_from({old: value}) == policy_from({RENAMED[old]: value}) != PRESETS[Preset.ADAPTIVE]


def test_a_setting_under_both_names_is_refused() -> None:
    """Two values of one setting would leave it open which value holds."""
    with pytest.raises(PolicyInvalid, match="look_s is the former name of poll_interval_s"):
        policy_from({"look_s": 60, "poll_interval_s": 90})


def test_a_former_name_is_no_present_name() -> None:
    """A name with two meanings would be read as the wrong setting."""
    present = {field.name for field in fields(RecoveryPolicy)}
    assert set(RENAMED.values()) <= present and not present & set(RENAMED)
