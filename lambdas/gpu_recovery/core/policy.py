"""Every threshold of the recovery in one place, with its unit, and the two presets.

`classic` is seed 001 to the letter, except where the letter hangs or lies. `adaptive` is the same skeleton with
evidence: it retries what a restart cures and fails fast what it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.xid import XidProfile


class Preset(StrEnum):
    """The two ready-made policies."""

    CLASSIC = "classic"
    ADAPTIVE = "adaptive"


PERCENT_MAX = 100
CHECK_S_BY_LEVEL = {1: 300, 2: 1_200, 3: 2_700, 4: 10_800}
"""How long a check of a DCGM run level may take (`health_check/settings.py`): one cut short looks like a hang."""
CHECK_MARGIN_S = 180
"""How long before a check is given up it must have given up itself."""
REPEATS_MIN = 2
COMMAND_LEASE_S_MIN = 120
"""No function may have a timeout this long (`infra/functions.py`)."""


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """The thresholds that every decision is taken under. Times are in seconds."""

    preset: Preset = Preset.ADAPTIVE
    attempts_max: int = 3
    """Counted attempts of a job, the first included, where its spec says nothing."""
    uncounted_relaunches_max: int = 5
    """Relaunches of one job for a cause that is not counted (short of resources, capacity taken away)."""
    diagnose_exit_code_1_only: bool = False
    """Seed 001: exit code 1 asks the GPUs; any other failure stops the gang and fails the job."""
    retry_crashes: bool = True
    """A rank ended by a signal on GPUs that pass their check is relaunched instead of failed."""
    retry_exits: bool = False
    """So is one that exited by itself: for launchers such as torchrun, which exit with 1 for everything."""
    relaunch_on_same_instances: bool = False
    """Seed 001: the job waits for its own instances. Otherwise any healthy capacity will do."""
    reboots_max: int = 2
    """Reboots (and stops) of one instance within `reboot_window_s`; past that the next rung, at last a person."""
    reboot_window_s: int = 86_400
    relapse_window_s: int = 3_600
    """An instance blamed again this soon after a repair is not repaired in the same way again."""
    job_repairs_max: int = 8
    """Instances that one job may have repaired; past that its checks blame, but nothing is repaired for it."""
    suspect_repeats: bool = True
    """A machine on which a job's gang ends first again and again is repaired even if its check finds nothing."""
    suspect_after: int = 2
    """So many first ends of one job on one machine are a repetition."""
    suspect_window: int = 8
    """How many attempts of a job back its first ends, and what was repaired for them, are remembered."""
    lemon_order: bool = True
    """Among machines that suit a job equally well, those that failed again and again in 28 days are taken last."""
    lemon_replace: int = 100
    """From this lemon score on, in percent, a machine is replaced instead of rebooted once more; none has 100."""
    require_verdict_document: bool = True
    diagnose: bool = True
    """Reports and logs of a failed attempt are read and judged: a sure verdict may spare it the checks."""
    check_in_background: bool = True
    """A machine that a sure verdict names is checked beside its job, which goes on without it and any other check."""
    progress_timeout_s: int = 900
    """No rank of a job that reports its progress gets on for so long: it hangs, and is ended."""

    observe_only: bool = False
    """Nothing is stopped, drained, rebooted or replaced: what would have been done is recorded and told."""
    replace: bool = False
    """The switch for terminating or stopping instances; without it a person replaces what a reboot does not cure."""
    repair_budget_percent: int = 20
    """Of the instances with GPUs, how many may be under repair at once; at least one always may."""
    fleet_repairs_max: int = 20
    """Repairs of the whole fleet that may begin within `fleet_window_s`."""
    fleet_window_s: int = 3_600
    replacements_max: int = 5
    """Replacements of the whole fleet that may begin within `replacement_window_s`: new machines may be bad, too."""
    replacement_window_s: int = 86_400
    breaker_percent: int = 50
    """So many of the instances with GPUs blamed within `breaker_window_s` open the breaker: no repair begins."""
    breaker_instances_min: int = 3
    breaker_instances_max: int = 20
    breaker_window_s: int = 300
    breaker_probe_s: int = 900
    """How long the breaker stays open before one instance may try."""
    repair_hold_timeout_s: int = 21_600
    """How long a repair may be held back before a person must decide."""
    hold_retry_interval_s: int = 30
    """How often a repair that is held back asks again."""
    evidence_stale_s: int = 1_800
    """Evidence older than this, when its repair may begin at last, is first looked at afresh."""

    command_lease_s: int = 180
    """How long a command belongs to who saved it. Longer than any function may run."""
    poll_interval_s: int = 120
    """How often a job or instance in motion is compared with what ECS says, in case an event was lost."""
    check_poll_interval_s: int = 300
    """The same for an instance under its check, which takes minutes: a large gang has one on each of its instances."""
    queue_timeout_s: int = 604_800
    user_hold_timeout_s: int = 2_592_000
    """How long a job that a person has suspended is kept for them."""
    pending_retry_s: int = 60
    """The pause after a launch that was refused for lack of resources (seed 004)."""
    vacated_reservation_s: int = 900
    """How long what was vacated for a job is kept for it."""
    suspend_margin_s: int = 30
    """How long after its grace rank 0 must have ended, before the whole gang is stopped."""
    launch_timeout_s: int = 600
    start_timeout_s: int = 1_800
    stop_timeout_s: int = 240
    check_timeout_s: int = 2_400
    reboot_timeout_s: int = 1_800
    reboot_settle_s: int = 300
    """Without a disconnect seen, an agent that is connected this long after the request makes us look for the boot."""
    verify_timeout_s: int = 2_400
    recover_timeout_s: int = 21_600
    repaired_reservation_s: int = 7_200
    """How long a healthy instance of a failed attempt is kept for its job."""
    replace_timeout_s: int = 3_600
    quarantine_reminder_s: int = 86_400
    departure_lead_s: int = 3_600
    """How long before an announced retirement or maintenance the jobs of the instance are moved."""
    rebalance_avoid_s: int = 3_600
    """How long after a rebalance recommendation nothing new is placed on the instance."""
    relaunch_cooldown_s: int = 60
    """The pause before the second relaunch in a row of a job that does not last, doubled each time."""
    relaunch_cooldown_max_s: int = 900
    stable_run_s: int = 1_800
    """An attempt that ran this long has lasted: the next relaunch is immediate again."""
    stable_run_resets_attempts: bool = True
    """Once an attempt has lasted, the failures and repairs before it are history: no cap counts them any more."""
    suspect_s: int = 45
    """An instance that was not heard of for longer is suspect: three heartbeats are missing."""
    unreachable_s: int = 120
    """Unreachable: a word for people. ECS and EC2 are asked about every instance each minute, heard of or not."""
    heartbeat_stale_s: int = 180
    """Lost (seed 000): its jobs are LOST, its GPUs stay theirs."""
    heartbeat_forget_s: int = 86_400
    """After so long there is no agent there any more: the instance works without one, and counts no more as silent."""
    silence_alert_after_s: int = 900
    """How long an idle instance is silent before operators hear of it: no job tells them."""
    silence_clear_after_s: int = 900
    """How long it must be heard of before they hear that it is over: an agent that comes and goes is not back."""
    lost_timeout_s: int = 600
    """How long a job stays LOST before ECS and EC2 decide what to make of the silence."""
    xid_profile: XidProfile = XidProfile.NVIDIA
    """Whose judgement of XIDs is followed where the driver says nothing: `nvidia` or `aws`."""
    demote_after_s: int = 1_800
    """A job of priority ABOVE_NORMAL that has run this long, over all its attempts, counts as NORMAL (seed 003)."""
    preemption_protect_s: int = 900
    """A job is not suspended for another before it has run this long."""
    suspensions_max: int = 3
    """How often a job may be suspended for others within `suspensions_window_s`."""
    fleet_suspensions_max: int = 100
    """Suspensions of the whole fleet within `suspensions_window_s`."""
    suspensions_window_s: int = 3_600
    record_attempts: bool = False
    """What was submitted, and each attempt once it has ended, is also written where people keep records (seed 004)."""
    history_max: int = 60

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise PolicyInvalid(f"policy {field.name} must be at least 1, not {value}")
        for percent in ("repair_budget_percent", "breaker_percent"):
            if getattr(self, percent) > PERCENT_MAX:
                raise PolicyInvalid(f"policy {percent} must be at most {PERCENT_MAX}, not {getattr(self, percent)}")
        if not self.suspect_s <= self.unreachable_s <= self.heartbeat_stale_s:
            raise PolicyInvalid(
                "policy suspect_s, unreachable_s and heartbeat_stale_s must not fall: they are one silence"
            )
        if self.suspect_after < REPEATS_MIN:
            raise PolicyInvalid(f"policy suspect_after must be at least {REPEATS_MIN}: one failure is no repetition")
        if self.command_lease_s < COMMAND_LEASE_S_MIN:
            raise PolicyInvalid(
                f"policy command_lease_s must be at least {COMMAND_LEASE_S_MIN}: a claim must outlive any function"
            )


