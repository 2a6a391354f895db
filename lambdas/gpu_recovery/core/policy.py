"""Recovery policy: retry limits, timeouts and thresholds, each with its unit, and two presets.

The preset `classic` is the basic procedure: exit code 1 leads to health checks, a faulty instance is rebooted, and the
job runs once more. Further rules apply only where this procedure would hang or give a wrong result.
The preset `adaptive` has the same structure and also uses evidence: it retries a failure that a restart cures, and
it fails a job at once where a restart does not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any

from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.xid import XidProfile


class Preset(StrEnum):
    """The two ready-made policies."""

    CLASSIC = "classic"
    ADAPTIVE = "adaptive"


class GangCheck(StrEnum):
    """When the whole gang is checked before a failed job continues."""

    ALWAYS = "always"
    WITHOUT_EVIDENCE = "without_evidence"


class Preflight(StrEnum):
    """What the wrapper of a rank tests in its container before the training starts."""

    OFF = "off"
    QUICK = "quick"


class TimeoutOrder(StrEnum):
    """What follows if timeouts of a job do not fit each other."""

    OFF = "off"
    WARN = "warn"
    REFUSE = "refuse"


class HangAction(StrEnum):
    """What follows if the agents show a hang of a job that reports no progress."""

    OFF = "off"
    NOTIFY = "notify"
    ACT = "act"


PERCENT_MAX = 100
CHECK_S_BY_LEVEL = {1: 300, 2: 1_200, 3: 2_700, 4: 10_800}
"""Seconds that a health check may take, by DCGM run level (`health_check/settings.py`).

