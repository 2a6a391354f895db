"""A lock as a lease with a fencing token: who gets it, who keeps it, and when a dead holder's is another's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.core.gpu_lock import GRACE, GpuLockRecord, LockRefused, acquired, has_ended, released, renewed
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import NOW, later

FREE = GpuLockRecord("sft-1", "gpu-0")


def take(
    lock: GpuLockRecord, owner: str, at: float = 0, holder: str = "", *, silent: bool = False, lease_s: int = 60
) -> GpuLockRecord:
    """`owner` asks for it so many seconds after the present; the holder's instance may be silent."""
    return acquired(lock, owner, holder or f"{owner}-1", f"i-{owner}", lease_s, later(seconds=at), silent)


def refused(change: Any) -> str:
    """Why."""
    with pytest.raises(LockRefused) as error:
        change()
    return error.value.detail


def test_who_comes_first_has_it_and_the_other_waits() -> None:
    """With a number of its own."""
    train = take(FREE, "train")
    assert (train.owner, train.token, train.instance_id, train.expires_at) == ("train", 1, "i-train", later(seconds=60))
    assert refused(lambda: take(train, "rollout", 59.9, silent=True)) == "GPU locked by train"


def test_the_holder_has_it_again_with_the_same_token() -> None:
    """Asking twice, after a lost answer, is no other lock; a lease never gets shorter by it."""
    first = take(FREE, "train", lease_s=300)
    again = take(first, "train", 10)
    assert (again.token, again.expires_at) == (1, later(seconds=300))
    assert take(first, "train", 250).expires_at == later(seconds=310)


def test_another_process_of_the_owner_waits_for_the_end_of_the_lease_and_is_another_holder() -> None:
    """It was begun anew, and the one before may still write: they must be told apart."""
    first = take(FREE, "train")
    assert refused(lambda: take(first, "train", 59, "train-2"))
    second = take(first, "train", 60, "train-2")
    assert second.token == 2


@pytest.mark.parametrize(
    ("after_s", "silent", "may"),
    [
        (0, False, False),
        (0, True, True),
        (GRACE.total_seconds() - 1, False, False),
        (GRACE.total_seconds(), False, True),
    ],
)
def test_a_lease_that_is_over_is_anothers_when_its_holder_is_silent_or_a_while_later(
    after_s: float, silent: bool, may: bool
) -> None:
    """Its instance is not heard of: dead. It is heard of: the process may only be slow."""
    train = take(FREE, "train")
    if may:
        rollout = take(train, "rollout", 60 + after_s, silent=silent)
        assert (rollout.owner, rollout.token, rollout.instance_id) == ("rollout", 2, "i-rollout")
    else:
        assert "may still work" in refused(lambda: take(train, "rollout", 60 + after_s, silent=silent))


def test_a_lease_is_renewed_by_its_holder_also_when_it_was_over() -> None:
    """As long as nobody has taken it."""
    train = take(FREE, "train")
    assert renewed(train, "train", 1, 60, later(seconds=30)).expires_at == later(seconds=90)
    assert renewed(train, "train", 1, 60, later(seconds=100)).expires_at == later(seconds=160)


def test_who_lost_it_can_neither_renew_nor_release_it() -> None:
    """The one that slept through its lease hears that it must not go on; row 48's sentence."""
    rollout = take(take(FREE, "train"), "rollout", 61, silent=True)
    assert refused(lambda: renewed(rollout, "train", 1, 60, later(seconds=62))) == "GPU owned by rollout, cannot renew"
    assert refused(lambda: released(rollout, "train", 1)) == "GPU owned by rollout, cannot release"
    assert refused(lambda: released(rollout, "rollout", 1)) == "GPU owned by rollout, cannot release"
    assert refused(lambda: released(rollout, "train", 2)) == "GPU owned by rollout, cannot release"
    free = released(rollout, "rollout", 2)
    assert refused(lambda: renewed(free, "rollout", 2, 60, NOW)) == "GPU owned by nobody, cannot renew"


def test_what_was_given_back_is_free_at_once_and_may_be_given_back_twice() -> None:
    """The answer to the first may be lost; the number goes on growing."""
    free = released(take(FREE, "train"), "train", 1)
    assert (free.owner, free.token, has_ended(free, NOW)) == ("", 1, True)
    assert released(free, "train", 1) == free
    assert take(free, "rollout").token == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("acquire", "renew", "release")),
            st.sampled_from(("a", "b", "c")),
            st.integers(0, 3),
            st.sampled_from((0, 1, 30, 61, 200)),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_no_token_is_had_by_two_and_no_lease_that_runs_changes_hands(steps: list[Any]) -> None:
    """Whatever is asked in whatever order: a token has one owner for ever, tokens only grow."""
    lock, at = FREE, 0.0
    owners: dict[int, str] = {}
    for what, owner, token, passed, silent in steps:
        at += passed
        before = lock
        try:
            if what == "acquire":
                lock = take(lock, owner, at, silent=silent)
            elif what == "renew":
                lock = renewed(lock, owner, token, 60, later(seconds=at))
            else:
                lock = released(lock, owner, token)
        except LockRefused as error:
            assert error.lock == before
            continue
        assert lock.token >= before.token
        if lock.owner:
            assert owners.setdefault(lock.token, lock.owner) == lock.owner
        if lock.owner not in ("", before.owner) and before.owner:
            assert before.expires_at is not None and before.expires_at <= NOW + timedelta(seconds=at)
