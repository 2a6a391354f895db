"""Records become DynamoDB items and come back the same; what another release wrote is still readable."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import plain, typed
from gpu_recovery.aws.item_codec import NAMED, ItemUnreadable, decode, encode, from_iso, to_iso
from gpu_recovery.aws.pending_commands import commands_list, commands_map
from gpu_recovery.core import commands, events
from gpu_recovery.core.attempt import AttemptProgress, Plan
from gpu_recovery.core.events import InstanceEvent, JobEvent
from gpu_recovery.core.health_check import CheckOutcome
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.job.record import Job, JobStatus
from gpu_recovery.core.state_machine import PendingCommand
from hypothesis import given
from hypothesis import strategies as st

from tests.aws.records import JOB, NOW, instance, job, later, pending
from tests.tiers import examples

moments = st.datetimes(datetime(2020, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(10**12), 10**12)
loose = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts.filter(lambda k: k != "type"), inner, max_size=2),
    max_leaves=4,
)
PLAIN = {datetime: moments, str: texts, int: numbers, bool: st.booleans(), type(None): st.none()}
ORDERS = (*commands.JOB_COMMANDS, *commands.INSTANCE_COMMANDS)
FACTS = (*events.JOB_EVENTS, *events.INSTANCE_EVENTS)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type, made from the type itself, so that a new field is tried without a word here."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if kind in (JobEvent, InstanceEvent):
        return st.one_of([values(event) for event in FACTS if issubclass(event, kind)])
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values(one) for one in arguments])
    if origin is tuple:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=3)
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, StrEnum | IntEnum):
        return st.sampled_from(kind)
    if is_dataclass(kind):
        return records(kind)
    return loose  # object: whatever a published event carries


def records(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    if kind is PendingCommand:
        hints = hints | {"command": commands.StopAttempt}
    return st.builds(kind, **{field.name: values(hints[field.name]) for field in fields(kind)})


def through_dynamodb(record: Any) -> Any:
    """What the table gives back for a record: encoded, typed for the wire, untyped, decoded."""
    return decode(type(record), plain(typed(encode(record))))


@pytest.mark.parametrize("kind", [*dict.fromkeys(ORDERS), *FACTS], ids=lambda kind: kind.__name__)
def test_every_command_and_event_survives_in_a_pending_command(kind: type) -> None:
    """Whoever takes a command over carries out exactly what was saved."""

    @examples(0.4)
    @given(records(kind))
    def survives(order: Any) -> None:
        one = PendingCommand(f"{JOB}/1/1", order, NOW)
        assert through_dynamodb(one) == one
        assert type(through_dynamodb(one).command) is kind

    survives()


@pytest.mark.parametrize("kind", [Job, Instance, Plan, AttemptProgress], ids=lambda kind: kind.__name__)
def test_every_record_survives(kind: type) -> None:
    """Every field, whatever its value. (Commands have a map of their own.)"""

    @given(records(kind))
    def survives(record: Any) -> None:
        bare = replace(record, commands=()) if hasattr(record, "commands") else record
        assert through_dynamodb(bare) == bare

    survives()


def test_every_name_of_a_command_or_event_is_its_own() -> None:
    """A saved order is found again by its type's name, so two may not share one."""
    assert set(NAMED.values()) == {*ORDERS, *FACTS}
    assert len(NAMED) == len({*ORDERS, *FACTS})


def test_commands_keep_their_order_in_the_map() -> None:
    """Version 10 comes after version 9, number 10 after number 9."""
    given_order = [pending(JOB, n, version=v) for v in (1, 9, 10) for n in range(1, 12)]
    stored = plain(typed(commands_map(given_order)))
    shuffled = dict(sorted(stored.items(), reverse=True))
    assert commands_list(shuffled) == tuple(given_order)


def test_a_key_of_a_newer_release_is_passed_over() -> None:
    """Old code reads new records, in the record and in the orders inside it."""
    item = encode(job(commands=(pending(JOB, 1),)))
    item["surprise"] = {"type": "Unheard"}
    item["spec"]["colour"] = "blue"
    item["commands"][0]["command"]["urgency"] = 3
    assert decode(Job, item) == job(commands=(pending(JOB, 1),))


def test_a_key_that_an_older_release_did_not_write_takes_its_default() -> None:
    """New code reads old records."""
    record = instance(epoch=7, gpus_most=8)
    item = encode(record)
    for missing in ("epoch", "gpus_most", "claims", "check", "reserved_for"):
        del item[missing]
    assert decode(Instance, item) == replace(record, epoch=0, gpus_most=0)


@pytest.mark.parametrize("missing", ["job_id", "spec", "queued_at", "status_at"])
def test_an_item_without_what_its_record_needs_is_unreadable(missing: str) -> None:
    """The error names the record and the key."""
    item = encode(job())
    del item[missing]
    with pytest.raises(ItemUnreadable, match=f"Job without {missing}"):
        decode(Job, item)


@pytest.mark.parametrize(("field", "wrong"), [("instances", "i-1"), ("commands", {}), ("look_at", 7), ("spec", [])])
def test_a_value_of_another_shape_is_unreadable(field: str, wrong: Any) -> None:
    """A text can be iterated as a list can. It would come back as one instance for each letter."""
    with pytest.raises(ItemUnreadable, match=field):
        decode(Job, encode(job()) | {field: wrong})


def test_numbers_are_numbers_and_sets_are_sets() -> None:
    """Not texts: conditions compare them and ADD works on them."""
    item = typed(encode(job(attempt=2, attempts_uncounted={"INTERRUPTED": 1})))
    assert item["attempt"] == {"N": "2"}
    assert item["attempts_uncounted"]["M"]["INTERRUPTED"] == {"N": "1"}
    assert item["hands_off"] == {"BOOL": False}
    assert item["deadline_at"] == {"NULL": True}
    assert typed({"stopped": {1, 2}})["stopped"].keys() == {"NS"}


def test_numbers_come_back_whole() -> None:
    """DynamoDB hands out Decimal; nothing of it stays, however deep."""
    back = through_dynamodb(PendingCommand("x/1/1", commands.PublishEvent("Job State Changed", {"a": [{"b": 3}]}), NOW))
    inner = back.command.data["a"][0]["b"]
    assert (inner, type(inner)) == (3, int)
    assert not any(isinstance(v, Decimal) for v in (back.tries, back.refusals))


def test_statuses_come_back_as_their_enum() -> None:
    """Comparisons by identity hold on a record that was read."""
    assert through_dynamodb(job(status=JobStatus.STOPPING)).status is JobStatus.STOPPING
    checked = through_dynamodb(AttemptProgress(JOB, 1, 1, checked={0: events.Checked(CheckOutcome.REBOOT, "")})).checked
    assert checked[0].outcome is CheckOutcome.REBOOT


@given(st.lists(moments, min_size=2, max_size=5))
def test_times_sort_as_their_texts(times: list[datetime]) -> None:
    """The index of what is due compares texts."""
    assert sorted(times) == [from_iso(text) for text in sorted(map(to_iso, times))]


def test_times_are_utc_with_a_z() -> None:
    """Whatever the zone they were given in."""
    there = datetime(2026, 11, 21, 17, 0, tzinfo=timezone(timedelta(hours=8)))
    assert to_iso(there) == "2026-11-21T09:00:00.000000Z"
    assert from_iso("2026-11-21T09:00:00Z") == from_iso("2026-11-21T10:00:00.000+01:00") == NOW
    assert from_iso(to_iso(later(0.5))) == later(0.5)
