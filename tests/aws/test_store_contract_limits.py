"""The store in memory refuses the same writes as the store on DynamoDB, and no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.rank_parts import PART_RANKS
from gpu_recovery.core.events import Checked
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Claim
from gpu_recovery.ports.store import Store

from simulator.memory_store.store import MemoryStore
from tests.aws.records import JOB, A, instance, job, later, pending, plan


@pytest.fixture(params=["memory", "double"])
def store(request: pytest.FixtureRequest, new_double: Callable[[], Store]) -> Store:
    """Each store that knows the limits, empty. moto and MiniStack know few of them."""
    return MemoryStore() if request.param == "memory" else new_double()


Tries = Callable[[Store, int], object]
"""A write whose item has a size in bytes, or a number of members, and that needs an empty store."""


def _job(store: Store, size: int) -> object:
    return store.create_job(job(reason="x" * size), "")


def _saved_job(store: Store, size: int) -> object:
    store.create_job(job(), "")
    record = store.load_job(JOB)
    assert record is not None
    return store.save_job(replace(record, reason="x" * size))


def _commands(store: Store, number: int) -> object:
    return store.create_job(job(commands=tuple(pending(JOB, n) for n in range(1, number + 1))), "")


def _instance(store: Store, size: int) -> object:
    return store.save_instance(instance(reason="x" * size))


def _claim(store: Store, size: int) -> object:
    """The claim itself makes the item too large."""
    store.save_instance(instance(reason="x" * (size - 200)))
    return store.claim_instance(A, "j" * 200, Claim(1, 8), None)


def _plan(store: Store, size: int) -> object:
    return store.begin_attempt(replace(plan(world=3), instances=("i" * (size - 9_000), "i" * 6_000, "i" * 3_000)))


def _large_plan(store: Store, size: int) -> object:
    """The head has 400 KB at most, and so has the other part."""
    names = ("i" * (size - 6_000), *["i" * 100] * (PART_RANKS - 1), "i" * 390_000)
    return store.begin_attempt(replace(plan(world=PART_RANKS + 1), instances=names))


def _checks(store: Store, size: int) -> object:
    """The eleventh result makes the progress too large."""
    store.begin_attempt(plan(world=20))
    for rank in range(10):
        store.add_running(JOB, 1, rank)
        store.add_checked(JOB, 1, rank, Checked(CheckOutcome.INCONCLUSIVE, "x" * 30_000))
    return store.add_checked(JOB, 1, 10, Checked(CheckOutcome.INCONCLUSIVE, "x" * size))


WRITES: dict[str, tuple[Tries, int, int]] = {
    "a new job": (_job, 407_000, 409_600),
    "a job": (_saved_job, 407_000, 409_600),
    "commands": (_commands, 2_000, 2_200),
    "an instance": (_instance, 203_000, 204_800),  # its reason is also in the text that lists read
    "a claim": (_claim, 203_000, 204_800),
    "a plan": (_plan, 400_000, 409_600),
    "a plan in parts": (_large_plan, 400_000, 409_600),
}
"""Each write, a size that fits, and a size that does not."""


def _fits(store: Store, write: Tries, size: int) -> bool:
    try:
        write(store, size)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "ValidationException"
        return False
    return True


def _largest(new: Callable[[], Store], write: Tries, fits: int, refused: int) -> int:
    """Return the largest size that a new store takes."""
    assert _fits(new(), write, fits) and not _fits(new(), write, refused)
    while refused - fits > 1:
        middle = (fits + refused) // 2
        fits, refused = (middle, refused) if _fits(new(), write, middle) else (fits, middle)
    return fits


@pytest.mark.parametrize("name", WRITES)
def test_the_largest_item_of_both_stores_is_the_same_to_the_byte(name: str, new_double: Callable[[], Store]) -> None:
    """400 KB with names, and the index entries that the store writes into the item."""
    write, fits, refused = WRITES[name]
    largest = _largest(MemoryStore, write, fits, refused)
    assert _fits(new_double(), write, largest) and not _fits(new_double(), write, largest + 1)


def test_the_largest_progress_item_of_both_stores_is_the_same_to_the_byte(new_double: Callable[[], Store]) -> None:
    """The store in memory measures it only when it may be large, and then to the byte."""
    largest = _largest(MemoryStore, _checks, 108_000, 110_000)
    assert _fits(new_double(), _checks, largest) and not _fits(new_double(), _checks, largest + 1)


@pytest.mark.parametrize("number", [40, 417, 1_000])
def test_any_number_of_commands_is_settled(store: Store, number: int) -> None:
    """One write that removes 417 commands has an expression of more than 4 KB. Several writes remove them."""
    record = _record_with_commands(store, number)
    done = [command.command_id for command in record.commands[: number // 2]]
    deferred = {command.command_id: later(9) for command in record.commands[number // 2 :]}
    store.remove_finished_job_commands(record, done, deferred)
    after = store.load_job(JOB)
    assert after is not None
    assert [(one.command_id, one.refusals, one.acting_until) for one in after.commands] == [
        (command_id, 1, later(9)) for command_id in deferred
    ]
    assert list(store.due_jobs(later(9))) == [JOB] and not list(store.due_jobs(later(8)))


def test_any_number_of_commands_is_settled_after_another_writer(store: Store) -> None:
    """The writes that do not compare the revision are as bounded."""
    record = _record_with_commands(store, 130)
    store.save_job(record)
    done = [command.command_id for command in record.commands[:120]]
    store.remove_finished_job_commands(record, done, {f"{JOB}/1/121": later(9)})
    after = store.load_job(JOB)
    assert after is not None and [one.refusals for one in after.commands] == [1, *[0] * 9]


KEYS: dict[str, Callable[[Store], object]] = {
    "a job": lambda store: store.load_job(""),
    "an instance": lambda store: store.load_instance(""),
    "instances": lambda store: store.load_instances([A, ""]),
    "a registration": lambda store: store.instance_of(""),
    "a claim": lambda store: store.claim_instance("", JOB, Claim(1, 8), None),
    "a new job": lambda store: store.create_job(job(""), ""),
    "a new instance": lambda store: store.save_instance(instance("")),
    "a long job id": lambda store: store.create_job(job("j" * 2_049), ""),
    "a long attempt": lambda store: store.begin_attempt(plan("j" * 2_044)),
    "a long mark": lambda store: store.mark_notified("i" * 2_048, later(9)),
}


@pytest.mark.parametrize("name", KEYS)
def test_both_stores_refuse_the_same_keys(store: Store, name: str) -> None:
    """A key is neither empty nor longer than 2,048 bytes, with the suffixes that the store adds."""
    with pytest.raises(ClientError, match="ValidationException"):
        KEYS[name](store)


def test_both_stores_refuse_a_number_of_more_than_38_digits(store: Store) -> None:
    """boto3 itself refuses to round it."""
    with pytest.raises(ArithmeticError):
        store.create_job(job(ran_s=10**39 + 1), "")


def test_more_instances_than_a_batch_holds_are_read(store: Store) -> None:
    """A batch holds 100 keys."""
    ids = [f"i-{n:017x}" for n in range(250)]
    for instance_id in ids:
        store.save_instance(instance(instance_id))
    assert list(store.load_instances(ids)) == ids


def _record_with_commands(store: Store, number: int) -> Any:
    store.create_job(job(commands=tuple(pending(JOB, n) for n in range(1, number + 1))), "")
    return store.load_job(JOB)
