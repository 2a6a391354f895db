"""The retry of a conditional write, with a record that other writers change in between."""

from __future__ import annotations

import pytest
from gpu_recovery.ports.errors import StaleRecord, TooManyConflicts
from gpu_recovery.ports.retry import retry_stale, save_with_retry


class Counter:
    """One number with a conditional write; `writers` other writers add 100 each, one before each save."""

    def __init__(self, writers: int) -> None:
        self.value = 0
        self.writers = writers
        self.saves = 0
        self._read = 0

    def load(self) -> int:
        """Read the number; the next save is refused if the number has changed since."""
        self._read = self.value
        return self._read

    def save(self, value: int) -> int:
        """Write the number. Raises StaleRecord."""
        self.saves += 1
        if self.writers:
            self.writers -= 1
            self.value += 100
        if self.value != self._read:
            raise StaleRecord("written since")
        self.value = value
        return value


def add_one(counter: Counter, attempts_max: int) -> int:
    """Add one to the number."""
    return save_with_retry(counter.load, lambda value: value + 1, counter.save, attempts_max, "too many writers")


@pytest.mark.parametrize("writers", [0, 1, 3])
def test_the_change_is_decided_again_on_the_record_of_the_other_writer(writers: int) -> None:
    """No change of any writer is lost."""
    counter = Counter(writers)
    assert add_one(counter, 4) == counter.value == 100 * writers + 1
    assert counter.saves == writers + 1


def test_the_retry_ends_after_the_last_attempt() -> None:
    """The error carries the text of the caller, and this writer has changed nothing."""
    counter = Counter(writers=10)
    with pytest.raises(TooManyConflicts, match=r"^too many writers$"):
        add_one(counter, 4)
    assert (counter.saves, counter.value) == (4, 400)


def test_an_unchanged_record_is_not_saved() -> None:
    """The stored record is returned."""
    counter = Counter(writers=10)
    assert save_with_retry(counter.load, lambda value: value, counter.save, 4, "") == 0
    assert counter.saves == 0


def test_another_error_is_not_retried() -> None:
    """Only StaleRecord means that the record must be read again."""
    calls: list[int] = []

    def attempt() -> int:
        calls.append(1)
        raise ValueError("not stale")

    with pytest.raises(ValueError, match="not stale"):
        retry_stale(attempt, 4, "")
    assert len(calls) == 1
