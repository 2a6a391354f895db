"""Hangs without reports of the program: what all ranks of a gang show together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.hang_signals import (
    QUIET_S,
    TRAINED_S,
    WORKING_QUIET_S,
    RankState,
    is_confirmed,
    rank_limit_s,
    rank_state,
    signs_of_hang,
)
from gpu_recovery.core.rank_activity import RankActivity, activity_of, activity_text

SPINS = RankActivity(
    120,
    trained_s=3_600,
    pause_s=0,
    utilization=100,
    power_w=160,
    usual_power_w=692,
    cores_per_gpu=1.0,
    fabric_mb_s=0,
    usual_fabric_mb_s=4_000,
    traffic_mb_s=0.1,
    waits_for_io=0,
    line_s=130,
)
SLEEPS = replace(SPINS, utilization=0, power_w=127, cores_per_gpu=0.0)
SAVES = replace(SLEEPS, cores_per_gpu=1.0, traffic_mb_s=800)
WORKS = RankActivity(0)


@pytest.mark.parametrize(
    ("ranks", "confirmed"),
    [
        ((SPINS, SPINS), True),
        ((SLEEPS, SPINS), True),
        ((SLEEPS, SLEEPS), True),
        ((SAVES, SPINS), False),
        ((WORKS, SPINS), False),
        ((None, SPINS), False),
        ((), False),
        ((replace(SPINS, utilization=60), SPINS), False),
        ((replace(SPINS, quiet_s=39), SPINS), False),
        ((replace(SPINS, power_w=0.36 * 692), SPINS), False),
        ((replace(SLEEPS, cores_per_gpu=0.7 / 8), SPINS), False),
        ((replace(SLEEPS, cores_per_gpu=0.05 / 8), SPINS), True),
        ((replace(SPINS, quiet_s=40), SPINS), True),
    ],
)
def test_the_activity_confirms_a_hang_only_if_every_rank_is_quiet_and_none_works(
    ranks: tuple[RankActivity | None, ...], confirmed: bool
) -> None:
    """No progress for 80 s. A rank that evaluates, saves or is unknown proves nothing."""
    assert is_confirmed(dict(enumerate(ranks)), 80.0) is confirmed


@pytest.mark.parametrize(
    ("activity", "state"),
    [
        (SPINS, RankState.SPINS),
        (SLEEPS, RankState.WAITS),
        (SAVES, RankState.WORKS),
        (replace(SLEEPS, cores_per_gpu=0.5), RankState.WORKS),
        (replace(SLEEPS, waits_for_io=1), RankState.WORKS),
        (replace(SLEEPS, cores_per_gpu=None), RankState.WORKS),
        (replace(SLEEPS, traffic_mb_s=None), RankState.WORKS),
        (replace(SLEEPS, waits_for_io=None), RankState.WORKS),
        (replace(SPINS, utilization=60), None),
        (replace(SPINS, utilization=None), None),
        (replace(SPINS, power_w=None), None),
        (replace(SPINS, usual_power_w=None), None),
    ],
)
def test_what_a_quiet_rank_does(activity: RankActivity, state: RankState | None) -> None:
    """A value that is not known is never taken for zero."""
    assert rank_state(activity) is state


@pytest.mark.parametrize(
    ("ranks", "suspect"),
    [
        ([SPINS] * 3, None),
        ([SLEEPS] * 3, None),
        ([SPINS, SLEEPS, SPINS], 1),
        ([SLEEPS, SLEEPS, SPINS], 2),
        ([SPINS, SLEEPS], 1),
        ([SLEEPS, SPINS, SPINS, SLEEPS], None),
        ([SPINS], None),
    ],
)
def test_a_gang_of_which_no_rank_gets_on_hangs(ranks: list[RankActivity], suspect: int | None) -> None:
    """The one rank that differs is suspected. Of two, the one that does not wait for the other."""
    signs = signs_of_hang(dict(enumerate(ranks)))
    assert signs is not None and signs.suspect == suspect and signs.quiet_s == 120


@pytest.mark.parametrize(
    "odd",
    [
        WORKS,
        None,
        replace(SPINS, quiet_s=QUIET_S - 1),
        replace(SPINS, trained_s=TRAINED_S - 1),
        replace(SPINS, trained_s=None),
        replace(SPINS, pause_s=61),
        replace(SPINS, utilization=60),
        SAVES,
    ],
    ids=["works", "unknown", "quiet a moment", "no baseline", "untrained", "paused longer before", "in parts", "saves"],
)
def test_one_rank_prevents_the_conclusion(odd: RankActivity | None) -> None:
    """Whatever all the others show."""
    assert signs_of_hang({0: SPINS, 1: odd, 2: SPINS}) is None
    assert signs_of_hang({0: odd, 1: SPINS, 2: SPINS}) is None


def test_a_rank_that_may_save_has_the_long_limit() -> None:
    """It is suspected after that."""
    ranks = {rank: replace(one, quiet_s=WORKING_QUIET_S) for rank, one in enumerate((SAVES, SPINS, SPINS))}
    signs = signs_of_hang(ranks)
    assert signs is not None and signs.suspect == 0
    assert signs_of_hang({**ranks, 1: replace(SPINS, quiet_s=WORKING_QUIET_S - 1)}) is None


@pytest.mark.parametrize(
    ("about", "limit_s"),
    [({}, 90), ({"hang_stops": 1}, 360), ({"hang_stops": 9}, 1_800), ({"own_s": 500}, 500), ({"own_s": 5}, 90)],
)
def test_stops_for_a_hang_and_the_job_itself_lengthen_the_limit(about: dict[str, Any], limit_s: int) -> None:
    """As for the progress timeout."""
    for quiet_s, hangs in ((limit_s - 1, False), (limit_s, True)):
        assert (signs_of_hang({0: replace(SPINS, quiet_s=quiet_s)}, **about) is not None) is hangs


def test_a_pause_of_the_job_lengthens_the_limit_of_the_rank() -> None:
    """So its agent does not bring the poll forward in each checkpoint."""
    assert rank_limit_s(SPINS) == QUIET_S
    assert rank_limit_s(replace(SPINS, pause_s=200)) == 400


@pytest.mark.parametrize("reported", [None, [], "x", [None, 1], ["1"], [True], [-1], [float("nan")], [1e9], {"a": 1}])
def test_a_report_of_another_form_is_unknown(reported: Any) -> None:
    """It costs no heartbeat."""
    assert activity_text(reported) == ""
    assert activity_of({"1": str(reported)}, 1) is None


def test_the_text_of_a_heartbeat_keeps_what_is_known() -> None:
    """Unknown values stay unknown, and those of a newer agent are left out."""
    values = [105, 3_600, 0, 100, 160, 692, 1.0, None, 4_000.5, 0.1, 0, 130]
    text = activity_text([*values, 77])
    known = activity_of({"5": text}, 5)
    assert known is not None and [getattr(known, name) for name in RankActivity.__dataclass_fields__] == values
    assert activity_of({"5": text}, 6) is None and activity_of({"5": "["}, 5) is None
    assert len(text) < 80
