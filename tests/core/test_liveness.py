"""The thresholds of liveness, and the events that follow from a heartbeat."""

from __future__ import annotations

from datetime import timedelta

import pytest
from gpu_recovery.core.heartbeat import Heartbeat, RankHeartbeat
from gpu_recovery.core.liveness import Liveness, boot_event, is_fresh, latest_attempts, liveness
from gpu_recovery.core.policy import PRESETS, Preset

from tests.core.build import NOW

POLICY = PRESETS[Preset.ADAPTIVE]
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("limit_s", "until", "beyond"),
    [
        (POLICY.suspect_s, Liveness.HEARD, Liveness.SUSPECT),
        (POLICY.unreachable_s, Liveness.SUSPECT, Liveness.UNREACHABLE),
        (POLICY.heartbeat_stale_s, Liveness.UNREACHABLE, Liveness.LOST),
    ],
)
def test_each_limit_belongs_to_the_better_state(limit_s: int, until: Liveness, beyond: Liveness) -> None:
    """One second more is worse."""
    assert liveness(timedelta(seconds=limit_s), POLICY) is until
    assert liveness(timedelta(seconds=limit_s) + SECOND, POLICY) is beyond


def test_a_rank_is_fresh_until_its_instance_would_be_lost() -> None:
    """Ranks and instances have the same limit."""
    limit = timedelta(seconds=POLICY.heartbeat_stale_s)
    assert is_fresh(NOW - limit, NOW, POLICY)
    assert not is_fresh(NOW - limit - SECOND, NOW, POLICY)


def test_of_several_ranks_of_a_job_the_latest_attempt_counts() -> None:
    """Whatever their order in the heartbeat."""
    ranks = {
        str(n): RankHeartbeat(job, attempt, 0, NOW) for n, (job, attempt) in enumerate((("a", 2), ("a", 3), ("b", 1)))
    }
    assert latest_attempts(ranks) == latest_attempts(dict(reversed(ranks.items()))) == {"a": 3, "b": 1}


def test_a_boot_ends_the_ranks_that_were_last_seen_before_it() -> None:
    """A rank that was seen at the time of the boot or later belongs to the new boot."""
    boot = NOW - timedelta(seconds=30)
    ranks = {"1": RankHeartbeat("before", 1, 0, boot - SECOND), "2": RankHeartbeat("after", 1, 0, boot)}
    event = boot_event(Heartbeat("i-0", NOW, "boot-2", boot, ranks=ranks), NOW, "SXid before")
    assert (event.at, event.boot_id, event.booted_at, event.sentence) == (
        NOW,
        "boot-2",
        boot,
        "SXid before",
    )
    assert event.ended == {"before": 1}
