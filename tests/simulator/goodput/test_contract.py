"""The model of a submission beside the production loop: both give the same quantiles of the same job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from gpu_recovery.core.recovery_expectation.expectation import Contract, lengths_of
from gpu_recovery.core.recovery_expectation.published_times import Setup

from simulator.__main__ import main
from simulator.goodput import contract
from simulator.goodput.accounting import percentile
from simulator.goodput.contract import DAYS, RATE, incidents_of
from tests.tiers import scaled

pytestmark = pytest.mark.slow
SEEDS = range(200, 212)
WITHIN = 0.02
"""Share by which a time may exceed a quantile and still count as within: half a second to seconds of polls."""
P95_LEAST, P50_OFF = 0.88, 0.2
"""Share of the simulated incidents that must be within the 95 % value of the model, and how far the share within its
median may be from one half. `docs/recovery-contract.md` states both. There are 25 to 50 incidents, and half of the
recoveries have one of two lengths, so shares are compared and not times."""
P95_LONGEST, P95_OFF = 1.5, 0.02
"""Factor by which the 95 % value of the model may exceed that of the simulation, and how far the share of the latter
may be from 95 %. The model jumps from 168 to 224 s at a share of 94 to 95 %: from a hang to a check of the gang."""
JOB = """\
workload: sft
nnodes: 4
n_gpus_per_node: 8
task_definition: gpu-training
"""


def share_within(values: Sequence[float], limit: float) -> float:
    """The share of the values that do not exceed the limit, but for WITHIN."""
    return sum(value <= limit * (1 + WITHIN) for value in values) / len(values)


@pytest.mark.parametrize(
    ("setup", "seeds"),
    [
        (Setup(16, 8, spares=1, checkpoint_s=600.0), SEEDS[: scaled(fast=9, default=9, full=12)]),
        (
            Setup(16, 8, spares=1, in_place=True, reports_progress=True, checkpoint_s=600.0),
            SEEDS[: scaled(fast=7, default=7, full=8)],
        ),
    ],
    ids=["relaunched", "in place"],
)
def test_the_quantiles_of_the_model_are_those_of_the_production_loop(
    setup: Setup, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of tens of incidents, without the faults that return more than once.

    The default tier has as many failures in half the days, because quiet hours take most of the time.
    """
    denser = scaled(fast=2, default=2, full=1)
    monkeypatch.setattr(contract, "RATE", RATE * denser)
    model = lengths_of(setup, Contract(None, None))
    found = [one for seed in seeds for one in incidents_of(setup, DAYS / denser, seed) if not one.returned]
    down, lost = [one.down_s for one in found], [one.lost_s for one in found]
    assert len(found) >= 20
    for values, p50, p95 in (
        (down, model.down_p50_s, model.down_p95_s),
        (lost, model.lost_p50_s, model.lost_p95_s),
    ):
        assert share_within(values, p95) >= P95_LEAST
        assert p95 <= P95_LONGEST * (percentile(values, 0.95 + P95_OFF) or 0.0)
        assert share_within(values, p50) >= 0.5 - P50_OFF
        assert share_within(values, p50 * 0.9) <= 0.5 + P50_OFF


def test_the_command_says_whether_a_contract_is_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 0 if it is, 1 if it is not, 2 for a document without a contract. The incidents are the same for all."""
    monkeypatch.setattr(contract, "incidents_of", cache(incidents_of))
    document = tmp_path / "job.yaml"
    for more, code, said in (
        ("max_down_minutes: 600\n", 0, "the recovery contract is met"),
        ("max_down_minutes: 1\n", 1, "the recovery contract is not met"),
        ("", 2, "the job has no recovery contract"),
        ("nnodes: [\n", 2, ""),
    ):
        document.write_text(JOB + more)
        assert main(["contract", str(document), "--seeds", "0..4"]) == code
        output = capsys.readouterr()
        assert said in output.out + output.err


def test_the_command_refuses_an_elastic_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would simulate the largest width alone."""
    document = tmp_path / "job.yaml"
    document.write_text(JOB.replace("nnodes: 4", "nnodes: {min: 2, max: 4}") + "max_down_minutes: 5\n")
    assert main(["contract", str(document)]) == 2
    assert "give one number as nnodes" in capsys.readouterr().err
