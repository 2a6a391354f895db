"""What every store promises about instances and the fleet limits: who may write and claim, and what is found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands
from gpu_recovery.core.fleet import Fleet, Pause
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import CheckRefusal, CheckRun, Claim, EcsStatus, Instance, InstanceStatus, Reboot
from gpu_recovery.core.missing_permission import MissingPermission
from gpu_recovery.ports.errors import StaleRecord
from gpu_recovery.ports.store import Store
from gpu_recovery.ports.values import RefusedCheck, StartedCheck

from tests.aws.records import JOB, NOW, OTHER_JOB, A, B, claim, instance, later, pending


def kept(store: Store, record: Instance) -> Instance:
    """The record as the store has it after its first save."""
    saved = store.save_instance(replace(record, revision=0))
    assert store.load_instance(record.instance_id) == saved
    return saved


def read(store: Store, instance_id: str = A) -> Instance:
    """The record, which must be there."""
    found = store.load_instance(instance_id)
    assert found is not None
    return found


def test_an_instance_is_read_back_whole(store: Store) -> None:
    """Every field survives."""
    record = instance(
        status=InstanceStatus.REBOOTING,
        claims={JOB: claim()},
        reserved_for=OTHER_JOB,
        reboots=(NOW, later(1)),
        check=CheckRun("check/i-0a/1", JOB, 1),
        reboot=Reboot(NOW, "boot-1", JOB, 1, deadline_at=later(9)),
        boot_id="boot-1",
        booted_at=later(-99),
        commands=(pending(A, 1, commands.RebootInstance(1)),),
        epoch=1,
    )
    assert kept(store, record) == replace(record, revision=1)


def test_a_new_record_does_not_replace_one_that_exists(store: Store) -> None:
    """Revision 0 says: it must not exist."""
    kept(store, instance())
    with pytest.raises(StaleRecord):
        store.save_instance(instance(reason="again"))


def test_a_stale_writer_of_an_instance_is_refused(store: Store) -> None:
    """As for jobs."""
    record = kept(store, instance())
    store.save_instance(replace(record, reason="first"))
    with pytest.raises(StaleRecord):
        store.save_instance(replace(record, reason="second"))
    assert read(store).reason == "first"


def test_an_instance_that_is_not_there_cannot_be_saved_as_if_read(store: Store) -> None:
    """A revision that nobody wrote is stale."""
    with pytest.raises(StaleRecord):
        store.save_instance(instance(revision=2))


def test_settling_an_instance_takes_out_the_done_command_only(store: Store) -> None:
    """Whoever wrote it since keeps his change; a deferred command counts its refusal."""
    record = kept(store, instance(commands=(pending(A, 1), pending(A, 2, commands.RunCheck("check/i-0a/1")))))
    store.save_instance(replace(record, agent_connected=False))
    store.remove_finished_instance_commands(record, (f"{A}/1/1",), {f"{A}/1/2": later(10)})
    after = read(store)
    assert not after.agent_connected
    assert [(c.command_id, c.refusals, c.acting_until) for c in after.commands] == [(f"{A}/1/2", 1, later(10))]


@pytest.mark.parametrize("written_since", [False, True])
def test_settling_an_instance_records_the_task_of_its_check(store: Store, written_since: bool) -> None:
    """In the same write, also if somebody wrote the record since."""
    record = kept(store, instance(check=CheckRun("check/i-0a/1"), checks=1, commands=(pending(A, 1), pending(A, 2))))
    if written_since:
        store.save_instance(replace(record, agent_connected=False))
    started = StartedCheck("check/i-0a/1", "task-1")
    store.remove_finished_instance_commands(record, (f"{A}/1/1",), {}, started)
    after = read(store)
    assert after.check == CheckRun("check/i-0a/1", task_id="task-1") and len(after.commands) == 1
    assert after.agent_connected is not written_since
    with pytest.raises(StaleRecord):
        store.save_instance(record)


@pytest.mark.parametrize("lacks", [None, MissingPermission("iam:PassRole", "arn:aws:iam::123456789012:role/check")])
@pytest.mark.parametrize("written_since", [False, True])
def test_deferring_the_start_of_a_check_records_its_refusal(
    store: Store, written_since: bool, lacks: MissingPermission | None
) -> None:
    """In the same write, also if another function wrote the record since."""
    order = commands.RunCheck("check/i-0a/1")
    record = kept(store, instance(check=CheckRun("check/i-0a/1"), checks=1, commands=(pending(A, 1, order),)))
    if written_since:
        store.save_instance(replace(record, agent_connected=False))
    refusal = CheckRefusal("AccessDenied", lacks)
    deferred = {f"{A}/1/1": later(10)}
    store.remove_finished_instance_commands(record, (), deferred, RefusedCheck("check/i-0a/1", refusal))
    after = read(store)
    assert after.check == CheckRun("check/i-0a/1", refusal=refusal)
    assert [(each.refusals, each.acting_until) for each in after.commands] == [(1, later(10))]
    assert after.agent_connected is not written_since


@pytest.mark.parametrize("now", [None, CheckRun("check/i-0a/2")])
def test_the_task_of_a_check_that_is_over_is_recorded_for_no_other(store: Store, now: CheckRun | None) -> None:
    """The check has ended, or another has taken its place, since the command began."""
    record = kept(store, instance(check=CheckRun("check/i-0a/1"), checks=1, commands=(pending(A, 1),)))
    store.save_instance(replace(record, check=now))
    store.remove_finished_instance_commands(record, (f"{A}/1/1",), {}, StartedCheck("check/i-0a/1", "task-1"))
    assert read(store).check == now and read(store).commands == ()


def test_due_instances_are_exactly_those_whose_time_has_come(store: Store) -> None:
    """Also after a settle, which moves them to their next time."""
    first = kept(store, instance(A, deadline_at=later(50), commands=(pending(A, 1, until=5),)))
    kept(store, instance(B, look_at=later(7)))
    assert set(store.due_instances(later(4))) == set()
    assert set(store.due_instances(later(5))) == {A}
    store.remove_finished_instance_commands(first, (f"{A}/1/1",), {})
    assert set(store.due_instances(later(7))) == {B}
    assert set(store.due_instances(later(50))) == {A, B}


# -- the fleet limits ------------------------------------------------------------------------------------------------


BRAKES = Fleet(
    gpu_instances=40,
    repairing=frozenset({A, B}),
    repairs=(NOW, later(1)),
    blamed={A: NOW, B: later(2)},
    opened_at=later(3),
    opened_because="2 of 40 instances looked bad",
    probe=A,
    pause=Pause("ana", "a visit", later(4)),
)


def test_the_brakes_are_blank_before_anybody_wrote_them(store: Store) -> None:
    """A new deployment repairs nothing yet and is not paused."""
    assert store.load_fleet() == Fleet()


def test_the_brakes_are_read_back_whole(store: Store) -> None:
    """Every field survives, and each write has its revision."""
    assert store.save_fleet(BRAKES) == store.load_fleet() == replace(BRAKES, revision=1)
    released = store.save_fleet(replace(store.load_fleet(), pause=None, opened_at=None, repairing=frozenset()))
    assert (
        store.load_fleet() == released == replace(BRAKES, revision=2, pause=None, opened_at=None, repairing=frozenset())
    )


@pytest.mark.parametrize("read", [0, 2])
def test_a_stale_writer_of_the_brakes_is_refused(store: Store, read: int) -> None:
    """Two reconcilers that read the same budget do not both spend it."""
    store.save_fleet(BRAKES)
    with pytest.raises(StaleRecord):
        store.save_fleet(Fleet(revision=read, gpu_instances=1))
    assert store.load_fleet().gpu_instances == 40


def test_brakes_that_nobody_wrote_cannot_be_written_as_if_read(store: Store) -> None:
    """A revision that never was is stale."""
    with pytest.raises(StaleRecord):
        store.save_fleet(Fleet(revision=1))
    assert store.load_fleet() == Fleet()


def test_a_repair_and_its_place_in_the_budget_are_written_together(store: Store) -> None:
    """The instance, new or known, and the brakes: each with its next revision."""
    first = store.save_instance(instance(status=InstanceStatus.REBOOTING), Fleet(repairing=frozenset({A})))
    assert (first.revision, read(store), store.load_fleet()) == (
        1,
        first,
        Fleet(revision=1, repairing=frozenset({A})),
    )
    second = store.save_instance(replace(first, reason="healed"), replace(store.load_fleet(), repairing=frozenset()))
    assert (second.revision, read(store), store.load_fleet()) == (2, second, Fleet(revision=2))


def test_whoever_read_older_brakes_begins_no_repair(store: Store) -> None:
    """Somebody else took the last place meanwhile: neither record is written."""
    record = kept(store, instance())
    store.save_fleet(Fleet())
    with pytest.raises(StaleRecord):
        store.save_instance(replace(record, status=InstanceStatus.REBOOTING), Fleet(repairing=frozenset({A})))
    assert (read(store), store.load_fleet()) == (record, Fleet(revision=1))


def test_whoever_read_an_older_instance_takes_no_place_in_the_budget(store: Store) -> None:
    """Nothing would ever give it back."""
    record = kept(store, instance())
    store.claim_instance(A, JOB, claim(), 0)
    with pytest.raises(StaleRecord):
        store.save_instance(replace(record, status=InstanceStatus.REBOOTING), Fleet(repairing=frozenset({A})))
    assert (read(store).status, store.load_fleet()) == (InstanceStatus.AVAILABLE, Fleet())


def test_an_instance_that_exists_is_not_made_anew_with_the_brakes(store: Store) -> None:
    """Revision 0 says: it must not exist."""
    kept(store, instance())
    with pytest.raises(StaleRecord):
        store.save_instance(instance(reason="again"), Fleet())
    assert (read(store).reason, store.load_fleet()) == ("", Fleet())


def test_a_repair_moves_the_time_at_which_the_instance_is_due(store: Store) -> None:
    """As any other write of it does."""
    record = kept(store, instance(look_at=later(5)))
    store.save_instance(replace(record, look_at=None, deadline_at=later(9)), Fleet())
    assert set(store.due_instances(later(8))) == set()
    assert set(store.due_instances(later(9))) == {A}


def test_the_brakes_are_no_instance(store: Store) -> None:
    """They are in the instances' table and in none of their lists."""
    store.save_fleet(BRAKES)
    assert store.instances_in(list(InstanceStatus)) == ()
    assert set(store.due_instances(later(10**9))) == set()
    assert store.load_instance("fleet") is None
    assert store.instance_of("fleet") is None


