"""The event history in DynamoDB and in memory: the same writes and reads give the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from gpu_recovery.aws.event_history_store import DynamoEventHistory
from gpu_recovery.core.event_history.streams import HistoryItem
from gpu_recovery.ports.event_history import EventHistory
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from simulator.dynamodb.limits import ITEM_BYTES_MAX
from simulator.memory_store.event_history import MemoryEventHistory
from tests.aws.counted_aws import CountedAws
from tests.aws.deployed_tables import create_history_table
from tests.aws.environment import CREDENTIALS
from tests.tiers import examples

UNTIL = datetime(2027, 2, 21, tzinfo=UTC)


def _item(position: str, stream: str = "s", until: datetime | None = UNTIL, **attributes: str) -> HistoryItem:
    return HistoryItem(stream, position, attributes, until)


def _double() -> DynamoEventHistory:
    client = CountedAws().client("dynamodb")
    create_history_table(client, "history")
    return DynamoEventHistory(client, "history")


@pytest.fixture(params=["memory", "double", "moto"])
def history(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventHistory]:
    """An empty history."""
    if request.param == "memory":
        yield MemoryEventHistory()
    elif request.param == "double":
        yield _double()
    else:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        with mock_aws():
            client = boto3.client("dynamodb")
            create_history_table(client, "history")
            yield DynamoEventHistory(client, "history")


def test_attributes_are_added_to_those_that_are_there(history: EventHistory) -> None:
    """Whichever comes first, and how often they come."""
    assert history.merge(_item("1", a="x")) == {"a": "x"}
    assert history.merge(_item("1", b="y")) == {"a": "x", "b": "y"}
    assert history.merge(_item("1", a="x")) == {"a": "x", "b": "y"}
    assert history.load("s", ["1", "2", "1"]) == {"1": {"a": "x", "b": "y"}}


def test_a_stream_is_read_between_two_positions_in_both_directions(history: EventHistory) -> None:
    """Both bounds are excluded."""
    for position in ("1", "2", "3", "4", "5"):
        history.merge(_item(position, a=position))
    history.merge(_item("3", stream="t", a="other"))

    def positions(limit: int = 10, **bounds: Any) -> str:
        return "".join(item.position for item in history.read("s", limit, **bounds))

    assert positions() == "12345"
    assert positions(newest_first=True) == "54321"
    assert positions(2) == "12" and positions(2, newest_first=True) == "54"
    assert positions(after="2") == "345" and positions(after="2", before="5") == "34"
    assert positions(before="3", newest_first=True) == "21"
    assert positions(1, after="2") == "3" and positions(1, before="4", newest_first=True) == "3"
    assert positions(after="4", before="2") == "" and positions(after="2", before="2") == ""
    assert history.read("nothing", 10) == ()


def test_an_item_may_be_removed_twice(history: EventHistory) -> None:
    """It may never have been there."""
    history.merge(_item("1", a="x"))
    history.remove("s", "1")
    history.remove("s", "1")
    assert history.read("s", 10) == ()


def test_an_item_is_removed_only_if_it_is_unchanged(history: EventHistory) -> None:
    """A change in the meantime keeps it."""
    history.remove("s", "1", {"a": "x"})
    history.merge(_item("1", a="x"))
    history.remove("s", "1", {"a": "y"})
    assert history.load_now("s", "1") == {"a": "x"}
    history.remove("s", "1", {"a": "x"})
    assert history.load_now("s", "1") == {}


def test_a_claim_has_one_holder_until_its_end(history: EventHistory) -> None:
    """From its end on it is free."""
    end = UNTIL + timedelta(minutes=1)
    assert history.claim("s", "1", UNTIL, end) is True
    assert history.claim("s", "1", UNTIL + timedelta(seconds=59), end + timedelta(hours=1)) is False
    assert history.claim("s", "2", UNTIL, end) is True
    assert history.claim("s", "1", end, end + timedelta(minutes=1)) is True
    assert history.claim("s", "1", end, end + timedelta(minutes=1)) is False


def test_an_item_that_is_full_keeps_what_it_has(history: EventHistory) -> None:
    """DynamoDB refuses items of more than 400 KB."""
    large = "x" * (ITEM_BYTES_MAX // 2)
    assert history.merge(_item("1", a=large)) is not None
    assert history.merge(_item("1", b=large)) is None
    assert history.load("s", ["1"]) == {"1": {"a": large}}


def test_more_than_a_page_and_more_than_a_batch(history: EventHistory) -> None:
    """A page of DynamoDB has a megabyte, a batch has a hundred keys."""
    large = "x" * 20_000
    names = [f"{number:03d}" for number in range(120)]
    for name in names:
        history.merge(_item(name, a=large))
    assert [item.position for item in history.read("s", 115)] == names[:115]
    assert sorted(history.load("s", names)) == names


def test_an_item_has_its_end() -> None:
    """DynamoDB deletes items by the attribute `expires_s`, which readers do not see."""
    client = CountedAws().client("dynamodb")
    create_history_table(client, "history")
    history = DynamoEventHistory(client, "history")
    assert history.merge(_item("1", a="x")) == {"a": "x"}
    history.merge(_item("2", until=None, a="x"))
    stored = [client.get_item(TableName="history", Key={"stream": {"S": "s"}, "at": {"S": at}})["Item"] for at in "12"]
    assert stored[0]["expires_s"] == {"N": str(int(UNTIL.timestamp()))} and "expires_s" not in stored[1]


_POSITIONS = st.sampled_from(["1", "2", "3"])
_WRITES = st.lists(
    st.tuples(st.sampled_from(["s", "t"]), _POSITIONS, st.sampled_from(["a", "b", None]), st.sampled_from(["x", "y"])),
    max_size=12,
)


@examples(0.5)
@given(_WRITES)
def test_both_stores_agree(writes: list[tuple[str, str, str | None, str]]) -> None:
    """After any writes."""
    both: list[EventHistory] = [MemoryEventHistory(), _double()]
    for stream, position, name, value in writes:
        for history in both:
            if name is None:
                history.remove(stream, position)
            else:
                history.merge(HistoryItem(stream, position, {name: value}, UNTIL + timedelta(days=1)))
    for stream in ("s", "t"):
        assert both[0].read(stream, 9) == both[1].read(stream, 9)
        assert both[0].load(stream, ["1", "2"]) == both[1].load(stream, ["1", "2"])
