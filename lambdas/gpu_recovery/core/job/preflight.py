"""Whether the ranks of a job run a preflight before the training starts."""

from __future__ import annotations

from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.policy import Preflight, RecoveryPolicy


def runs_preflight(spec: JobSpec, policy: RecoveryPolicy) -> bool:
    """Return whether the launch asks the wrapper of each rank for a preflight."""
    wanted = policy.preflight if spec.preflight is None else spec.preflight
    return spec.backend is Backend.ECS and wanted is Preflight.QUICK