# -- claims ------------------------------------------------------------------------------------------------------------


def test_a_free_instance_can_be_claimed_once(store: Store) -> None:
    """The same claim again is granted again; another job's is refused."""
    kept(store, instance(epoch=2))
    assert store.claim_instance(A, JOB, claim(), 2)
    assert store.claim_instance(A, JOB, claim(), 2)
    assert not store.claim_instance(A, OTHER_JOB, claim(), 2)
    assert read(store).claims == {JOB: claim()}


def test_another_attempt_of_the_same_job_is_another_claim(store: Store) -> None:
    """Whose end was not confirmed still holds the GPUs, whoever asks."""
    kept(store, instance(claims={JOB: claim(attempt=1)}))
    assert not store.claim_instance(A, JOB, claim(attempt=2), 0)
    assert read(store).claims == {JOB: claim(attempt=1)}


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 3},
        {"claims": {OTHER_JOB: claim()}},
        {"reserved_for": OTHER_JOB},
        {"ecs_status": EcsStatus.DRAINING},
        {"ecs_status": "INACTIVE"},
        *({"status": status} for status in InstanceStatus if status is not InstanceStatus.AVAILABLE),
    ],
)
def test_an_instance_that_is_not_free_cannot_be_claimed(store: Store, changes: dict[str, object]) -> None:
    """Another epoch, claim, reservation or status, or one that ECS does not place on."""
    before = kept(store, instance(**{"epoch": 2} | changes))
    assert not store.claim_instance(A, JOB, claim(), 2)
    assert read(store) == before


