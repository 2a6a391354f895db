"""What every store promises about the reports of trainings: each once, the latest, and by whom they came."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.item_codec import SCHEMA, ItemUnreadable
from gpu_recovery.aws.observation_store import OBSERVATION_WRITE_ATTEMPTS_MAX, observations_key
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.diagnosis.observation_buffer import BUFFER_MAX, ObservationBuffer
from gpu_recovery.core.diagnosis.observations import (
    Check,
    NcclReport,
    Observation,
    Occupant,
    ProgressReport,
    StageReport,
)
from gpu_recovery.ports.errors import TryAgainSoon
from gpu_recovery.ports.store import Store

from tests.aws.records import JOB, OTHER_JOB, A, B
from tests.aws.test_dynamo_calls import meddled
from tests.aws.test_heartbeat_store import counted

AT_S = 1_763_715_600.0


def progress(number: int, instance_id: str = A) -> ProgressReport:
    """A progress heartbeat, a second after the one before."""
    return ProgressReport(
        report_id=f"{instance_id}/p-{number:05}", at_s=AT_S + number, instance_id=instance_id, value=number
    )


def stage(name: str = "rollout") -> StageReport:
    """A report with every kind of value."""
    return StageReport(
        report_id=f"{A}/s-{name}",
        at_s=AT_S + 0.125,
        instance_id=A,
        worker="0.1",
        rank=0,
        stage=name,
        step=3,
        gpu="GPU-1",
        corrected=0,
        uncorrected=2,
        probe=Check.FAILED,
        synchronised=True,
        matches=False,
        error="\u663e\u5b58 fault",
        allocated_gb=1.25,
        occupants=(Occupant(7, 40_960.0, "train"), Occupant(8, 1.5)),
    )


def kept(store: Store, instance_id: str = A, attempt: int = 1, job_id: str = JOB) -> ObservationBuffer:
    """What is kept, which must be there."""
    return store.observations_of(job_id, attempt, (instance_id,))[instance_id]


def test_reports_are_read_back_whole_and_in_order(store: Store) -> None:
    """Each field of each."""
    store.add_observations(JOB, 1, A, [progress(2), stage(), progress(1)], 4)
    assert kept(store) == ObservationBuffer((stage(), progress(1), progress(2)), 4)


def test_reports_are_of_one_attempt_and_one_instance(store: Store) -> None:
    """A diagnosis of an attempt reads those of its instances, and no others."""
    store.add_observations(JOB, 1, A, [progress(1)])
    store.add_observations(JOB, 1, B, [progress(2, B)])
    store.add_observations(JOB, 2, A, [progress(3)])
    store.add_observations(OTHER_JOB, 1, A, [progress(4)])
    found = store.observations_of(JOB, 1, (A, B, "i-0cccccccccccccccc"))
    assert {one: each.reports for one, each in found.items()} == {A: (progress(1),), B: (progress(2, B),)}
    assert store.observations_of(JOB, 3, (A,)) == {} and store.observations_of(JOB, 1, ()) == {}


def test_a_batch_that_comes_twice_is_kept_once(store: Store) -> None:
    """With its losses."""
    for _ in range(3):
        store.add_observations(JOB, 1, A, [progress(1), progress(2)], 5)
    assert kept(store) == ObservationBuffer((progress(1), progress(2)), 5)
    store.add_observations(JOB, 1, A, [progress(2), progress(3)], 1)
    assert kept(store) == ObservationBuffer((progress(1), progress(2), progress(3)), 6)


def test_nothing_at_all_is_kept_of_nothing(store: Store) -> None:
    """An empty batch makes no item."""
    store.add_observations(JOB, 1, A, [], 3)
    assert store.observations_of(JOB, 1, (A,)) == {}


def test_the_latest_are_kept(store: Store) -> None:
    """However long a run goes on."""
    for begin in range(0, 320, 64):
        store.add_observations(JOB, 1, A, [progress(n) for n in range(begin, begin + 64)])
    found = kept(store)
    assert [one.report_id for one in found.reports] == [progress(n).report_id for n in range(320 - BUFFER_MAX, 320)]
    assert found.lost == 320 - BUFFER_MAX


def test_times_are_kept_to_the_millisecond(store: Store) -> None:
    """Finer ones would only be bytes."""
    store.add_observations(JOB, 1, A, [NcclReport(report_id="n", at_s=AT_S + 0.123456, line="x")])
    assert kept(store).reports[0].at_s == AT_S + 0.123


# -- on DynamoDB -------------------------------------------------------------------------------------------------------


def calls_of(store: DynamoStore, *found: Observation) -> list[str]:
    """The calls that keeping them takes."""
    counting, client = counted(store)
    counting.add_observations(JOB, 1, A, found)
    return client.made


def test_a_batch_is_one_read_and_one_write_and_a_repeated_one_is_no_write(double_store: DynamoStore) -> None:
    """However many reports it brings."""
    assert calls_of(double_store, progress(1)) == ["get_item", "put_item"]
    assert calls_of(double_store, *map(progress, range(2, 66))) == ["get_item", "put_item"]
    assert calls_of(double_store, *map(progress, range(2, 66))) == ["get_item"]


def test_what_is_kept_is_small(double_store: DynamoStore) -> None:
    """A full ring of what trainings usually say is below 8 KB: eight write units instead of thirty."""
    double_store.add_observations(JOB, 1, A, [progress(n) for n in range(BUFFER_MAX)])
    item = double_store.jobs.get(observations_key(JOB, 1, A))
    assert item is not None and len(bytes(item["reports"])) < 8_000 and item["schema"] == SCHEMA


def test_two_batches_at_once_are_both_kept(double_store: DynamoStore) -> None:
    """The second writer finds that its revision is old, and begins again."""
    between = {2: lambda: double_store.add_observations(JOB, 1, A, [progress(1)])}
    racing, client = counted(double_store, before=between)
    racing.add_observations(JOB, 1, A, [progress(2)])
    assert client.made == ["get_item", "put_item"] * 2
    assert kept(double_store).reports == (progress(1), progress(2))


def test_a_batch_that_is_overtaken_each_time_is_to_come_again(double_store: DynamoStore) -> None:
    """What is answered with 503; nothing of it is kept."""
    numbers = iter(range(100, 200))

    def overtaken(call: Any, request: dict[str, Any]) -> Any:
        double_store.add_observations(JOB, 1, A, [progress(next(numbers))])
        return call(**request)

    with pytest.raises(TryAgainSoon):
        meddled(double_store, "put_item", overtaken).add_observations(JOB, 1, A, [progress(1)])
    assert (
        len(kept(double_store).reports) == OBSERVATION_WRITE_ATTEMPTS_MAX
        and progress(1) not in kept(double_store).reports
    )


@pytest.mark.parametrize("change", [{"schema": SCHEMA + 1}, {"reports": b"no zlib"}, {"revision": "x"}])
def test_an_item_that_cannot_be_read_is_named(double_store: DynamoStore, change: dict[str, Any]) -> None:
    """Of a newer release, or broken: it is never taken for an empty one."""
    double_store.add_observations(JOB, 1, A, [progress(1)])
    item = double_store.jobs.get(observations_key(JOB, 1, A))
    assert item is not None
    double_store.jobs.client.put_item(TableName=double_store.jobs.name, Item=typed({**item, **change}))
    with pytest.raises(ItemUnreadable, match="reports"):
        double_store.add_observations(JOB, 1, A, [progress(2)])
