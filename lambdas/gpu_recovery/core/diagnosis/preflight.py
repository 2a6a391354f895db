"""What the preflight reports of a gang say after a failure of the attempt.

The wrapper of a rank decides alone whether its training starts. A failed step of `PROOFS` is a proof, and the rank has
ended for it. Any other result is evidence: it decides nothing alone, and names the instances to check first. A result
names an instance only if the same step has a better result on at least half of the other instances. What is the same
everywhere comes from the image or the settings. A step that was not run is no result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from gpu_recovery.core.diagnosis.observations import Observation, PreflightReport, PreflightStep, StepResult
from gpu_recovery.core.lazy_dataclass import frozen_dataclass

PROOFS = frozenset({"gpu_count", "recovery_action", "nccl_loopback"})
"""Steps whose failure proves a fault of the hardware. The wrapper has the same set (`rank/preflight_steps.py`)."""
COUNTED, SPEED = "rdma_devices", "nccl_loopback"
"""Steps with a number that the gang's instances are compared by: a count of devices, and gigabytes per second."""
SLOW_SHARE = 0.5
"""An all-reduce with less than this share of the gang's median speed is slow. Chosen: the speed of equal instances
differs by some percent, and a link or a clock that is lost takes half or more."""
COMPARED_MIN = 3
"""Smallest number of instances of which one can be told from the others."""


@frozen_dataclass()
class Difference:
    """A result that sets an instance apart. `sentence` says what was seen."""

    report_id: str
    step: str
    sentence: str


def newest(reports: Iterable[Observation], instances: Iterable[str] = ()) -> dict[str, PreflightReport]:
    """Return the newest preflight report of each instance, about itself.

    Args:
        reports: observations, in any order.
        instances: the instances that count; () for all.
    """
    wanted, found = frozenset(instances), dict[str, PreflightReport]()
    for report in reports:
        if not isinstance(report, PreflightReport) or not report.instance_id:
            continue
        if wanted and report.instance_id not in wanted:
            continue
        known = found.get(report.instance_id)
        if known is None or (report.at_s, report.report_id) > (known.at_s, known.report_id):
            found[report.instance_id] = report
    return found


def proof_of(report: PreflightReport) -> PreflightStep | None:
    """Return the failed step that proves a fault of the hardware; None if there is none."""
    failed = (step for step in report.steps if step.result is StepResult.FAILED and step.name in PROOFS)
    return next(failed, None)


def differences(reports: Mapping[str, PreflightReport]) -> dict[str, Difference]:
    """Return what sets instances apart from the others of their gang, by instance.

    Args:
        reports: the newest preflight report of each instance.
    """
    found: dict[str, Difference] = {}
    for name in dict.fromkeys(step.name for report in reports.values() for step in report.steps):
        steps = {place: step for place, report in reports.items() for step in report.steps if step.name == name}
        for place, sentence in {**_by_number(name, steps), **_by_result(steps)}.items():
            found.setdefault(place, Difference(reports[place].report_id, name, sentence))
    return found


def _by_result(steps: Mapping[str, PreflightStep]) -> dict[str, str]:
    """Return the instances where the step failed or was inconclusive, if it passed on at least half of the others."""
    odd = {place: step for place, step in steps.items() if step.result in (StepResult.FAILED, StepResult.INCONCLUSIVE)}
    passed = sum(step.result is StepResult.PASSED for step in steps.values())
    return {
        place: f"its preflight: {step.name} {step.result}: {step.sentence}"
        for place, step in odd.items()
        if passed and 2 * passed >= len(steps) - 1
    }


def _by_number(name: str, steps: Mapping[str, PreflightStep]) -> dict[str, str]:
    """Return the instances with fewer devices than most others, or with a slow all-reduce."""
    values = {place: step.value for place, step in steps.items() if step.value is not None}
    if len(values) < COMPARED_MIN or name not in (COUNTED, SPEED):
        return {}
    if name == SPEED:
        usual = sorted(values.values())[len(values) // 2]
        slow = {place: value for place, value in values.items() if value < SLOW_SHARE * usual}
        return {place: f"its preflight: an all-reduce had {value:g} GB/s of {usual:g}" for place, value in slow.items()}
    most, number = Counter(values.values()).most_common(1)[0]
    if 2 * number <= len(values):
        return {}
    few = {place: value for place, value in values.items() if value < most}
    return {place: f"its preflight: {value:g} RDMA device(s), others have {most:g}" for place, value in few.items()}