@lru_cache(maxsize=256)
def within(seconds: int) -> timedelta:
    """`seconds` of the policy as a timedelta. There are few, and each decision asks for several."""
    return timedelta(seconds=seconds)


PRESETS: dict[Preset, RecoveryPolicy] = {
    Preset.CLASSIC: RecoveryPolicy(
        preset=Preset.CLASSIC,
        attempts_max=2,
        diagnose_exit_code_1_only=True,
        stable_run_resets_attempts=False,
        suspect_repeats=False,
        lemon_order=False,
        retry_crashes=False,
        relaunch_on_same_instances=True,
        reboots_max=1,
        require_verdict_document=False,
        diagnose=False,
        check_in_background=False,
        recover_timeout_s=7_200,
    ),
    Preset.ADAPTIVE: RecoveryPolicy(),
}


RENAMED: Mapping[str, str] = {
    "hold_timeout_s": "repair_hold_timeout_s",
    "held_timeout_s": "user_hold_timeout_s",
    "look_s": "poll_interval_s",
    "check_look_s": "check_poll_interval_s",
    "hold_look_s": "hold_retry_interval_s",
    "claim_s": "command_lease_s",
    "relapse_s": "relapse_window_s",
    "steady_s": "stable_run_s",
    "lasting_forgives": "stable_run_resets_attempts",
    "check_aside": "check_in_background",
    "only_exit_one_is_checked": "diagnose_exit_code_1_only",
    "blame_needs_document": "require_verdict_document",
    "uncounted_max": "uncounted_relaunches_max",
    "room_kept_s": "vacated_reservation_s",
    "reserve_s": "repaired_reservation_s",
    "leave_lead_s": "departure_lead_s",
    "avoid_s": "rebalance_avoid_s",
    "stalled_s": "progress_timeout_s",
    "silence_told_s": "silence_alert_after_s",
    "silence_over_s": "silence_clear_after_s",
    "protect_s": "preemption_protect_s",
}
"""Former names of settings, and their present names. Former names are accepted until version 0.4."""


