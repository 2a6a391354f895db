"""Which idle instances are checked: a share of them, never one that a job waits for, and never the last of its size."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.instance.record import CheckRun, InstanceStatus, ListedInstance
from gpu_recovery.core.instance.record_parts import IdleCheck
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.policy import PRESETS, PolicyInvalid, Preset, RecoveryPolicy, policy_from
from gpu_recovery.core.queue.entry import Entry
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.ports.store import Store
from gpu_recovery.reconciler.cycle import Cycle
from gpu_recovery.reconciler.idle_checks import STARTS_MAX, chosen_for_check, start_idle_checks

from tests.aws.records import OTHER_JOB, instance, job
from tests.core.build import NOW
from tests.recovery.heartbeat_world import IDS, Scene

POLICY = replace(PRESETS[Preset.ADAPTIVE], idle_check_every_s=3_600)


def idle(number: int, gpus: int = 8, **fields: Any) -> ListedInstance:
    """An idle instance; those with lower numbers have had no check for longer."""
    at = NOW + timedelta(seconds=number)
    return ListedInstance(f"i-{number:03}", at, gpus=gpus, gpus_free=gpus, **fields)


def under_check(number: int, gpus: int = 8) -> ListedInstance:
    """An instance under an idle check."""
    run = CheckRun(f"check/i-{number:03}/1", idle=IdleCheck())
    return replace(idle(number, gpus), status=InstanceStatus.CHECKING, check=run, gpus_free=0)


def entry(**fields: Any) -> Entry:
    """A job in the queue."""
    given = {"waits": True, "asked": Priority.NORMAL, "group": "", "nodes": 1, "gpus": 8, **fields}
    return Entry("sft-1", 1, 1, "ada", queued_at=NOW, placed_at=NOW, **given)


FOR_HOURS = timedelta(hours=3)


def narrow(**fields: Any) -> Entry:
    """An elastic job that runs on fewer instances than it may have."""
    usual = {"waits": False, "works": True, "status": "RUNNING", "narrow": True, "nodes_min": 1, "nodes": 2}
    return entry(**{**usual, "running_at": NOW, **fields})


def chosen(
    fleet: list[ListedInstance],
    *entries: Entry,
    policy: RecoveryPolicy = POLICY,
    due: list[ListedInstance] | None = None,
) -> list[str]:
    """The ids of the instances whose check begins."""
    ready = [one for one in fleet if one.check is None]
    return [one.instance_id for one in chosen_for_check(fleet, ready, entries, policy, NOW)]


def test_a_share_of_the_idle_instances_is_checked_the_longest_unchecked_first() -> None:
    """Two of ten, none while two are checked, and one where a share would be none."""
    assert chosen([idle(number) for number in range(10)]) == ["i-000", "i-001"]
    assert chosen([*(idle(number) for number in range(8)), under_check(8), under_check(9)]) == []
    assert chosen([idle(number) for number in range(3)]) == ["i-000"]


def test_one_instance_of_each_size_stays_without_a_check() -> None:
    """But a single idle instance is checked: it is the spare of the next recovery."""
    whole = replace(POLICY, idle_check_percent=100)
    assert chosen([idle(0), idle(1), idle(2)], policy=whole) == ["i-000", "i-001"]
    assert chosen([idle(0), under_check(1)], policy=whole) == []
    assert chosen([idle(0), idle(1, 4)], policy=whole) == ["i-000", "i-001"]
    assert chosen([idle(0), idle(1, group="b"), idle(2, group="b")], policy=whole) == ["i-000", "i-001"]


@pytest.mark.parametrize(
    ("waits", "blocks"),
    [
        (entry(), True),
        (entry(known_short="gpus"), True),
        (entry(known_short="turn"), True),
        (entry(recovering=True), True),
        (entry(waits=False, leaves=True), True),
        (entry(waits=False, status="DIAGNOSING"), True),
        (entry(waits=False, works=True, status="RUNNING"), False),
        (entry(waits=False, grows=True, status="SUSPENDING"), True),
        (entry(recovering=True, grows=True, known_short="quota"), True),
        (narrow(), True),
        (narrow(running_at=NOW - FOR_HOURS), False),
        (narrow(growths=POLICY.uncounted_relaunches_max), False),
        (entry(known_short="quota"), False),
        (entry(held=True), False),
        (entry(group="other"), False),
        (entry(gpus=16), False),
    ],
    ids=[
        *("new", "gpus", "turn", "recovering", "stopping", "diagnosing", "runs", "grows", "has grown"),
        *("narrow", "narrow for hours", "grew too often", "quota", "held", "group", "size"),
    ],
)
def test_no_check_begins_beside_a_job_that_waits_for_such_an_instance(waits: Entry, blocks: bool) -> None:
    """A job that could not start on the instance does not count."""
    assert chosen([idle(0), idle(1)], waits) == ([] if blocks else ["i-000"])


@pytest.mark.parametrize("on", [{"instances": ("i-000",)}, {"instances": ("i-007",), "spares": ("i-000",)}])
def test_no_check_begins_on_an_instance_that_is_placed_but_not_claimed(on: dict[str, Any]) -> None:
    """Neither does it count as the free instance of its size."""
    placed = entry(waits=False, status="SUBMITTING", **on)
    assert chosen([idle(0), idle(1, 4)], placed) == ["i-001"]
    assert chosen([idle(0), idle(1), idle(2)], placed, policy=replace(POLICY, idle_check_percent=100)) == ["i-001"]


@pytest.mark.parametrize("status", [JobStatus.SUBMITTING, JobStatus.CANCELED])
def test_no_check_begins_on_an_instance_that_is_placed_after_the_cycle_read_the_queue(
    store: Store, status: JobStatus
) -> None:
    """The claim follows the placement after seconds, and a check between the two would refuse the launch."""
    scene = Scene(store, IDS[:1], policy=POLICY)
    store.save_instance(instance(IDS[1], gpus_free=8, status_at=scene.now - FOR_HOURS))
    cycle = Cycle(scene.recovery)
    assert cycle.instances_in((InstanceStatus.AVAILABLE,), []) and cycle.queue_entries([])
    store.create_job(job(OTHER_JOB, status=status, attempt=1, instances=(IDS[1],)), "")
    start_idle_checks(cycle)
    begun = store.load_instance(IDS[1])
    assert begun is not None and (begun.status is InstanceStatus.CHECKING) == (status is JobStatus.CANCELED)


def test_a_cycle_starts_a_bounded_number_of_checks() -> None:
    """A fleet of a thousand idle instances takes no time from the other work of the reconciler."""
    assert len(chosen([idle(number) for number in range(1_000)])) == STARTS_MAX


def test_the_thresholds_are_validated() -> None:
    """A level that DCGM does not have, and a share above the whole, are refused."""
    assert policy_from({"idle_check_every_s": 0}).idle_check_every_s == 0
    for wrong in ({"idle_check_level": 5}, {"idle_check_level": 0}, {"idle_check_percent": 101}):
        with pytest.raises(PolicyInvalid, match="idle_check"):
            policy_from(wrong)
