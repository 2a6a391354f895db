"""The list of instances where the index of release 0.1 is gone: in a new deployment, and after an upgrade."""

from __future__ import annotations

import pytest
from gpu_recovery.aws.instance_index import LISTED, LISTING, MARK
from gpu_recovery.core.instance.record import PRESENT
from gpu_recovery.core.job.record import JobStatus

from tests.platform.cloud import nobody_sleeps
from tests.platform.incident import QUICK
from tests.platform.platform_world import PlatformWorld

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sleeps")]


def test_a_job_starts_before_the_first_round_of_a_new_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API and the scheduler read the list of instances when nothing has marked it as complete."""
    with nobody_sleeps():
        world = PlatformWorld(monkeypatch, instances=2, train_s=None, timings=QUICK)
        world.cloud.dynamodb.tables[world.settings.instance_table].delete(MARK)
        world.run_reconciler = lambda: None  # type: ignore[method-assign]
        job_id = world.submit(2)
        world.until_status(job_id, JobStatus.RUNNING)
    assert MARK not in world.cloud.dynamodb.tables[world.settings.instance_table].items


def test_an_instance_that_the_older_release_wrote_last_is_listed_after_one_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ECS shows the instance, and nothing else would write its record for days."""
    with nobody_sleeps():
        world = PlatformWorld(monkeypatch, instances=2, train_s=None, timings=QUICK)
        world.until_status(world.submit(2), JobStatus.RUNNING)
        table = world.cloud.dynamodb.tables[world.settings.instance_table]
        name = world.instances()[0].instance_id
        table.put({key: value for key, value in table.items[name].items() if key not in (LISTING, LISTED)})
        assert [one.instance_id for one in world.recovery.store.instances_in(PRESENT)] == [
            one.instance_id for one in world.instances() if one.instance_id != name
        ]
        world.invoke("reconciler", world.run_reconciler)
        assert len(world.recovery.store.instances_in(PRESENT)) == 2