@pytest.mark.parametrize("epoch", [0, None])
def test_a_claim_that_is_there_is_not_written_again(store: Store, epoch: int | None) -> None:
    """A decision about the instance that was under way is not stale because of it."""
    kept(store, instance())
    assert store.claim_instance(A, JOB, claim(), epoch)
    before = read(store)
    assert store.claim_instance(A, JOB, claim(), epoch)
    assert read(store) == before
    store.save_instance(before)


def test_an_unknown_instance_cannot_be_claimed(store: Store) -> None:
    """And the attempt makes no record."""
    assert not store.claim_instance(A, JOB, claim(), 0)
    assert not store.claim_instance(A, JOB, claim(), None)
    assert store.load_instance(A) is None


def test_a_reservation_for_the_job_becomes_its_claim(store: Store) -> None:
    """What was kept for it is its own now."""
    kept(store, instance(reserved_for=JOB))
    assert store.claim_instance(A, JOB, claim(), 0)
    assert (read(store).reserved_for, read(store).claims) == ("", {JOB: claim()})


def test_a_persons_task_is_claimed_without_asking(store: Store) -> None:
    """It holds the GPUs already, whatever we think of the instance."""
    kept(store, instance(status=InstanceStatus.CHECKING, epoch=4, claims={OTHER_JOB: claim()}))
    assert store.claim_instance(A, JOB, claim(), None)
    assert read(store).claims == {JOB: claim(), OTHER_JOB: claim()}


