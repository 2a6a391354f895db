"""The published times of an expectation are those of the simulator's assumptions, which have the sources."""

from __future__ import annotations

import pytest
from gpu_recovery.core.recovery_expectation import published_times as times

from simulator.goodput import assumptions_file


def test_the_published_numbers_are_those_of_the_simulator() -> None:
    """One table has the sources. A number that changes there must change here."""
    facts = assumptions_file.read()
    conditions, profile = facts.conditions, facts.profile("rsc1")
    assert (profile.rate, profile.gpus) == (times.RATE_PER_1000_INSTANCE_DAYS, times.RATE_GPUS)
    same = {
        "EXIT_S": "exit_s",
        "EVENT_S": "event_s",
        "LEAVE_S": "leave_s",
        "HANG_S": "hang_s",
        "PROGRESS_S": "progress_s",
        "CALLS_BURST": "calls_burst",
        "CALLS_PER_S": "calls_per_s",
        "CHECK_S": "check_2_s",
        "REBOOT_S": "reboot_s",
        "REPLACE_S": "replace_s",
        "START_S": "start_s",
        "RESPAWN_S": "respawn_s",
        "REJOIN_S": "rejoin_s",
        "REJOIN_PER_GPU_S": "rejoin_per_gpu_s",
        "EVIDENCE_S": "evidence_s",
        "PERSIST_S": "persist_s",
        "STEP_S": "step_s",
        "REBOOT_SHARE": "reboot_share",
        "VERDICT_SHARE": "verdict_share",
        "HANG_SHARE": "hang_share",
        "TOLD_SHARE": "told_share",
        "SEEN_BY_REPORTS": "seen_1",
        "SEEN_BY_CHECK": "seen_2",
    }
    assert {name: getattr(times, name) for name in same} == {
        name: pytest.approx(getattr(conditions, field)) for name, field in same.items()
    }


def test_the_kinds_of_failures_are_those_of_llama3() -> None:
    """Each interruption of its table is in one kind."""
    facts = assumptions_file.read()
    kinds = {
        ("node", "either", True): times.EITHER,
        ("node", "hang", True): times.NODE_HANG,
        ("node", "exit", False): times.NODE_UNSEEN,
        ("restart", "exit", False): times.RESTART_EXIT,
        ("restart", "hang", False): times.RESTART_HANG,
        ("gone", "gone", False): times.GONE,
        ("person", "exit", False): times.PERSON,
    }
    found = dict.fromkeys(kinds, 0.0)
    for cause in facts.profile("llama3").mix:
        found[str(cause.cure), str(cause.shows), cause.seen] += cause.weight
    assert found == pytest.approx(kinds)
