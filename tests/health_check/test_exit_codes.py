"""Every exit code of `dcgmi diag`, alone and beside results."""

from __future__ import annotations

import pytest

from health_check.remedies import EXITS, HealthOutcome, exit_meaning
from tests.health_check.diagnostics import dcgm4, output, result, warning
from tests.health_check.examinations import judged

PASS = dcgm4([result(0)])
ISOLATE = dcgm4([result(0, "Fail", [warning(52, 2)])])
CONFIG = dcgm4([result(0, "Fail", [warning(29, 5)])])
TRUNCATED = output("dcgm_4.2.3_gb10_real.json")[:-20]

# exit code: without output, beside a pass, beside a failure of severity ISOLATE, beside one of severity CONFIG
TABLE = {
    0: (HealthOutcome.INCONCLUSIVE, HealthOutcome.HEALTHY, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    226: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    205: (HealthOutcome.REBOOT, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.REBOOT),
    203: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    245: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    235: (
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
    ),
    217: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    215: (HealthOutcome.CONFIGURATION, HealthOutcome.CONFIGURATION, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    198: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    190: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    122: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    123: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    124: (HealthOutcome.REBOOT, HealthOutcome.REBOOT, HealthOutcome.REBOOT, HealthOutcome.REBOOT),
    137: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    126: (
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
    ),
    127: (
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
        HealthOutcome.CONFIGURATION,
    ),
    134: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    139: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    143: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    1: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
    255: (HealthOutcome.INCONCLUSIVE, HealthOutcome.INCONCLUSIVE, HealthOutcome.REBOOT, HealthOutcome.CONFIGURATION),
}


@pytest.mark.parametrize("exit_code", TABLE)
def test_an_exit_code_has_its_outcome_alone_and_beside_results(exit_code: int) -> None:
    """An exit code adds to what the results say, and decides alone where they say nothing."""
    outcomes = tuple(judged(text, exit_code).outcome for text in ("", PASS, ISOLATE, CONFIG))
    assert outcomes == TABLE[exit_code]


def test_every_known_exit_code_is_in_the_table() -> None:
    """A code added to the product needs its row here."""
    assert EXITS.keys() <= TABLE.keys()


def test_a_truncated_output_counts_as_no_output() -> None:
    """Its exit code decides; the failure that can be read in its first half does not."""
    for exit_code, (alone, *_) in TABLE.items():
        verdict = judged(TRUNCATED, exit_code, expected_gpus=8)
        assert verdict.outcome is alone


def test_isolate_explained_by_a_finding_that_is_noise_costs_nothing() -> None:
    """205 because of IMEX alone: the exit code has no other ground."""
    imex = dcgm4([result(0, "Fail", [warning(122, 2)])])
    assert judged(imex, 205).outcome is HealthOutcome.HEALTHY


def test_every_signal_is_told_by_its_number() -> None:
    """All of 129 to 192 but the codes that mean something else."""
    for code in set(range(129, 193)) - EXITS.keys():
        assert exit_meaning(code).meaning == f"signal {code - 128} ended it"
