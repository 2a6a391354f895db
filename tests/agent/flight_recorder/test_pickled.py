"""Pickles of a dump: read as PyTorch and Python write them, and nothing in them is run."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery_agent.flight_recorder import pickled as reader
from gpu_recovery_agent.flight_recorder.pickled import Unreadable, loads
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.flight_recorder.dumps import hung, pickled

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4) | st.tuples(inner, inner)
    ),
    max_leaves=20,
)


def test_a_dump_of_pytorch_is_read() -> None:
    """As Python's own reader has it."""
    content = hung(16, (3,))[0]
    assert loads(pickled(content)) == content == pickle.loads(pickled(content))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@given(value=PLAIN)
def test_plain_values_come_back(protocol: int, value: Any) -> None:
    """A program may have written a dump again, with another protocol. Deeper values than any dump has are refused."""
    try:
        found = loads(pickle.dumps(value, protocol=protocol))
    except Unreadable as refusal:
        assert "nested too deeply" in str(refusal)
    else:
        assert found == value


class Calls:
    """Calls a function when Python's own reader reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_no_function_of_a_pickle_is_called(tmp_path: Path, protocol: int) -> None:
    """The error says what is refused."""
    made = tmp_path / "made"
    raw = pickle.dumps({"version": "2.10", "entries": Calls(made)}, protocol=protocol)
    with pytest.raises(Unreadable, match=r"more than plain values|damaged"):
        loads(raw)
    assert not made.exists()
    pickle.loads(raw)
    assert made.exists(), "the pickle would have done it"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (pickle.dumps(Path("/")), "more than plain values"),
        (pickle.dumps({1, 2}), "more than plain values"),
        (b"cos\nsystem\n.", "more than plain values"),
        (b"\x82\x01.", "more than plain values"),
        (b"", "damaged"),
        (b".", "damaged"),
        (b"(.", "damaged"),
        (b"K\x01", "damaged"),
        (b"e.", "damaged"),
        (b"](K\x01u.", "damaged"),
        (b"}(K\x01u.", "damaged"),
        (b"}(]K\x01u.", "damaged"),
        (b"X\xff\xff\xff\xffa.", "damaged"),
        (b"X\x01\x00\x00\x00\xff.", "damaged"),
        (b"K\x01r\xff\xff\xff\xff.", "too many values"),
        (b"\x8b\xff\xff\xff\x7f.", "more than 16 bytes"),
        (b"]" * 20 + b"a" * 19 + b".", "nested too deeply"),
    ],
)
def test_a_pickle_that_is_damaged_or_takes_too_much_is_refused(raw: bytes, why: str) -> None:
    """A length or a number in it costs nothing before it is checked."""
    with pytest.raises(Unreadable, match=why):
        loads(raw)


def test_a_large_pickle_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is one with too many instructions."""
    monkeypatch.setattr(reader, "STEPS_MAX", 100)
    with pytest.raises(Unreadable, match="more than 100 instructions"):
        loads(pickled(hung(2, ())[0]))
    monkeypatch.setattr(reader, "BYTES_MAX", 100)
    with pytest.raises(Unreadable, match="larger than 100 bytes"):
        loads(b"\x00" * 101)


def test_a_value_that_holds_itself_is_refused() -> None:
    """A list that was put into itself is no dump, and does not run for ever."""
    with pytest.raises(Unreadable, match="nested too deeply"):
        loads(b"]q\x00h\x00a.")


def test_a_short_pickle_that_stands_for_many_parts_is_refused() -> None:
    """Each list holds the list before it 100 times: a kilobyte stands for 10^10 parts, whose text fills the memory."""
    raw = b"N"
    for level in range(5):
        raw = b"(" + raw + b"q" + bytes([level]) + (b"h" + bytes([level])) * 99 + b"l"
    with pytest.raises(Unreadable, match="parts"):
        loads(raw + b".")
    assert loads(b"(" + b"]q\x00" + b"h\x00" * 99 + b"l.") == [[]] * 100
