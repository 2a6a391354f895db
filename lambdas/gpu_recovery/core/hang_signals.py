"""Hangs that need no report of the program: all ranks of a gang are quiet, and none of them gets on.

A rank is quiet if its GPUs draw far less power than usual (`rank_activity.py`). Utilization tells then what it does: a
GPU that waits in a collective has all of it, and a rank that waits for anything else has none. A rank without
utilization may also save or load. Its processor time, the traffic of its instance and its waits for a disk tell that.

A pause that the job has made before is no hang, so the limit is `PAUSE_FACTOR` times the longest one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.progress_timeout import BACKOFF_FACTOR, BACKOFFS_MAX, QUIET_S
from gpu_recovery.core.rank_activity import RankActivity

WORKING_QUIET_S = 1_800.0
"""Seconds instead of `QUIET_S` if a rank of the gang may save or load. Idle GPUs of a job without reports may last as
long."""
TRAINED_S = 300.0
"""Seconds for which every rank must have trained before. A first compilation does not count as training."""
PAUSE_FACTOR = 2.0
"""Factor between the longest pause of the job so far and the limit, as for its longest step."""
SPINS_PERCENT, FLAT_PERCENT = 95.0, 10.0
"""Utilization from which a quiet GPU waits in a kernel, and up to which it does nothing. Between, it works in parts."""
IDLE_CORES = 0.1
"""Cores for each GPU below which a rank is idle. A rank that waited in gloo used 0.0 (`tests/recorded_gpu`)."""
TRAFFIC_MB_S = 5.0
"""Megabytes per second of network and disks below which a rank neither saves nor loads."""
PARTNERS_MIN = 2
"""Ranks that must all do the same so that the one that differs is suspected."""

CONFIRMED_SHARE = 0.5
"""Share of the time without progress for which every rank must be quiet, so that its activity confirms the hang. An
agent reports every 15 s, and the power is an average."""
CONFIRMED_POWER, CONFIRMED_CORES = 0.3, IDLE_CORES / 8
"""Share of the usual power, and cores for each GPU, below which a rank confirms a hang. A program that generates text
may draw more power, and one process that scores on an instance of eight GPUs uses more cores."""


class RankState(StrEnum):
    """What a quiet rank does."""

    SPINS = "waits in a kernel on its GPUs"
    WAITS = "is idle"
    WORKS = "may save or load"


@frozen_dataclass()
class HangSigns:
    """Signs of a hang.

    sentence: what was seen, without the instance of the suspected rank.
    quiet_s: seconds for which every rank has been quiet.
    suspect: the one rank that differs from all others; None if there is none.
    """

    sentence: str
    quiet_s: float
    suspect: int | None


def rank_limit_s(activity: RankActivity) -> float:
    """Return the seconds after which one quiet rank is a reason to look at the whole gang."""
    return max(QUIET_S, PAUSE_FACTOR * (activity.pause_s or 0.0))


def rank_state(activity: RankActivity) -> RankState | None:
    """Return what a quiet rank does; None if it is not known, or if its GPUs work in parts."""
    if activity.utilization is None or activity.power_w is None or activity.usual_power_w is None:
        return None
    if activity.utilization >= SPINS_PERCENT:
        return RankState.SPINS
    if activity.utilization > FLAT_PERCENT:
        return None
    cores, traffic_mb_s = activity.cores_per_gpu, activity.traffic_mb_s
    if cores is None or traffic_mb_s is None or activity.waits_for_io is None:
        return RankState.WORKS  # what is not known may be the work of a checkpoint
    is_idle = cores < IDLE_CORES and traffic_mb_s < TRAFFIC_MB_S and not activity.waits_for_io
    return RankState.WAITS if is_idle else RankState.WORKS


def signs_of_hang(
    ranks: Mapping[int, RankActivity | None], hang_stops: int = 0, own_s: int | None = None
) -> HangSigns | None:
    """Return the signs of a hang of a gang; None if there are none.

    Args:
        ranks: the activity of every rank of the gang; None where it is not known.
        hang_stops: stops of the job for a hang that count. Each makes the limit longer.
        own_s: the progress timeout in the specification of the job; None if it has none.
    """
    known = {rank: activity for rank, activity in ranks.items() if activity is not None}
    if not known or len(known) < len(ranks):
        return None
    if any((activity.trained_s or 0.0) < TRAINED_S for activity in known.values()):
        return None
    states = {rank: rank_state(activity) for rank, activity in known.items()}
    found = {rank: state for rank, state in states.items() if state is not None}
    if len(found) < len(states):
        return None
    quiet_s = min(activity.quiet_s for activity in known.values())
    if quiet_s < _limit_s(known, found, hang_stops, own_s):
        return None
    suspect = _suspect(found)
    return HangSigns(_sentence(known, found, suspect, quiet_s), quiet_s, suspect)


def is_confirmed(ranks: Mapping[int, RankActivity | None], stalled_s: float) -> bool:
    """Return whether the activity of every rank confirms a hang that the progress reports show.

    In a gang that evaluates, compiles or saves, at least one rank draws power, uses processors, or reads and writes.
    The progress reports show that the gang has trained.

    Args:
        ranks: the activity of every rank of the gang; None where it is not known.
        stalled_s: seconds since the last progress.
    """
    return bool(ranks) and all(
        activity is not None and rank_confirms(activity, stalled_s) for activity in ranks.values()
    )


def rank_confirms(activity: RankActivity, stalled_s: float) -> bool:
    """Return whether a rank has been quiet for long enough, and waits in a kernel, or is idle, beyond doubt.

    Args:
        stalled_s: seconds since the last progress.
    """
    if activity.quiet_s < CONFIRMED_SHARE * stalled_s:
        return False
    state = rank_state(activity)
    if state is RankState.SPINS:
        return (activity.power_w or 0.0) < CONFIRMED_POWER * (activity.usual_power_w or 0.0)
    return state is RankState.WAITS and (activity.cores_per_gpu or 0.0) < CONFIRMED_CORES


def _limit_s(
    ranks: Mapping[int, RankActivity], states: Mapping[int, RankState], hang_stops: int, own_s: int | None
) -> float:
    least_s = WORKING_QUIET_S if RankState.WORKS in states.values() else QUIET_S
    after_stops_s = min(QUIET_S * BACKOFF_FACTOR ** min(hang_stops, BACKOFFS_MAX), WORKING_QUIET_S)
    pause_s = max(activity.pause_s or 0.0 for activity in ranks.values())
    return max(least_s, after_stops_s, PAUSE_FACTOR * pause_s, float(own_s or 0))


def _suspect(states: Mapping[int, RankState]) -> int | None:
    """Return the one rank that does something else than all others, or the one that does not wait for a partner."""
    counts = Counter(states.values())
    if len(counts) != 2:
        return None
    ranks_by_state = {state: [rank for rank, own in states.items() if own is state] for state in counts}
    alone = [ranks[0] for ranks in ranks_by_state.values() if len(ranks) == 1]
    if len(states) > PARTNERS_MIN:
        return alone[0] if alone else None
    return next((rank for rank, state in states.items() if state is not RankState.SPINS), None)


def _sentence(
    ranks: Mapping[int, RankActivity], states: Mapping[int, RankState], suspect: int | None, quiet_s: float
) -> str:
    """Return what was seen: what the ranks do, and their mean values."""
    count = len(ranks)
    tally = Counter(states.values())
    if suspect is not None:
        other = next(state for rank, state in states.items() if rank != suspect)
        does = f"rank {suspect} {states[suspect].value}, and each of the other {count - 1} ranks {other.value}"
    elif len(tally) == 1:
        does = f"each of the {count} ranks {states[next(iter(states))].value}"
    else:
        parts = [f"{number} {state.value}" for state, number in tally.most_common()]
        does = f"of the {count} ranks {', '.join(parts)}"
    utilization = _mean([activity.utilization for activity in ranks.values()])
    power_w, usual_w = (_mean([getattr(one, name) for one in ranks.values()]) for name in ("power_w", "usual_power_w"))
    lines = [activity.line_s for activity in ranks.values() if activity.line_s is not None]
    line = f", and the last line of output is {min(lines):.0f} s old" if lines else ""
    return (
        f"{does}, for {quiet_s:.0f} s: the GPUs draw {power_w:.0f} W, usually {usual_w:.0f} W, with a utilization of "
        f"{utilization:.0f} %{line}"
    )


def _mean(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0