def test_a_claim_refuses_whoever_decided_on_the_free_instance(store: Store) -> None:
    """A decision taken on the record without the claim may not overwrite it."""
    record = kept(store, instance())
    store.claim_instance(A, JOB, claim(), 0)
    with pytest.raises(StaleRecord):
        store.save_instance(replace(record, status=InstanceStatus.CHECKING))
    assert read(store).claims == {JOB: claim()}


def test_releasing_takes_off_only_what_is_the_jobs(store: Store) -> None:
    """Its claim and its reservation; another's stay."""
    kept(store, instance(A, claims={JOB: claim(), OTHER_JOB: claim()}, reserved_for=OTHER_JOB))
    kept(store, instance(B, claims={OTHER_JOB: claim()}, reserved_for=JOB))
    store.release_instance(A, JOB, False)
    store.release_instance(B, JOB, False)
    assert (read(store, A).claims, read(store, A).reserved_for) == ({OTHER_JOB: claim()}, OTHER_JOB)
    assert (read(store, B).claims, read(store, B).reserved_for) == ({OTHER_JOB: claim()}, "")


def test_a_claim_is_kept_where_the_end_is_not_confirmed(store: Store) -> None:
    """The reservation goes, the claim stays."""
    kept(store, instance(claims={JOB: claim()}, reserved_for=JOB))
    store.release_instance(A, JOB, True)
    assert (read(store).claims, read(store).reserved_for) == ({JOB: claim()}, "")


@pytest.mark.parametrize(("attempt", "left"), [(1, {JOB: claim(2)}), (2, {}), (3, {}), (None, {})])
def test_a_late_release_leaves_a_later_attempt_its_claim(store: Store, attempt: int | None, left: object) -> None:
    """An order of attempt 1 that is carried out late takes nothing from attempt 2 but the reservation."""
    kept(store, instance(claims={JOB: claim(attempt=2)}, reserved_for=JOB))
    store.release_instance(A, JOB, False, attempt)
    assert (read(store).claims, read(store).reserved_for) == (left, "")


def test_releasing_twice_or_nothing_is_no_error(store: Store) -> None:
    """Neither moves the record."""
    kept(store, instance(claims={JOB: claim()}))
    store.release_instance(A, JOB, False)
    after = read(store)
    store.release_instance(A, JOB, False)
    store.release_instance(B, JOB, False)
    assert read(store) == after
    assert store.load_instance(B) is None


def test_what_a_job_leaves_out_is_remembered_with_the_write_that_takes_its_claim(store: Store) -> None:
    """Beside what was remembered before; once, however often it is given back, and not where the claim stays."""
    known = signal_at(NOW, LemonSignal.OUT)
    kept(store, instance(claims={JOB: claim()}, past=(known,), reserved_for=JOB))
    store.release_instance(A, JOB, True, 1, later(5))
    assert read(store).past == (known,)
    for _ in range(2):
        store.release_instance(A, JOB, False, 1, later(5))
    assert read(store).past == (known, signal_at(later(5), LemonSignal.LEFT_OUT))
    assert read(store).claims == {}


def test_a_later_attempts_machine_is_not_left_out_by_an_earlier_one(store: Store) -> None:
    """The order came late."""
    kept(store, instance(claims={JOB: claim(attempt=2)}))
    store.release_instance(A, JOB, False, 1, later(5))
    assert read(store).past == ()


