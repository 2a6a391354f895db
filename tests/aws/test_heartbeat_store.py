"""What a heartbeat costs, and what DynamoDB may do between two writes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError
from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.heartbeat_store import heartbeat_key
from gpu_recovery.aws.item_codec import SCHEMA, ItemUnreadable
from gpu_recovery.aws.store import DynamoStore
from gpu_recovery.core.heartbeat import BY_ROLE, REPORTS_MAX, REPORTS_WINDOW_S, Heartbeat
from gpu_recovery.ports.errors import SequenceStale, TooManyReports, TryAgainSoon

from tests.aws.heartbeats import beat, by_gputasker, kept, of_next_boot
from tests.aws.records import A, later
from tests.aws.test_dynamo_calls import meddled

RANKS = range(9)


@dataclass
class Counted:
    """A client that counts its calls. `before` is done before the n-th of them."""

    client: Any
    before: dict[int, Callable[[], Any]] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)

        def counted(**request: Any) -> Any:
            self.made.append(name)
            self.before.pop(len(self.made), lambda: None)()
            return call(**request)

        return counted


def counted(store: DynamoStore, **before: Any) -> tuple[DynamoStore, Counted]:
    """The same tables through a counting client."""
    client = Counted(store.jobs.client, **before)
    return DynamoStore(client, store.jobs.name, store.table.name), client


def calls_of(store: DynamoStore, report: Heartbeat, present: bool = True) -> list[str]:
    """The calls that keeping it takes."""
    counting, client = counted(store)
    counting.save_heartbeat(report, present)
    return client.made


@pytest.mark.parametrize("ranks", RANKS)
def test_a_heartbeat_is_one_call_also_where_a_window_begins(double_store: DynamoStore, ranks: int) -> None:
    """However many ranks run there: 0 to 8."""
    numbers = range(ranks)
    assert calls_of(double_store, beat(1, 0, *numbers)) == ["update_item", "put_item"]
    for sequence in range(2, 6):
        assert calls_of(double_store, beat(sequence, 15 * sequence, *numbers)) == ["update_item"]
    for window in (1, 2, 3):
        for n in (0, 1):
            one = beat(4 + 2 * window + n, window * REPORTS_WINDOW_S + 15 * n, *numbers)
            assert calls_of(double_store, one) == ["update_item"]
            assert kept(double_store).heard == {BY_ROLE: n + 1}


@pytest.mark.parametrize(("windows", "calls"), [(2, 2), (3, 1), (4, 2), (7, 1)])
def test_a_count_of_long_ago_is_not_counted_on(double_store: DynamoStore, windows: int, calls: int) -> None:
    """After a silence of whole windows each count begins anew, at the price of one call where one is left over."""
    for n in range(REPORTS_MAX):
        double_store.save_heartbeat(beat(n + 1, 1), True)
    at = windows * REPORTS_WINDOW_S
    assert calls_of(double_store, beat(REPORTS_MAX + 1, at)) == ["update_item"] * calls
    assert kept(double_store).heard == {BY_ROLE: 1}
    assert calls_of(double_store, beat(REPORTS_MAX + 2, at + 15)) == ["update_item"]


@pytest.mark.parametrize("at_s", [15, REPORTS_WINDOW_S, 2 * REPORTS_WINDOW_S])
def test_an_item_that_was_counted_otherwise_is_heard_at_once(double_store: DynamoStore, at_s: float) -> None:
    """A release that kept one number for all tokens left no count of each: a deployment must not make a fleet deaf."""
    double_store.save_heartbeat(beat(1, 0, 0), True)
    item = dict(double_store.table.get(heartbeat_key(A)) or {})
    old = {name: value for name, value in item.items() if not name.startswith("heard")} | {"reports_even": 1}
    double_store.table.client.put_item(TableName=double_store.table.name, Item=typed(old))
    assert calls_of(double_store, beat(2, at_s, 0)) == ["update_item"] * 2
    assert calls_of(double_store, beat(3, at_s + 1, 0)) == ["update_item"]
    assert kept(double_store).heard == {BY_ROLE: 2}


@pytest.mark.parametrize("windows", [1, 2, 3])
def test_with_two_tokens_a_heartbeat_is_one_call_too_and_counts_of_long_ago_are_nobodys(
    double_store: DynamoStore, windows: int
) -> None:
    """Whoever begins a window begins it for both; whoever comes second has it open, and their own count."""
    for n in range(REPORTS_MAX):
        double_store.save_heartbeat(beat(n + 1, 1), True, "old")
    double_store.save_heartbeat(beat(REPORTS_MAX + 1, 2), True, "new")
    at = windows * REPORTS_WINDOW_S
    counting, client = counted(double_store)
    for n, by in enumerate(("next", "old", "new", "old", "new")):
        counting.save_heartbeat(beat(REPORTS_MAX + 2 + n, at + n), True, by)
    assert client.made == ["update_item"] * (6 if windows == 2 else 5)
    assert kept(double_store).heard == {"new": 2, "old": 2, "next": 1}


def test_a_reboot_a_late_report_and_one_of_seed_000_cost_no_more(double_store: DynamoStore) -> None:
    """What stood there before comes back with the one write."""
    double_store.save_heartbeat(beat(1, 0, 0), True)
    assert calls_of(double_store, beat(2, 1), present=False) == ["update_item"]
    assert calls_of(double_store, by_gputasker(2, 0)) == ["update_item"]
    assert calls_of(double_store, of_next_boot(1, 3)) == ["update_item"]


@pytest.mark.parametrize(
    ("report", "refusal"),
    [
        (beat(1, 15), SequenceStale),
        (beat(REPORTS_MAX + 1, 15), TooManyReports),
    ],
)
def test_what_is_refused_is_refused_at_the_first_call(
    double_store: DynamoStore, report: Heartbeat, refusal: type[Exception]
) -> None:
    """A flood costs one write each, and no read."""
    for n in range(REPORTS_MAX):
        double_store.save_heartbeat(beat(n + 1, 1), True)
    counting, client = counted(double_store)
    with pytest.raises(refusal):
        counting.save_heartbeat(report, True)
    assert client.made == ["update_item"]


def test_two_first_reports_at_once_are_both_heard(double_store: DynamoStore) -> None:
    """The second writer finds the first one's item, and what it held."""
    racing, client = counted(double_store, before={2: lambda: double_store.save_heartbeat(beat(1), True)})
    before = racing.save_heartbeat(beat(2, 1), True)
    assert before is not None and before.sequence == 1
    assert client.made == ["update_item", "put_item", "update_item"]
    assert (kept(double_store).sequence, kept(double_store).heard) == (2, {BY_ROLE: 2})