def with_present_names(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with every former name replaced by the present name.

    Raises:
        PolicyInvalid: a setting is given under both names.
    """
    both = sorted(old for old in settings if old in RENAMED and RENAMED[old] in settings)
    if both:
        raise PolicyInvalid(f"policy {both[0]} is the former name of {RENAMED[both[0]]}: give only {RENAMED[both[0]]}")
    return {RENAMED.get(name, name): value for name, value in settings.items()}


def policy_from(settings: Mapping[str, Any]) -> RecoveryPolicy:
    """The policy of `{"preset": name, field: value, ...}`; PolicyInvalid names the setting that is wrong."""
    rest = with_present_names(settings)
    name = rest.pop("preset", Preset.ADAPTIVE)
    if name not in tuple(Preset):
        raise PolicyInvalid(f"policy preset must be one of {', '.join(Preset)}, not {name!r}")
    base = PRESETS[Preset(name)]
    kinds: dict[str, Any] = {f.name: type(getattr(base, f.name)) for f in fields(base)}
    for key, value in rest.items():
        if key not in kinds:
            raise PolicyInvalid(f"there is no policy setting {key!r}")
        if issubclass(kinds[key], StrEnum) and value in tuple(kinds[key]):
            rest[key] = kinds[key](value)
        elif type(value) is not kinds[key]:
            raise PolicyInvalid(f"policy {key} must be of type {kinds[key].__name__}, not {value!r}")
    return replace(base, **rest)
