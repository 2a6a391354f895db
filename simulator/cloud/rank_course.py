"""Courses of a training as its node agents see it: what the GPUs, the processes and the instance of each rank do.

The values of training, checkpoint, sleep and endless kernel are those of the H200 in `tests/recorded_gpu`. The other
phases and all lengths are assumptions. Ranks 1 and above of a gang do the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpu_recovery_agent.sensors.activity_history import Sample

PIECES = 5
"""Parts of a sample whose values are averaged. Phases may change within a sample."""


@dataclass(frozen=True)
class Load:
    """What a rank does: the values of `Sample`, with `spread` as the relative standard deviation of the power.

    line_s: seconds between two lines of output; 0: none.
    """

    utilization: float
    power_w: float
    cores_per_gpu: float
    fabric_mb_s: float = 0.0
    traffic_mb_s: float = 0.1
    waits_for_io: bool = False
    line_s: float = 0.0
    spread: float = 0.03


TRAINS = Load(97, 692, 1.0, 4_000, line_s=60)
COMPILES = Load(5, 140, 4.0, line_s=200)
SAVES = Load(3, 129, 1.0, traffic_mb_s=800)
SPINS = Load(100, 160, 1.0)
SLEEPS = Load(0, 127, 0.0)
EVALUATES = Load(80, 480, 0.9, 500, line_s=120, spread=0.15)
SCORES = Load(20, 180, 2.0, traffic_mb_s=2, line_s=0)
LOADS = Load(30, 260, 3.0, 1_200, traffic_mb_s=300, line_s=300, spread=0.2)
GENERATES = Load(100, 320, 1.0, line_s=0, spread=0.08)
WAITS_FOR_STORAGE = Load(0, 127, 0.02, waits_for_io=True)
BUSY_LOOP = Load(0, 130, 1.0)
ENDLESS_KERNEL = Load(100, 127, 1.0)


@dataclass(frozen=True)
class Phase:
    """A phase of a gang: what rank 0 does, and what every other rank does; None: the same.

    trains: whether it is ordinary training, which a benchmark may cut short.
    """

    first: Load
    others: Load | None = None
    trains: bool = False

    def load(self, rank: int) -> Load:
        """Return what a rank does."""
        return self.first if rank == 0 or self.others is None else self.others


TRAINING = Phase(TRAINS, trains=True)
COMPILATION = Phase(COMPILES)
SAVES_TOGETHER = Phase(SAVES)
FIRST_SAVES = Phase(SAVES, SPINS)
EVALUATION = Phase(EVALUATES)
FIRST_SCORES = Phase(SCORES, SLEEPS)
SLOW_LOADING = Phase(LOADS)
GENERATION = Phase(GENERATES)
STORAGE_STALL = Phase(WAITS_FOR_STORAGE)
REMOTE_WAIT = Phase(SLEEPS)
FIRST_WAITS = Phase(SLEEPS, SPINS)
HANGS: Mapping[str, Phase] = {
    "all ranks wait in a collective": Phase(SPINS),
    "all ranks sleep": Phase(SLEEPS),
    "one rank sleeps, the others wait in a collective": Phase(SLEEPS, SPINS),
    "an endless kernel, the others wait in a collective": Phase(ENDLESS_KERNEL, SPINS),
    "one rank computes without end, the others wait in a collective": Phase(BUSY_LOOP, SPINS),
}
"""Hangs by name."""


@dataclass(frozen=True)
class Segment:
    """A phase and its length in seconds."""

    phase: Phase
    seconds: float


Course = Callable[[random.Random], Iterator[Segment]]
"""A source of the segments of one attempt, without end."""


def course_of(
    pause: Phase | None = None,
    pause_s: tuple[float, float] = (0.0, 0.0),
    every_s: float = 7_200.0,
    compile_s: float = 300.0,
) -> Course:
    """Return a course that compiles, and then trains with a pause of the given bounds at intervals."""

    def segments(drawn: random.Random) -> Iterator[Segment]:
        yield Segment(COMPILATION, compile_s * drawn.uniform(0.7, 1.5))
        while True:
            yield Segment(TRAINING, every_s * drawn.uniform(0.9, 1.1))
            if pause is not None:
                yield Segment(pause, drawn.uniform(*pause_s))

    return segments


def stalling(drawn: random.Random) -> Iterator[Segment]:
    """Yield a training that waits for its storage: a Pareto tail of index 1.5 from 5 s to 600 s, every half hour."""
    yield Segment(COMPILATION, 300.0)
    while True:
        yield Segment(TRAINING, drawn.expovariate(1 / 1_800.0) + 60.0)
        yield Segment(STORAGE_STALL, min(5.0 * drawn.paretovariate(1.5), 600.0))


COURSES: Mapping[str, Course] = {
    "even steps": course_of(),
    "first compilation of 20 minutes": course_of(compile_s=1_200.0),
    "checkpoints of all ranks, 25 to 100 s every 10 minutes": course_of(SAVES_TOGETHER, (25.0, 100.0), 600.0),
    "checkpoints of rank 0, 2 to 6 minutes every 2 hours, the others in a barrier": course_of(
        FIRST_SAVES, (120.0, 360.0)
    ),
    "evaluations on all GPUs, 5 to 10 minutes every 2 hours": course_of(EVALUATION, (300.0, 600.0)),
    "evaluations on rank 0, 5 to 10 minutes every 2 hours, the others asleep": course_of(FIRST_SCORES, (300.0, 600.0)),
    "slow data loading, 10 minutes every hour": course_of(SLOW_LOADING, (500.0, 700.0), 3_600.0),
    "generation at 46 % of the power of training, 3 to 10 minutes every 20 minutes": course_of(
        GENERATION, (180.0, 600.0), 1_200.0
    ),
    "waits for storage with a heavy tail": stalling,
    "waits of all ranks for a remote service, 3 to 5 minutes every 2 hours": course_of(REMOTE_WAIT, (180.0, 300.0)),
    "waits of rank 0 for a remote service, 1 to 3 minutes every 2 hours, the others in a collective": course_of(
        FIRST_WAITS, (60.0, 180.0)
    ),
}
"""Courses by name."""


class RankCourse:
    """The course of one rank: its samples, in the order of time.

    Args:
        segments: the segments of its gang.
        rank: its number.
        drawn: the source of the spread.
    """

    def __init__(self, segments: Iterator[Segment], rank: int, drawn: random.Random) -> None:
        self._segments, self._rank, self._drawn = segments, rank, drawn
        self._segment, self._left_s = Segment(COMPILATION, 0.0), 0.0
        self._line_s = 0.0

    def sample(self, seconds: float, hang: Phase | None = None, hung_s: float = 0.0) -> Sample:
        """Return the next sample.

        Args:
            seconds: its length.
            hang: the hang of the gang; None if it works.
            hung_s: seconds of the sample, at its end, in which the gang hangs.
        """
        piece_s = seconds / PIECES
        loads, line = list[Load](), False
        for number in range(PIECES):
            is_hung = hang is not None and (number + 0.5) * piece_s >= seconds - hung_s
            load = hang.load(self._rank) if hang is not None and is_hung else self._advanced(piece_s)
            loads.append(load)
            self._line_s = self._line_s + piece_s if load.line_s else 0.0
            if load.line_s and self._line_s >= load.line_s:
                self._line_s, line = 0.0, True

        is_one = all(load is loads[0] for load in loads)

        def mean(name: str) -> float:
            if is_one:
                value: float = getattr(loads[0], name)
                return value
            total: float = sum(getattr(load, name) for load in loads)
            return total / PIECES

        power_w = mean("power_w") * max(0.1, self._drawn.gauss(1.0, loads[-1].spread))
        return Sample(
            seconds,
            loads[-1].utilization,
            power_w,
            mean("cores_per_gpu"),
            mean("fabric_mb_s"),
            mean("traffic_mb_s"),
            any(load.waits_for_io for load in loads),
            line if self._rank == 0 else False,
        )

    @property
    def trains(self) -> bool:
        """Whether the gang trained at the end of the latest sample."""
        return self._segment.phase.trains

    def _advanced(self, seconds: float) -> Load:
        self._left_s -= seconds
        while self._left_s <= 0.0:
            self._segment = next(self._segments)
            self._left_s += self._segment.seconds
        return self._segment.phase.load(self._rank)
