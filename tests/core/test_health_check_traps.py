"""A check that could not even begin: what the host's own runtime says of its GPUs, and what says nothing of them."""

from __future__ import annotations

import pytest
from gpu_recovery.core.health_check import REASON_CHARACTERS_MAX, CheckOutcome, verdict_of_unstarted


@pytest.mark.parametrize(
    "reason",
    [
        "CannotStartContainerError: runtime create failed: nvidia-container-cli: device error: GPU-1: unknown device",
        "CannotStartContainerError: nvidia-container-cli: initialization error: nvml error: driver not loaded",
        'CannotStartContainerError: error gathering device information "/dev/nvidia0": no such file or directory',
    ],
)
def test_a_host_that_has_no_gpu_for_a_container_is_blamed(reason: str) -> None:
    """It advertises them all the same: without this, job after job would be placed there and never start."""
    verdict = verdict_of_unstarted(reason)
    assert verdict.outcome is CheckOutcome.REBOOT
    assert reason.split(": ", 1)[1][:40] in verdict.summary


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "CannotPullContainerError: pull access denied for gpu-recovery-health-check",
        'CannotStartContainerError: exec: "python": executable file not found in $PATH',
        "CannotCreateContainerError: unknown or invalid runtime name: nvidia",
        "TaskFailedToStart: RESOURCE:GPU",
        "CannotStartContainerError: " + "x" * 5_000,
    ],
)
def test_whatever_else_kept_a_check_from_starting_blames_no_machine(reason: str) -> None:
    """A broken image, a host without NVIDIA's runtime, a full one: could not tell, in ECS's words."""
    verdict = verdict_of_unstarted(reason)
    assert verdict.outcome is CheckOutcome.INCONCLUSIVE
    assert len(verdict.summary) <= REASON_CHARACTERS_MAX + 50
    assert (reason[:20] or "no reason given") in verdict.summary
