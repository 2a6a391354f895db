"""How much a machine is a lemon, from what it did within 28 days."""

import pytest
from gpu_recovery.core.instance.lemons import DAY_S, WINDOW_S, LemonSignal, Signal, lemon_score, repetition
from hypothesis import given
from hypothesis import strategies as st

NOW_S = 1_000 * DAY_S
AGAINST = [one for one in LemonSignal if one is not LemonSignal.ALONE_WELL]
SIGNALS = st.builds(
    Signal, st.sampled_from(LemonSignal), st.floats(NOW_S - 2 * WINDOW_S, NOW_S + DAY_S, allow_nan=False)
)
MANY = st.lists(SIGNALS, max_size=40)


def days_ago(kind: LemonSignal, *days: float) -> list[Signal]:
    """That signal, so many days ago each."""
    return [Signal(kind, NOW_S - one * DAY_S) for one in days]


def test_nothing_is_known_against_a_machine_without_signals() -> None:
    """Nor against one that only worked well."""
    assert lemon_score([], NOW_S) == 0.0
    assert lemon_score(days_ago(LemonSignal.ALONE_WELL, 1, 2, 3), NOW_S) == 0.0


@pytest.mark.parametrize("kind", AGAINST)
def test_each_of_the_signals_counts_and_is_forgotten_after_28_days(kind: LemonSignal) -> None:
    """Less from day to day, and nothing at the end."""
    scores = [lemon_score(days_ago(kind, age), NOW_S) for age in (0, 7, 14, 27, 28, 100)]
    assert scores[:5] == sorted(scores[:5], reverse=True) and len(set(scores[:5])) == 5
    assert scores[4:] == [0.0, 0.0]


def test_the_prior_is_the_measured_one() -> None:
    """After k faults another is likelier than by chance: (P(k) - 0.13) of the 0.87 that are left."""
    for k, probability in ((0, 0.13), (1, 0.37), (2, 0.43), (3, 0.47), (5, 0.62), (9, 0.62)):
        assert repetition(k) == pytest.approx((probability - 0.13) / 0.87)


def test_a_failure_alone_says_more_than_one_of_many() -> None:
    """On one machine nobody else is to blame."""
    alone = lemon_score(days_ago(LemonSignal.ALONE_FAILED, 1), NOW_S)
    shared = lemon_score(days_ago(LemonSignal.GANG_FAILED, 1), NOW_S)
    hearsay = lemon_score(days_ago(LemonSignal.LEFT_OUT, 1), NOW_S)
    assert alone > shared > hearsay > 0


def test_runs_that_went_well_speak_for_a_machine_that_failed_once() -> None:
    """One failure of two runs is another rate than one of forty."""
    failure = days_ago(LemonSignal.ALONE_FAILED, 1)
    few, many = (failure + days_ago(LemonSignal.ALONE_WELL, *[1.0] * n) for n in (1, 39))
    assert lemon_score(failure, NOW_S) > lemon_score(few, NOW_S) > lemon_score(many, NOW_S)


def test_a_machine_that_fails_every_other_day_is_a_lemon_and_one_with_many_xids_is_not() -> None:
    """One fault writes hundreds of XIDs: they are counted five times at most."""
    xids = lemon_score(days_ago(LemonSignal.XID, *[0.0] * 500), NOW_S)
    lemon = lemon_score(days_ago(LemonSignal.GANG_FAILED, *range(0, 20, 2)), NOW_S)
    assert xids < 0.25
    assert lemon > 0.5


@given(MANY, st.sampled_from(AGAINST), st.floats(0, 40))
def test_more_against_a_machine_never_lowers_its_score(past: list[Signal], kind: LemonSignal, days: float) -> None:
    """Whatever is remembered already."""
    more = [*past, *days_ago(kind, days)]
    assert 0.0 <= lemon_score(past, NOW_S) <= lemon_score(more, NOW_S) + 1e-12 <= 1.0 + 1e-12


@given(MANY, st.floats(0, 40))
def test_a_run_that_went_well_never_raises_it(past: list[Signal], days: float) -> None:
    """It is the one signal the instance is probably faulty."""
    assert lemon_score([*past, *days_ago(LemonSignal.ALONE_WELL, days)], NOW_S) <= lemon_score(past, NOW_S) + 1e-12


@given(st.lists(st.builds(Signal, st.sampled_from(AGAINST), st.floats(NOW_S - WINDOW_S, NOW_S))), st.floats(0, 28))
def test_it_fades_with_time(past: list[Signal], days: float) -> None:
    """Where nothing happens the score only falls."""
    assert lemon_score(past, NOW_S + days * DAY_S) <= lemon_score(past, NOW_S) + 1e-12


@given(MANY, st.randoms())
def test_the_order_of_the_signals_is_irrelevant(past: list[Signal], drawn: object) -> None:
    """To the last bit: a score decides about placement."""
    shuffled = [*past]
    drawn.shuffle(shuffled)  # type: ignore[attr-defined]
    assert lemon_score(shuffled, NOW_S) == lemon_score(past, NOW_S)


def test_a_time_that_is_none_counts_nothing() -> None:
    """A broken record is no evidence."""
    assert lemon_score([Signal(LemonSignal.TICKET, float("nan"))], NOW_S) == 0.0