A check that is cut short looks like a hang.
"""
CHECK_MARGIN_S = 180
"""Seconds between the end of a check by its own timeout and the check timeout of the policy."""
MAY_BE_ZERO = ("elastic_wait_s", "warm_spares", "idle_check_every_s")
"""Numbers of the policy that may be 0. Every other number is at least 1."""
PERCENTAGES = (
    "repair_budget_percent",
    "breaker_percent",
    "backfill_slack_percent",
    "idle_check_percent",
    "progress_timeout_confirmed_percent",
)
"""Numbers of the policy that are at most `PERCENT_MAX`."""
REPEATS_MIN = 2
"""Lower bound of `suspect_after`."""
COMMAND_LEASE_S_MIN = 120
"""Lower bound of `command_lease_s`, in seconds. Every function has a shorter timeout (`infra/functions.py`)."""


@frozen_dataclass()
class RecoveryPolicy:
    """The thresholds that every decision uses. Field names that end in `_s` are seconds, in `_max` upper bounds."""

    preset: Preset = Preset.ADAPTIVE
    """Preset that the policy started from. Single settings may differ from the preset."""
    attempts_max: int = 3
    """Counted attempts of a job, the first attempt included. The job's specification may set another number."""
    uncounted_relaunches_max: int = 5
    """Relaunches of one job for one cause that is not counted (lack of resources, capacity taken away)."""
    diagnose_exit_code_1_only: bool = False
    """Whether only exit code 1 leads to health checks. Other failures stop the gang and fail the job."""
    retry_crashes: bool = True
    """Whether a job is relaunched after a signal ended a rank and the rank's GPUs passed their check."""
    retry_exits: bool = False
    """Whether a job is relaunched after a rank exited by itself and its GPUs passed their check.

    The setting is for launchers such as torchrun, which exit with code 1 after every failure.
    """
    relaunch_after_manual_stop: bool = False
    """Whether a job is relaunched, uncounted, after a user stopped one of its tasks in ECS.

    Otherwise the job is CANCELED. A job that its ECS service stopped is always CANCELED.
    """
    relaunch_on_same_instances: bool = False
    """Whether a job waits for its own instances. Otherwise the job takes any healthy capacity."""
    reboots_max: int = 2
    """Reboots and stops of one instance within `reboot_window_s`.

    After that the next repair level follows. The last level needs an operator.
    """
    reboot_window_s: int = 86_400
    """Seconds within which `reboots_max` counts."""
    relapse_window_s: int = 3_600
    """Seconds after a repair within which a new fault of the instance leads to the next repair level."""
    job_repairs_max: int = 8
    """Instances that are repaired for one job. After that, faults that its checks find cause no repair."""
    suspect_repeats: bool = True
    """Whether an instance is repaired as a repeat offender although its check finds no fault.

    A repeat offender is an instance on which the gang of one job ended first in several attempts.
    """
    suspect_after: int = 2
    """First ends of one job on one instance that make the instance a repeat offender."""
    suspect_window: int = 8
    """Attempts of a job for which its first ends, and the repairs made for them, are remembered."""
    lemon_order: bool = True
    """Whether placement takes lemons last among the instances on which a job is equally close together."""
    lemon_replace: int = 100
    """Lemon score in percent from which an instance is replaced instead of rebooted again. No score reaches 100."""
    require_verdict_document: bool = True
    """Whether a check's exit codes 1 and 42 count against an instance only with the verdict document of that check."""
    diagnose: bool = True
    """Whether reports and logs of a failed attempt are diagnosed. A sure diagnosis may make the checks unnecessary."""
    restart_in_place: bool = False
    """Whether a job that does not say so itself is restarted in the containers of its last attempt.

    A diagnosis must restart the job without the check of all instances. Only the ranks of instances that it leaves out
    become new tasks. The ranks need `gpu-recovery-run`, and their instances the node agent.
    """
    container_hold_s: int = 300
    """Seconds for which the container of a failed rank waits for the next attempt. Then it ends."""
    hold_confirm_s: int = 45
    """Seconds for the end of every process, and again for the evidence, while containers are kept.

    After that the containers are stopped in ECS.
    """
    warm_spares: int = 0
    """Number of idle instances on which a job that does not say so itself keeps a container for a lost rank.

    A container is kept only while no job waits for GPUs, and only of a job that may be restarted in place.
    """
    preflight: Preflight = Preflight.OFF
    """Whether the ranks of a job that does not say so itself run the quick preflight before the training starts.

    The ranks need `gpu-recovery-run`.
    """
    check_in_background: bool = True
    """Whether an instance that a sure diagnosis names is checked in the background.

    The job is relaunched without that instance, and no other instance is checked.
    """
    gang_check: GangCheck = GangCheck.WITHOUT_EVIDENCE
    """Whether the whole gang is checked after each failure, or only without passive evidence of the node agents.

    The gang is also checked if the job fails again, in a very large gang twice, without a stable run between. Each such
    check that finds nothing doubles the failures before the next.
    """
    progress_timeout_s: int = 900
    """Seconds without progress on any rank after which a job that reports progress counts as hung and is stopped.

    This is the upper bound. Where the step times of the job are known, a shorter timeout follows from them.
    """
    progress_timeout_min_s: int = 60
    """Lower bound in seconds of the timeout that follows from the step times of a job."""
    progress_timeout_steps: int = 8
    """Median steps without progress after which a job counts as hung, between the two bounds."""
    progress_timeout_confirmed_percent: int = 50
    """Percent of `progress_timeout_steps` that are enough if the node agents see every rank wait."""
    timeout_order: TimeoutOrder = TimeoutOrder.WARN
    """What follows if a timeout of a job is longer than one around it: nothing, a warning, or a refused submission.

    Only pairs that were both set for the job are refused. A pair with a default is warned of.
    """
    idle_timeout_s: int = 1_800
    """Seconds for which every GPU of a job that reports no progress may be idle after it has worked.

    After that the job counts as hung and is stopped.
    """
    hang_without_progress: HangAction = HangAction.OFF
    """What follows if power, processor time, network and output of all ranks show a hang: nothing, an e-mail, a stop.

    Only for jobs that report no progress. With `act` operators are notified first, and the job is stopped 90 s later.
    """
    recovered_after_s: int = 60
    """Seconds that a relaunched job must run before it counts as recovered, if it reports no progress.

    A job that reports progress counts as recovered with its first report. Until then its incident stays open.
    """

    observe_only: bool = False
    """Whether decisions are only recorded and notified. No task is stopped; no instance is drained or repaired."""
    gpu_reset: bool = False
    """Whether a node agent resets the GPUs of its instance if the driver asks for that. If it fails, a reboot follows.

    Only an agent that is set up for it does so: `agent_gpu_reset_instance_types`, or `GPU_RECOVERY_GPU_RESET` on the
    instance.
    """
    replace: bool = False
    """Whether instances may be terminated or stopped. If not, an operator replaces what reboots do not cure."""
    record_repairs: bool = False
    """Whether the agent of an instance writes who ordered a repair, and why, to the journal and below /var/log."""
    tag_repairs: bool = False
    """Whether the same line is written as the tag `gpu-recovery:repair` of the instance."""
    repair_budget_percent: int = 20
    """Percent of the instances with GPUs that may be under repair at a time (repair budget), at least one instance."""
    fleet_repairs_max: int = 20
    """Repairs of the whole fleet that may begin within `fleet_window_s`."""
    fleet_window_s: int = 3_600
    """Seconds within which `fleet_repairs_max` counts."""
    replacements_max: int = 5
    """Replacements of the whole fleet that may begin within `replacement_window_s`.

    The number is bounded because new instances may be faulty, too.
    """
    replacement_window_s: int = 86_400
    """Seconds within which `replacements_max` counts."""
    breaker_percent: int = 50
    """Percent of the instances with GPUs that open the circuit breaker if suspected within `breaker_window_s`."""
    breaker_instances_min: int = 3
    """Suspected instances below which the circuit breaker never opens."""
    breaker_instances_max: int = 20
    """Suspected instances that open the circuit breaker in a fleet of any size."""
    breaker_window_s: int = 300
    """Seconds for which a suspicion counts towards opening the circuit breaker."""
    breaker_probe_s: int = 900
    """Seconds that the circuit breaker stays open before the repair of one instance may begin as a probe."""
    repair_hold_timeout_s: int = 21_600
    """Seconds that a repair may be blocked before an operator must decide."""
    hold_retry_interval_s: int = 30
    """Seconds between two tries to begin a repair that is blocked.

    In fleets of more than 300 instances the interval is longer, up to 600 seconds.
    """
    evidence_stale_s: int = 1_800
    """Age in seconds from which a new check must confirm the evidence for a held repair before the repair begins."""
    idle_check_every_s: int = 0
    """Seconds since its last check after which an idle instance is checked (idle check); 0: never.

    The check is stopped at once if a job needs the instance. No check begins while a job waits for such an instance.
    """
    idle_check_level: int = 3
    """DCGM run level of idle checks, 1 to 4. Level 3 takes up to 45 minutes."""
    idle_check_percent: int = 20
    """Percent of the idle instances that may have an idle check at a time, at least one instance.

    Of several idle instances with the same number of GPUs in a group, one stays without a check.
    """

    command_lease_s: int = 180
    """Seconds for which a command belongs to the function that saved it. Longer than any function may run."""
    poll_interval_s: int = 120
    """Seconds between two polls of ECS for a job or instance in motion, in case an event was lost."""
    check_poll_interval_s: int = 300
    """Seconds between two polls of an instance under its health check.

    A check takes minutes, and a large gang has a check on each of its instances.
    """
    queue_timeout_s: int = 604_800
    """Seconds that a job may wait in the queue before its status is FAILED."""
    user_hold_timeout_s: int = 2_592_000
    """Seconds that a job stays SUSPENDED by its user or an operator before its status is FAILED."""
    pending_retry_s: int = 60
    """Seconds to the next try after a launch was refused for lack of resources."""
    vacated_reservation_s: int = 900
    """Seconds for which instances that were vacated for a job are reserved for that job."""
    suspend_margin_s: int = 30
    """Seconds after the suspend grace within which rank 0 must have ended. Then the whole gang is stopped."""
    launch_timeout_s: int = 600
    """Seconds that a job may be SUBMITTING."""
    start_timeout_s: int = 1_800
    """Seconds that a job may be SUBMITTED."""
    stop_timeout_s: int = 240
    """Seconds for each of the first two steps of STOPPING, unless the containers of the job may need longer."""
    container_stop_timeout_max_s: int = 1_200
    """Upper bound in seconds of a container's `stopTimeout`. A job with a longer `stopTimeout` is refused."""
    check_timeout_s: int = 2_400
    """Seconds that an instance may be CHECKING."""
    reset_timeout_s: int = 300
    """Seconds that an instance may be RESETTING. Then it is rebooted."""
    reboot_timeout_s: int = 1_800
    """Seconds that an instance may be REBOOTING."""
    reboot_settle_s: int = 300
    """Seconds that an ECS agent may stay connected after a reboot request. Then a check looks for proof of a reboot."""
    verify_timeout_s: int = 2_400
    """Seconds that an instance may be VERIFYING."""
    recover_timeout_s: int = 21_600
    """Seconds that a job may be RECOVERING before its status is FAILED."""
    repaired_reservation_s: int = 7_200
    """Seconds for which a healthy instance of a failed attempt is reserved for its job."""
    replace_timeout_s: int = 3_600
    """Seconds that an instance may be REPLACING."""
    quarantine_reminder_s: int = 86_400
    """Seconds between two reminders to operators about a quarantined instance."""
    departure_lead_s: int = 3_600
    """Seconds before an announced retirement or maintenance at which the jobs of the instance are moved."""
    rebalance_avoid_s: int = 3_600
    """Seconds after a rebalance recommendation during which no new job is placed on the instance."""
    relaunch_cooldown_s: int = 60
    """Seconds from the begin of a run to the second relaunch without a stable run. Further times are doubled."""
    relaunch_cooldown_max_s: int = 900
    """Upper bound in seconds of that time. It counts from the end of a launch that failed."""
    stable_run_s: int = 1_800
    """Seconds after which a run of an attempt is stable. The relaunch after a stable run is immediate."""
    stable_run_resets_attempts: bool = True
    """Whether a stable run resets the counters: no limit counts the failures and repairs before the run."""
    suspect_s: int = 45
    """Seconds without a heartbeat after which an instance is SUSPECT: three heartbeats are missing."""
    unreachable_s: int = 120
    """Seconds without a heartbeat after which an instance is shown to operators as UNREACHABLE.

    The state changes no decision: ECS and EC2 are polled for every instance each minute in any case.
    """
    heartbeat_stale_s: int = 180
    """Seconds of the heartbeat timeout. Then the instance's jobs are LOST and keep their GPUs."""
    heartbeat_forget_s: int = 86_400
    """Seconds without a heartbeat after which the instance is taken to have no agent.

    The instance works without an agent, and no longer counts as missing its heartbeat.
    """
    silence_alert_after_s: int = 900
    """Seconds without a heartbeat after which operators are notified of an idle instance. No job reports it."""
    silence_clear_after_s: int = 900
    """Seconds without another heartbeat timeout after which operators are notified that an idle instance is back."""
    lost_timeout_s: int = 600
    """Seconds that a job stays LOST before the state in ECS and EC2 decides about its missing heartbeats."""
    xid_profile: XidProfile = XidProfile.NVIDIA
    """Classification of XIDs where the driver reports no recovery action: `nvidia` or `aws`."""
    elastic_wait_s: int = 120
    """Seconds for which a queued elastic job that could start with fewer instances waits for more."""
    elastic_grow_every_s: int = 600
    """Seconds that an elastic job must have run before it is relaunched on more instances."""
    demote_after_s: int = 1_800
    """Seconds of run time, over all attempts, after which an ABOVE_NORMAL job counts as NORMAL."""
    preemption_protect_s: int = 900
    """Seconds that a job must have run before it may be suspended for another job."""
    suspensions_max: int = 3
    """Suspensions of one job for other jobs within `suspensions_window_s`."""
    fleet_suspensions_max: int = 100
    """Suspensions of the whole fleet within `suspensions_window_s`."""
    suspensions_window_s: int = 3_600
    """Seconds within which `suspensions_max` and `fleet_suspensions_max` count."""
    ecs_calls_per_s: int = 40
    """Calls of RunTask and StopTask per second, after a burst of 100.

    The quota of the account, 40 unless AWS Support has raised it. A function delays the calls that exceed it, with at
    most 32 calls at a time. A higher value without a higher quota leads to throttled calls, which are repeated.
    """
    min_gpus: int = 1
    """GPUs that a job must have in all, `nnodes` times `n_gpus_per_node`. Smaller jobs are refused at submission."""
    backfill_median_s: int = 86_400
    """Seconds that the first job of a queue waits before others no longer pass it by the median run time of their kind.

    After that they pass it by the 90th percentile.
    """
    backfill_estimates_gpu_s: int = 1_612_800
    """Waiting of the first job in the queue, in GPU-seconds, from which others pass it only by their `max_runtime_s`.

    The product of the GPUs that the job needs and its seconds of waiting: 28 hours for 16 GPUs.
    """
    backfill_slack_percent: int = 5
    """Percent of its waiting time by which jobs that pass the first job of a queue may delay it."""
    record_attempts: bool = False
    """Whether the submitted text, and each attempt that has ended, are also written as job records."""
    history_max: int = 60
    """History entries of a record: the first entry and the newest entries."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool):
                least = 0 if field.name in MAY_BE_ZERO else 1
                if value < least:
                    raise PolicyInvalid(f"policy {field.name} must be at least {least}, not {value}")
        for percent in PERCENTAGES:
            if getattr(self, percent) > PERCENT_MAX:
                raise PolicyInvalid(f"policy {percent} must be at most {PERCENT_MAX}, not {getattr(self, percent)}")
        if not self.suspect_s <= self.unreachable_s <= self.heartbeat_stale_s:
            raise PolicyInvalid("policy suspect_s, unreachable_s and heartbeat_stale_s must not decrease in this order")
        if self.idle_check_level not in CHECK_S_BY_LEVEL:
            raise PolicyInvalid(f"policy idle_check_level must be from 1 to 4, not {self.idle_check_level}")
        if self.suspect_after < REPEATS_MIN:
            raise PolicyInvalid(
                f"policy suspect_after must be at least {REPEATS_MIN}: a single failure is not a repetition"
            )
        if self.command_lease_s < COMMAND_LEASE_S_MIN:
            raise PolicyInvalid(
                f"policy command_lease_s must be at least {COMMAND_LEASE_S_MIN}, longer than any function runs"
            )


@lru_cache(maxsize=256)
def duration(seconds: int) -> timedelta:
    """Return `seconds` as a timedelta.

    The results are cached: a policy has few values, and each decision uses several of them.
    """
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
        gang_check=GangCheck.ALWAYS,
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
    """Return the policy of `{"preset": name, field: value, ...}`.

    Fields that `settings` does not name have the values of the preset. The default preset is `adaptive`.

    Raises:
        PolicyInvalid: a setting does not exist, is given under two names, or has a wrong type or value.
    """
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