def test_what_is_remembered_of_an_instance_comes_back_as_it_was_kept(store: Store) -> None:
    """To the second, which is what a score is made of."""
    past = tuple(signal_at(later(n), kind) for n, kind in enumerate(LemonSignal))
    kept(store, instance(past=past))
    assert read(store).past == past


def test_a_release_refuses_whoever_decided_on_the_claimed_instance(store: Store) -> None:
    """A decision that still holds the claim may not bring it back."""
    record = kept(store, instance(claims={JOB: claim()}))
    store.release_instance(A, JOB, False)
    with pytest.raises(StaleRecord):
        store.save_instance(replace(record, reason="would bring the claim back"))
    assert read(store).claims == {}


# -- finding -----------------------------------------------------------------------------------------------------------


def test_instances_are_found_by_status(store: Store) -> None:
    """Each once, by id; aliases are not instances, and what has left is in no list."""
    for n, status in enumerate([InstanceStatus.AVAILABLE, InstanceStatus.GONE, InstanceStatus.AVAILABLE]):
        record = kept(store, instance(f"i-{n}", status=status))
        store.remember_registration(record)
    found = store.instances_in([InstanceStatus.AVAILABLE, InstanceStatus.CHECKING])
    assert [one.instance_id for one in found] == ["i-0", "i-2"]
    assert [one.instance_id for one in store.instances_in(list(InstanceStatus))] == ["i-0", "i-2"]


def test_an_instance_is_found_by_its_registration(store: Store) -> None:
    """By each container instance id it ever had, and the alias is not taken for an instance."""
    record = kept(store, instance(container_instance_id="ci-1"))
    store.remember_registration(record)
    store.remember_registration(record)
    store.remember_registration(replace(record, container_instance_id="ci-2"))
    assert store.instance_of("ci-1") == store.instance_of("ci-2") == A
    assert store.instance_of("ci-3") is None
    assert store.load_instance("ci-1") is None
    assert read(store) == record


@pytest.mark.parametrize("gpus", [4, 8])
def test_the_claim_of_a_held_rank_becomes_that_of_the_next_attempt(store: Store, gpus: int) -> None:
    """Without a moment at which the GPUs are free: as many stay claimed as before."""
    kept(store, instance(epoch=1))
    assert store.claim_instance(A, JOB, Claim(1, gpus, 0), 1)
    assert store.claim_instance(A, JOB, Claim(2, gpus, 3), 1, 1)
    assert store.claim_instance(A, JOB, Claim(2, gpus, 3), 1, 1)
    assert read(store).claims == {JOB: Claim(2, gpus, 3)}
    assert store.claim_instance(A, OTHER_JOB, Claim(1, 8 - gpus, 0), 1) or gpus == 8
    store.release_instance(A, JOB, False, 1)
    assert read(store).claims[JOB] == Claim(2, gpus, 3)
    store.release_instance(A, OTHER_JOB, False)
    store.release_instance(A, JOB, False, 2)
    assert store.claim_instance(A, OTHER_JOB, Claim(1, 8, 0), 1)


@pytest.mark.parametrize(
    ("wanted", "epoch", "replaces", "changes"),
    [
        (Claim(3, 8), 0, 2, {}),  # the claim is of another attempt
        (Claim(2, 4), 0, 1, {}),  # of another size
        (Claim(2, 8), 1, 1, {}),
        (Claim(2, 8), 0, 0, {}),
        (Claim(2, 8), 0, 1, {"status": InstanceStatus.REBOOTING}),
        (Claim(2, 8), 0, 1, {"reserved_for": OTHER_JOB}),
    ],
)
def test_a_claim_is_replaced_only_where_it_could_be_added(
    store: Store, wanted: Claim, epoch: int, replaces: int, changes: dict[str, Any]
) -> None:
    """The instance may have changed since the placement, and the claim may be another."""
    kept(store, instance(claims={JOB: Claim(1, 8)}, **changes))
    assert not store.claim_instance(A, JOB, wanted, epoch, replaces)
    assert read(store).claims == {JOB: Claim(1, 8)}


def test_a_claim_that_is_gone_is_added_as_a_new_one(store: Store) -> None:
    """The held task has ended, and its claim was removed."""
    kept(store, instance())
    assert store.claim_instance(A, JOB, claim(attempt=2), 0, 1)
    assert read(store).claims == {JOB: claim(attempt=2)}
