"""What was taken for broken GPUs elsewhere and is not: the fabric's manager, its probes, heat, absent links."""

from __future__ import annotations

import pytest

from health_check.remedies import ERRORS, SEVERITY_BY_NUMBER, HealthOutcome
from tests.health_check.diagnostics import dcgm4, result, warning
from tests.health_check.test_judge import verdict_on

NUMBER = {severity: number for number, severity in SEVERITY_BY_NUMBER.items()}


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("DCGM_FR_CUDA_FM_NOT_INITIALIZED", HealthOutcome.CONFIGURATION),  # the manager is dead: the host's service
        ("DCGM_FR_FABRIC_MANAGER_TRAINING_ERROR", HealthOutcome.CONFIGURATION),
        ("DCGM_FR_FABRIC_PROBE_STATE", HealthOutcome.HEALTHY),  # false alarms of masks and probes
        ("DCGM_FR_CLOCKS_EVENT_THERMAL", HealthOutcome.HEALTHY),
        ("DCGM_FR_THERMAL_VIOLATIONS", HealthOutcome.HEALTHY),
        ("DCGM_FR_TEMP_VIOLATION", HealthOutcome.HEALTHY),
    ],
)
def test_fabric_and_heat_cost_no_machine(name: str, outcome: HealthOutcome) -> None:
    """A failed test that has nothing else to say: a setting of the host, or a note; printed severity or looked up."""
    (error_id,) = [number for number, known in ERRORS.items() if known.name == name]
    for number in (NUMBER[ERRORS[error_id].severity], None):
        assert verdict_on(dcgm4([result(0, "Fail", [warning(error_id, number)])]), 226).outcome is outcome


@pytest.mark.parametrize("status", ["Skip", "Pass"])
def test_a_link_that_is_down_on_gpus_without_links_asks_for_nothing(status: str) -> None:
    """NVLINK_DOWN beside a test that was skipped, or passed, on GPUs of PCI Express."""
    (down,) = [number for number, known in ERRORS.items() if known.name == "DCGM_FR_NVLINK_DOWN"]
    link = [result(0, status, [warning(down, NUMBER[ERRORS[down].severity])])]
    assert verdict_on(dcgm4([result(0)], software=link)).outcome is HealthOutcome.HEALTHY
