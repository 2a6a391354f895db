"""The garbage of a test file is collected if the file raised the memory of its worker."""

from __future__ import annotations

import gc

import pytest

from tests.garbage import RISE_MIB, FileGarbage


def test_garbage_is_collected_when_the_memory_has_risen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection takes a tenth of a second, so it is made for a rise only, and once for each."""
    peaks = iter([100, 100 + RISE_MIB - 1, 100 + RISE_MIB, 100 + RISE_MIB, 100 + 2 * RISE_MIB])
    made: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: made.append(1))
    garbage = FileGarbage(lambda: next(peaks))
    after = []
    for _ in range(4):
        garbage.file_ended()
        after.append(len(made))
    assert after == [0, 1, 1, 2]
