"""DynamoDB under contention: conditions that fail, items that transactions hold, answers that are lost."""

from __future__ import annotations

import random

import pytest

from tests.platform.cloud import Answer, Carry, Request
from tests.platform.faults import At, Sometimes, lose_answer, of, refuse
from tests.platform.incident import Heal, Incident, assert_same_end
from tests.platform.platform_world import PlatformWorld
from tests.tiers import seeds


class Overtaken:
    """Somebody else writes a record, in between, before a share of the product's own writes of it."""

    def __init__(self, world: PlatformWorld, seed: int, share: float) -> None:
        self.client, self.share = world.cloud.quiet_client("dynamodb"), share
        self.random, self.met = random.Random(f"overtaken {seed}"), 0

    def meets(self, request: Request, carry_out: Carry) -> Answer:
        """A write that settles nothing: it only raises the revision."""
        conditional = request.operation == "PutItem" and "revision" in request.asked["ConditionExpression"]
        if conditional and self.random.random() < self.share:
            self.met += 1
            item, table = request.asked["Item"], request.asked["TableName"]
            key = "job_id_rank" if "job_id_rank" in item else "container_inst_id"
            self.client.update_item(
                TableName=table,
                Key={key: item[key]},
                UpdateExpression="SET revision = revision + :one",
                ConditionExpression="attribute_exists(revision)",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )
        return carry_out()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10, default=1))
def test_writers_who_are_overtaken_half_the_time_decide_again(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """A refused write is neither lost nor acted upon."""
    made: list[Overtaken] = []

    def prepare(world: PlatformWorld) -> None:
        made.append(Overtaken(world, seed, 0.5))
        world.cloud.fault = made[0]

    assert_same_end(heal(prepare=prepare), undisturbed)
    assert made[0].met > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10, default=1))
def test_items_that_transactions_hold_change_no_end(heal: Heal, undisturbed: Incident, seed: int) -> None:
    """Every other write meets a conflict; some meet it until they give up."""
    fault = Sometimes(seed, 0.5, refuse("TransactionConflictException"), only=of("PutItem", "UpdateItem"))
    assert_same_end(heal(fault), undisturbed)
    assert len(fault.met) > 30


CANCELED = {
    "conflict": refuse("TransactionCanceledException", CancellationReasons=[{"Code": "TransactionConflict"}]),
    "throttling": refuse("TransactionCanceledException", CancellationReasons=[{"Code": "ThrottlingError"}]),
    "in-progress": refuse("TransactionInProgressException"),
}


SLOW = [pytest.param(why, marks=pytest.mark.slow) for why in ("conflict", "in-progress")]


@pytest.mark.slow
@pytest.mark.parametrize("why", ["throttling", *SLOW])
def test_a_transaction_that_is_canceled_changes_no_end(heal: Heal, undisturbed: Incident, why: str) -> None:
    """For whatever reason: the instance joins the fleet's budget a little later."""
    fault = At(0, CANCELED[why], only=of("TransactWriteItems"))
    assert_same_end(heal(fault), undisturbed)
    assert fault.met


@pytest.mark.slow
@pytest.mark.parametrize("tries", [1, 99])
def test_a_job_whose_creation_was_not_answered_is_one_job(heal: Heal, undisturbed: Incident, tries: int) -> None:
    """Heard and not answered, it is known again: it does not go by another name, and runs once."""
    assert_same_end(heal(At(0, lose_answer, tries=tries)), undisturbed)
