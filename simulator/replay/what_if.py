"""What-if: the courses of the records under their own policy, as a control, and under another policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from gpu_recovery.core.policy import RecoveryPolicy, policy_from, with_present_names
from gpu_recovery.core.replay_facts import policy_document

from simulator.goodput.accounting import Account, account
from simulator.goodput.assumptions import Assumptions
from simulator.goodput.failure_trace import FailureTrace
from simulator.goodput.policy import PolicyRun
from simulator.replay.course import Course, courses_of, registered
from simulator.replay.facts import Facts, facts_of, with_other_cures
from simulator.replay.player import Played, play
from simulator.replay.records import Records

ELASTIC = "the job is elastic, and the replay knows only jobs of a fixed number of instances"
"""Why the course of an elastic job is not replayed."""
NewPolicy = Callable[[RecoveryPolicy], RecoveryPolicy]
"""Returns the policy to try, from the recorded one."""


@dataclass(frozen=True)
class Replayed:
    """A course, its facts, and its runs.

    control: under the recorded policy.
    new:     under the other policy.
    others:  both once more with the other assumptions about cures; None if nothing was assumed.
    """

    course: Course
    facts: Facts
    recorded_policy: RecoveryPolicy
    new_policy: RecoveryPolicy
    control: Played
    new: Played
    others: tuple[Played, Played] | None

    def account(self, played: Played, trace: FailureTrace | None = None) -> Account:
        """Return the figures of a run."""
        profile = self.facts.trace.profile
        conditions = (trace or self.facts.trace).conditions
        gpus = profile.instances * profile.gpus
        return account(until(played.run, profile.seconds), profile.seconds, gpus, profile.gpus, conditions)


@dataclass(frozen=True)
class WhatIf:
    """The replayed courses of the records, and the courses that cannot be replayed with the reason."""

    records: Records
    replayed: tuple[Replayed, ...]
    left_out: Mapping[str, str]
    courses: tuple[Course, ...]


def with_settings(settings: Mapping[str, Any]) -> NewPolicy:
    """Return what changes these settings of a policy.

    Raises:
        PolicyInvalid: when it is applied, if a setting does not exist or has a wrong value.
    """
    return lambda policy: policy_from({**policy_document(policy), **with_present_names(settings)})


def what_if(
    records: Records,
    new_policy: NewPolicy,
    assumptions: Assumptions,
    *,
    spares: int | None = None,
    level: int = 2,
    workers: int = 1,
) -> WhatIf:
    """Replay the records under their own policy and under another one.

    Args:
        records: the records of the account.
        new_policy: the policy to try.
        assumptions: the table of the simulator, for what the records do not tell.
        spares: spare instances of each course; None: those that the records show.
        level: level of the health checks.
        workers: processes to use.

    Raises:
        PolicyInvalid: the policy to try is invalid.
        RuntimeError: the product failed in a replay.
    """
    courses = courses_of(records.events, records.until)
    came, left_out = registered(records.events), dict[str, str]()
    prepared: list[tuple[Course, Facts, RecoveryPolicy, RecoveryPolicy]] = []
    for course in courses:
        if course.is_elastic:
            left_out[course.name] = ELASTIC
            continue
        if not course.policies:
            left_out[course.name] = "no launch was recorded with its policy: the release wrote no replay facts"
            continue
        recorded = policy_from(course.policies[-1])
        facts = facts_of(course, came, assumptions.conditions, spares)
        prepared.append((course, facts, recorded, new_policy(recorded)))
    jobs = [
        (facts.played_trace(trace), policy, course.has_agents, course.reports_progress, facts, level)
        for course, facts, recorded, new in prepared
        for trace in (facts.trace, *((with_other_cures(facts),) if facts.assumed else ()))
        for policy in (recorded, new)
    ]
    runs = iter(_play_all(jobs, workers))
    replayed = []
    for course, facts, recorded, new in prepared:
        control, other = next(runs), next(runs)
        others = (next(runs), next(runs)) if facts.assumed else None
        replayed.append(Replayed(course, facts, recorded, new, control, other, others))
    return WhatIf(records, tuple(replayed), left_out, tuple(courses))


_Job = tuple[FailureTrace, RecoveryPolicy, bool, bool, Facts, int]


def _play_all(jobs: Sequence[_Job], workers: int) -> list[Played]:
    if workers <= 1 or len(jobs) <= 1:
        return [_play(job) for job in jobs]
    with ProcessPoolExecutor(min(workers, len(jobs))) as pool:
        return list(pool.map(_play, jobs))


def _play(job: _Job) -> Played:
    trace, policy, agents, reports_progress, facts, level = job
    return play(
        trace,
        policy,
        instances=facts.fleet,
        ids=facts.ids,
        agents=agents,
        reports_progress=reports_progress,
        level=level,
    )


def until(run: PolicyRun, seconds: float) -> PolicyRun:
    """Return the run with the episodes that began before its end, each cut off there."""
    episodes = [episode for episode in run.episodes if episode.fault_at < seconds]
    over = [episode.training_at is not None and episode.training_at > seconds for episode in episodes]
    cut = (replace(one, training_at=None) if late else one for one, late in zip(episodes, over, strict=True))
    return replace(run, episodes=tuple(cut))


def with_checkpoints(trace: FailureTrace, checkpoint_s: float) -> FailureTrace:
    """Return the trace with another time between two checkpoints."""
    return replace(trace, conditions=replace(trace.conditions, checkpoint_s=checkpoint_s))
