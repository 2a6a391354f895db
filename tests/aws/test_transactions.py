"""What DynamoDB says to a transaction and to whoever meets one: overtaken is no error, everything else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.dynamodb import CONFLICTS_MAX
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.ports.errors import StaleRecord, TryAgainSoon

from tests.aws.records import JOB, A, claim, instance, job
from tests.aws.test_dynamo_calls import meddled


def canceled(*codes: str) -> Callable[[Any, dict[str, Any]], Any]:
    """A transaction of which each action was canceled for its reason, or for none."""

    def refuse(call: Any, request: dict[str, Any]) -> Any:
        reasons = [{"Code": code} for code in codes]
        error: Any = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
        raise ClientError(error, "TransactWriteItems")

    return refuse


def save_both(store: DynamoStore) -> Any:
    return store.save_instance(instance(), Fleet())


@pytest.mark.parametrize(
    "codes",
    [
        ("ConditionalCheckFailed", "None"),
        ("None", "ConditionalCheckFailed"),
        ("TransactionConflict", "None"),
        ("ConditionalCheckFailed", "TransactionConflict"),
    ],
)
def test_a_transaction_that_was_overtaken_is_stale(double_store: DynamoStore, codes: tuple[str, ...]) -> None:
    """Somebody else writes one of the two: read and decide again."""
    with pytest.raises(StaleRecord):
        save_both(meddled(double_store, "transact_write_items", canceled(*codes)))


@pytest.mark.parametrize(
    "codes", [("ThrottlingError", "None"), ("ProvisionedThroughputExceeded", "ConditionalCheckFailed")]
)
def test_a_transaction_that_was_throttled_is_told_apart(double_store: DynamoStore, codes: tuple[str, ...]) -> None:
    """Nobody overtook it, as far as anybody knows: the same may be tried again soon."""
    with pytest.raises(TryAgainSoon, match=codes[0]):
        save_both(meddled(double_store, "transact_write_items", canceled(*codes)))


@pytest.mark.parametrize(
    "codes",
    [("ValidationError", "None"), ("ItemCollectionSizeLimitExceeded", "None"), ("None", "None"), ()],
)
def test_a_transaction_that_failed_for_another_reason_is_raised(
    double_store: DynamoStore, codes: tuple[str, ...]
) -> None:
    """Deciding again would meet the same, and hide it."""
    with pytest.raises(ClientError, match="TransactionCanceled"):
        save_both(meddled(double_store, "transact_write_items", canceled(*codes)))


def test_a_transaction_is_one_call_of_two_writes(double_store: DynamoStore) -> None:
    """Without the brakes it is none: a transaction costs twice as much."""
    asked: list[list[str]] = []

    def note(call: Any, request: dict[str, Any]) -> Any:
        asked.append([action["Put"]["TableName"] for action in request["TransactItems"]])
        return call(**request)

    noting = meddled(double_store, "transact_write_items", note)
    first = save_both(noting)
    noting.save_instance(replace(first, reason="more"))
    noting.save_fleet(noting.load_fleet())
    assert asked == [[double_store.table.name] * 2]


def conflicts(times: int) -> tuple[list[int], Callable[[Any, dict[str, Any]], Any]]:
    """A transaction holds the item for so many calls; the calls that were made."""
    made: list[int] = []

    def hold(call: Any, request: dict[str, Any]) -> Any:
        made.append(len(made))
        if len(made) <= times:
            raise ClientError({"Error": {"Code": "TransactionConflictException"}}, "any")
        return call(**request)

    return made, hold


def test_a_claim_that_meets_a_transaction_is_made_all_the_same(double_store: DynamoStore) -> None:
    """The conflict says nothing about the claim's own condition."""
    double_store.save_instance(instance())
    made, hold = conflicts(2)
    assert meddled(double_store, "update_item", hold).claim_instance(A, JOB, claim(), 0)
    assert len(made) == 3


def test_a_write_that_meets_a_transaction_is_no_refusal(double_store: DynamoStore) -> None:
    """A new job must not be told that its id is taken."""
    _, hold = conflicts(1)
    assert meddled(double_store, "put_item", hold).create_job(job(), "")


def test_no_other_answer_is_asked_for_again(double_store: DynamoStore) -> None:
    """A failed condition is an answer, and each failed write costs as much as one that succeeds."""
    made, count = conflicts(0)
    assert not meddled(double_store, "update_item", count).claim_instance(A, JOB, claim(), 0)
    assert len(made) == 1


def test_a_conflict_that_does_not_end_is_raised(double_store: DynamoStore) -> None:
    """After a few calls: the event comes again later."""
    double_store.save_instance(instance())
    made, hold = conflicts(10**6)
    with pytest.raises(TryAgainSoon, match="a transaction held the item"):
        meddled(double_store, "update_item", hold).claim_instance(A, JOB, claim(), 0)
    assert len(made) == CONFLICTS_MAX
