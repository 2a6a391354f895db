"""The checks of the queue can fail: seeds find each of these bugs, and cut the run down to a page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulator.trials import campaign
from tests.simulator import planted_queue_bugs as planted
from tests.tiers import sampled

pytestmark = pytest.mark.slow

Bug = Callable[[pytest.MonkeyPatch], None]
PLANTED: dict[Bug, tuple[str, ...]] = {
    planted.quota_not_asked: ("I9",),
    planted.no_term: ("I11", "I9", "I1"),
    planted.counted_later: ("I9",),
    planted.never_given_back: ("I9",),
    planted.given_back_early: ("I1",),
    planted.queued_anew: ("I10",),
    planted.to_the_end_of_the_line: ("I10",),
    planted.claims_what_is_taken: ("I1",),
    planted.ticks_find_nothing: ("I10",),
}
RARE = {planted.no_term: 920}
"""Where the search begins for a bug that takes a second scheduler between what the first decides and what it keeps."""
FOUND_WITHIN, FAULTS_LEFT_MAX, TRANSCRIPT_LINES_MAX = 60, 8, 200


@pytest.mark.parametrize("bug", sampled(PLANTED, default=1), ids=lambda bug: bug.__name__)
def test_seeds_find_a_bug_of_the_queue(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first failing seed comes soon, and few faults are left of it."""
    bug(monkeypatch)
    seeds = range(RARE.get(bug, 0), RARE.get(bug, 0) + FOUND_WITHIN)
    failing = next((seed for seed in seeds if campaign.play_seed(seed)[1].violations), None)
    assert failing is not None
    first = campaign.first_failure(failing)
    assert first["violations"][0].startswith(PLANTED[bug])
    assert first["faults_left"] <= FAULTS_LEFT_MAX
    assert len(first["transcript"].splitlines()) <= TRANSCRIPT_LINES_MAX
