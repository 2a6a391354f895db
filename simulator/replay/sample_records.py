"""`python -m simulator.replay.sample_records DIR`: records of a simulated account, to try `fleet what-if` without one.

A job of four instances with one spare runs for some days under drawn failures. The simulator records it as a deployment
would.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpu_recovery.core.event_history.recorded_event import event_of
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy

from simulator.goodput.assumptions_file import read
from simulator.goodput.failure_trace import FailureTrace, failure_trace
from simulator.goodput.production import FOR_MONTHS
from simulator.replay.player import Played, play
from simulator.replay.records import RecordsInvalid, write_records

INSTANCES, SPARES = 4, 1
PROFILE = "llama3"
"""Profile from which the causes of the failures are drawn."""


def sample_policy() -> RecoveryPolicy:
    """Return the policy of the sample: that of an operator of a job of weeks."""
    return replace(PRESETS[Preset.ADAPTIVE], lemon_order=False, **FOR_MONTHS)


def sample_trace(seed: int, days: float, failures: int) -> FailureTrace:
    """Return the failures of the sample."""
    assumptions = read()
    rate = failures * 1_000 / (INSTANCES * days)
    profile = replace(assumptions.profile(PROFILE), instances=INSTANCES, days=days, rate=rate)
    return failure_trace(profile, assumptions.conditions, seed)


def save(folder: Path, played: Played) -> Path:
    """Save the events of a run as a folder of records, and return the folder.

    Raises:
        RecordsInvalid: the folder holds records already.
        OSError: the folder cannot be written.
        ValueError: the run has no end.
    """
    ends_at = played.course.ends_at
    if ends_at is None:
        raise ValueError("the run has no end")
    write_records(folder, played.texts, event_of(played.texts[0]).at, ends_at)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the records, and return the exit status: 2 if the folder cannot be used."""
    parser = argparse.ArgumentParser("python -m simulator.replay.sample_records", description=__doc__)
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument("--seed", type=int, default=1, help="seed of the failures; default 1")
    parser.add_argument("--days", type=float, default=20, help="length of the run; default 20")
    parser.add_argument("--failures", type=int, default=15, help="expected failures; default 15")
    options = parser.parse_args(arguments)
    trace = sample_trace(options.seed, options.days, options.failures)
    try:
        save(options.folder, play(trace, sample_policy(), instances=INSTANCES + SPARES))
    except (RecordsInvalid, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
