"""Rows 18 and 50: where the workers of a live job are, and which roles they have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_recovery.core.diagnosis.case import Worker
from gpu_recovery_client import diagnosis

from tests.execution.live_gang import LiveGang, live_gang
from tests.lambdas.conftest import Functions


@pytest.fixture
def gang(functions: Functions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveGang]:
    """Two instances, of which one has the attribute of its rack."""
    with live_gang(functions, tmp_path, monkeypatch, racks=("r1", "")) as made:
        yield made


def tells(gang: LiveGang, rank: int, local: int | None = 0, role: str = "", worker: str = "") -> None:
    with gang.process(rank, local, role, worker):
        diagnosis.progress(1)


def test_a_worker_is_where_it_reports_from_in_the_role_that_it_has(gang: LiveGang) -> None:
    """By its launcher's number or its own name; its rack is the attribute of its instance, and may be unknown."""
    first, second = gang.plan.instances
    tells(gang, 0, 0, "train")
    tells(gang, 1, 3, worker="rollout-7", role="rollout")
    gang.report()
    assert gang.evidence().topology.workers == {
        "0.0": Worker("0.0", first, "r1", 0, "train"),
        "rollout-7": Worker("rollout-7", second, "", 1, "rollout"),
    }


def test_processes_that_share_a_name_and_have_two_roles_have_none(gang: LiveGang) -> None:
    """Train and rollout of one rank, without names: whose word would count?"""
    tells(gang, 1, None, "train")
    gang.report()
    gang.launched_anew()
    tells(gang, 1, None, "rollout")
    gang.report()
    assert gang.evidence().topology.workers["rank 1"].role == ""


def test_the_role_that_the_job_sets_is_that_of_whoever_names_none(gang: LiveGang) -> None:
    """All ranks of a job have its environment, also a rank that never reported."""
    record = gang.functions.job()
    spec = replace(record.spec, env={"GPU_RECOVERY_ROLE": "train"})
    gang.functions.store.save_job(replace(record, spec=spec))
    tells(gang, 0, 0, "rollout")
    gang.report()
    roles = {name: worker.role for name, worker in gang.evidence().topology.workers.items()}
    assert roles == {"0.0": "rollout", "rank 1": "train"}
