"""Pieces of a driver's log: the newest lines, or those that follow, and no line lost or told twice."""

from __future__ import annotations

from gpu_recovery.core.ray.log_chunk import CHARACTERS_MAX, LogChunk, log_chunk_of
from hypothesis import given
from hypothesis import strategies as st


def test_the_newest_lines_or_those_after_some() -> None:
    """`end` is where the next piece begins."""
    text = "one\ntwo\nthree\n"
    assert log_chunk_of(text, 2, None, grows=True) == LogChunk(("two", "three"), 3)
    assert log_chunk_of(text, 2, 0, grows=True) == LogChunk(("one", "two"), 2)
    assert log_chunk_of(text, 2, 3, grows=True) == LogChunk((), 3)
    assert log_chunk_of("", 2, None, grows=False) == LogChunk((), 0)


def test_half_a_line_is_told_when_it_is_whole_or_its_driver_has_ended() -> None:
    """Told at once, its other half would be lost."""
    assert log_chunk_of("one\ntw", 9, None, grows=True) == LogChunk(("one",), 1)
    assert log_chunk_of("one\ntwo", 9, 1, grows=False) == LogChunk(("two",), 2)


def test_a_log_that_has_become_shorter_ends_nothing() -> None:
    """A head that was started again knows the driver no more."""
    assert log_chunk_of("", 9, 40, grows=True) == LogChunk((), 0)


@given(
    st.lists(st.sampled_from(["", "a", "b" * 7, "c" * CHARACTERS_MAX, "d" * (CHARACTERS_MAX + 9)]), max_size=12),
    st.integers(1, 5),
)
def test_every_line_is_told_once_and_no_piece_is_too_large(lines: list[str], most: int) -> None:
    """From the first line on, piece after piece; a line that is too long by itself is cut."""
    text, told, after = "".join(f"{line}\n" for line in lines), [], 0
    while (piece := log_chunk_of(text, most, after, grows=True)).lines:
        assert sum(map(len, piece.lines)) <= CHARACTERS_MAX and len(piece.lines) <= most
        told += piece.lines
        after = piece.end
    assert told == [line[:CHARACTERS_MAX] for line in lines]
    newest = log_chunk_of(text, most, None, grows=True)
    assert newest.end == len(lines) and list(newest.lines) == told[len(told) - len(newest.lines) :]
    assert sum(map(len, newest.lines)) <= CHARACTERS_MAX