@pytest.mark.parametrize(("windows", "before", "calls"), [(1, 1, 1), (2, 1, 1), (2, 2, 3)])
def test_two_reports_that_open_a_window_are_both_counted(
    double_store: DynamoStore, windows: int, before: int, calls: int
) -> None:
    """Neither takes the other's place, wherever the second comes in between."""
    double_store.save_heartbeat(beat(1), True)
    other = by_gputasker(windows * REPORTS_WINDOW_S, 0)
    racing, client = counted(double_store, before={before: lambda: double_store.save_heartbeat(other, True)})
    racing.save_heartbeat(beat(2, windows * REPORTS_WINDOW_S + 1), True)
    assert client.made == ["update_item"] * calls
    found = kept(double_store)
    assert (found.sequence, found.heard, len(found.ranks)) == (2, {BY_ROLE: 2}, 1)


def test_a_report_that_is_overtaken_each_time_is_to_come_again(double_store: DynamoStore) -> None:
    """It raises what is answered with 503, and has written nothing."""
    double_store.save_heartbeat(beat(1), True)

    def overtaken(call: Any, request: dict[str, Any]) -> Any:
        """Another window each time, with a count of its own, as no clock would have it."""
        double_store.jobs.client.update_item(
            TableName=double_store.table.name,
            Key=request["Key"],
            UpdateExpression="SET #w = #w + :w, heard_even = :n, heard_odd = :n",
            ExpressionAttributeNames={"#w": "window"},
            ExpressionAttributeValues={":w": {"N": "-1"}, ":n": {"M": {BY_ROLE: {"N": "1"}}}},
        )
        return call(**request)

    with pytest.raises(TryAgainSoon):
        meddled(double_store, "update_item", overtaken).save_heartbeat(beat(2, REPORTS_WINDOW_S), True)
    assert kept(double_store).sequence == 1


@pytest.mark.parametrize("name", ["save_heartbeat", "mark_heartbeat_missing"])
def test_only_a_failed_condition_is_an_answer(double_store: DynamoStore, name: str) -> None:
    """Any other error of DynamoDB is raised: it says nothing about the heartbeat."""

    def refuse(call: Any, request: dict[str, Any]) -> Any:
        raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, "UpdateItem")

    given: tuple[Any, ...] = (beat(1), True) if name == "save_heartbeat" else (A, later(0))
    with pytest.raises(ClientError, match="ProvisionedThroughput"):
        getattr(meddled(double_store, "update_item", refuse), name)(*given)


def test_a_heartbeat_carries_the_schema_and_one_of_a_newer_release_is_not_read(double_store: DynamoStore) -> None:
    """As every item; the error names the instance."""
    double_store.save_heartbeat(beat(1), True)
    item = double_store.table.get(f"{A}#beat")
    assert item is not None and item["schema"] == SCHEMA
    newer = typed({**item, "schema": SCHEMA + 1})
    double_store.jobs.client.put_item(TableName=double_store.table.name, Item=newer)
    with pytest.raises(ItemUnreadable, match=A):
        double_store.load_heartbeats((A,))
    with pytest.raises(ItemUnreadable, match=A):
        double_store.save_heartbeat(beat(2, 15), True)


def test_an_agent_that_takes_anothers_place_costs_one_call_more(double_store: DynamoStore) -> None:
    """Once for each start; its next report is one call again."""
    double_store.save_heartbeat(beat(1, run="a"), True)
    assert calls_of(double_store, beat(2, 1, run="b")) == ["update_item", "update_item"]
    assert calls_of(double_store, beat(3, 2, run="b")) == ["update_item"]
