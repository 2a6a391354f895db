"""Limits of DynamoDB for the store in memory: it refuses each write that the tables would refuse.

An item is measured as `aws` writes it and by the same functions as the DynamoDB double. A record is measured only if it
is new or may be large: to encode every record would take longer than the rest of a run. A transaction of the store has
at most four items of at most 400 KB, or the items of a gang, one for each 64 ranks. Every batch is cut by the store. So
no call reaches their limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.instance_store import instance_item
from gpu_recovery.aws.item_codec import encode, item_of
from gpu_recovery.aws.job_store import job_item
from gpu_recovery.aws.plan_items import items_of, plan_key
from gpu_recovery.aws.progress_items import progress_key
from gpu_recovery.aws.rank_parts import part_ranks, parts_in
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.events import Checked
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job

from simulator.dynamodb.attribute_values import check_item, size_of
from simulator.dynamodb.conditions import parse_condition
from simulator.dynamodb.errors import DynamoError, invalid, invalid_parameter
from simulator.dynamodb.limits import ITEM_BYTES_MAX, KB, PARTITION_KEY_BYTES_MAX
from simulator.dynamodb.updates import parse_update

MEMBERS_MAX, TEXT_MAX = 64, 2_000
"""A record with at most so many members of each collection and characters of its texts is far below 400 KB.

Its largest parts are then 64 commands and 60 history entries of at most 2 KB each.
"""
NAMED_MAX = 4_000
"""Ids of instances that a job record may name, in its fields and in each of its commands, without being measured.

They have at most 120 KB, beside the history and the commands above.
"""
RANK_BYTES_MAX, OTHER_BYTES_MAX = 8, 8 * KB
"""Bytes of a rank in a progress besides its check result, and of everything else in a progress, at most."""
KEY_SURELY_FITS = 256
"""Characters of a key that has certainly fewer than 2,048 bytes, with every suffix that the store adds."""


def check_key(name: str) -> None:
    """Refuse an empty key, in reads and in writes, and a key of more than 2,048 bytes.

    Raises:
        ClientError: DynamoDB would refuse the key.
    """
    if name and len(name) <= KEY_SURELY_FITS:
        return
    if not name:
        raise _refusal(
            invalid(
                "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an "
                "empty string value."
            )
        )
    if len(name.encode()) > PARTITION_KEY_BYTES_MAX:
        raise _refusal(invalid_parameter(f"Size of hashkey has exceeded the maximum size limit of {len(name)} bytes"))


def check_job(job: Job, *, new: bool) -> None:
    """Refuse a job record that its table cannot hold.

    Raises:
        ClientError: DynamoDB would refuse the item.
    """
    if new:
        check_key(job.job_id)
    named = len(job.instances) * (3 + len(job.commands))
    if new or named > NAMED_MAX or _may_be_large(len(job.commands), len(job.heard), text=job.reason):
        check(job_item(job))


def check_instance(instance: Instance, *, new: bool) -> None:
    """Refuse an instance record that its table cannot hold.

    Raises:
        ClientError: DynamoDB would refuse the item.
    """
    if new:
        check_key(instance.instance_id)
    if new or _may_be_large(len(instance.commands), len(instance.claims), text=instance.reason):
        check(instance_item(instance))


def check_plan(plan: Plan) -> None:
    """Refuse a plan that the table cannot hold. Raises ClientError. Only long names can make one of its items large."""
    check_key(plan_key(plan.job_id, plan.attempt))
    if _may_be_large(text=max(plan.instances, key=len, default="")):
        for item in items_of(plan):
            check(item)


def checked_bytes(rank: int, result: Checked) -> int:
    """Return the size of a check result in the progress of its attempt."""
    return size_of(typed({str(rank): encode(result)}))


def check_progress(progress: AttemptProgress, part: int, results_bytes: int) -> None:
    """Refuse a part of a progress that the table cannot hold. Raises ClientError.

    Args:
        progress: the whole progress after the write.
        part: the part that is written.
        results_bytes: the size of all check results of the part. Nothing else can make the item large, so the whole
            item is measured only when they are near the limit.
    """
    ranks = part_ranks(part, progress.world)
    if results_bytes + len(ranks) * RANK_BYTES_MAX + OTHER_BYTES_MAX <= ITEM_BYTES_MAX:
        return
    item = {"job_id_rank": progress_key(progress.job_id, progress.attempt, part), **item_of(progress)}
    item["checked"] = {rank: result for rank, result in item["checked"].items() if int(rank) in ranks}
    # The item has no attribute for what has not happened: ADD and SET create the attributes.
    sets = {name: set(item.pop(name)) & set(ranks) for name in ("running", "stopped", "held")}
    if not progress.own_ends:
        del item["own_ends"]
    if part == 0 and (count := parts_in(progress.world)) > 1:
        item["parts"] = count
    check({name: value for name, value in {**item, **sets}.items() if value not in (None, set())})


def check(item: Mapping[str, Any]) -> None:
    """Refuse an item of more than 400 KB, or with a value that DynamoDB cannot hold. Raises ClientError."""
    as_typed = typed(item)
    try:
        check_item(as_typed)
        if size_of(as_typed) > ITEM_BYTES_MAX:
            raise invalid("Item size has exceeded the maximum allowed size")
    except DynamoError as error:
        raise _refusal(error) from error


def check_expressions(change: str, condition: str, names: Mapping[str, str]) -> None:
    """Refuse an expression of more than 4 KB or 300 operators. Raises ClientError."""
    try:
        parse_update(change, names)
        parse_condition("ConditionExpression", condition, names)
    except DynamoError as error:
        raise _refusal(error) from error


def _may_be_large(*members: int, text: str = "") -> bool:
    return max(members, default=0) > MEMBERS_MAX or len(text) > TEXT_MAX


def _refusal(error: DynamoError) -> ClientError:
    """Return the error as boto3 raises it."""
    return ClientError({"Error": {"Code": error.code, "Message": error.message}}, "UpdateItem")
