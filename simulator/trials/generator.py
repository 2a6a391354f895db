"""Draws the scenario of a seed: the cluster, the jobs and the faults."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gpu_recovery.core.job.adoption import Adoption

from simulator.faults import aws_notifications, instances, operators
from simulator.faults.injector import RandomFaults
from simulator.faults.schedule import FunctionSleeps, TimedFault
from simulator.trials import contention, diagnosis
from simulator.trials.scenario import ClusterOf, JobOf, Scenario

FAULTS_UNTIL_S = 2400.0
QUIET_S = 3600.0
FAULTS_MAX = 6
SILENCES_MAX = 3
REPORTING_EVERY, REPORTING_CONTENTION_EVERY = 3, 9
"""Node agents report in every third run, and in every third run with contention."""
PEOPLE_EVERY, PEOPLE_AT = 5, 2
"""In every fifth run people deregister and drain instances, and stop ranks, with the tools of ECS."""
CONTENTION_EVERY = 3
"""Every third run has more jobs than capacity, of several users and priorities."""
LARGE_EVERY, LARGE_AT, LARGE_GANGS = 199, 100, (24, 40, 64, 24, 40, 64, 417, 512, 1_024)
"""One run in 199 has a single gang of so many ranks, none of which can be stopped when the first has crashed."""
REPAIRED_IN_TURN = 64
"""Ranks of the largest gang whose repairs wait for their turn. The turns of a larger gang would take days."""
INSTANCES_MAX = 6
SOON_S = 180.0
SHORT_WAITS = {"recover_timeout_s": 5_400, "queue_timeout_s": 10_800, "repair_hold_timeout_s": 3_600}
"""Deadlines that are days or hours by default, in seconds. Short, so that a run in which one expires ends soon."""

Draw = random.Random
RATES: tuple[Mapping[str, float], ...] = (
    {},
    {"drop": 0.05, "duplicate": 0.2, "delay": 0.3},
    {"kill_before": 0.01, "kill_after": 0.02, "overlap": 0.03},
    {"throttle": 0.03, "answer_lost": 0.03, "condition_fails": 0.05},
    {
        "drop": 0.03,
        "duplicate": 0.1,
        "delay": 0.2,
        "kill_before": 0.005,
        "kill_after": 0.01,
        "overlap": 0.02,
        "throttle": 0.01,
        "answer_lost": 0.01,
        "condition_fails": 0.02,
    },
    {"drop": 0.5, "duplicate": 0.3, "delay": 0.2},
)
"""Probabilities of transient faults: none, of events, of functions, of calls, a few of each, and most events lost."""


def scenario_of(seed: int) -> Scenario:
    """Draw the scenario of the seed. `in_passing` draws the transient faults during the run."""
    draw = Draw(f"scenario {seed}")
    has_agents = seed % REPORTING_EVERY == 0 or seed % REPORTING_CONTENTION_EVERY == 1
    cluster = replace(_cluster(draw), agents=has_agents)
    jobs = tuple(_job(draw, cluster, number) for number in range(draw.choice((1, 1, 2, 3))))
    train_s = float(draw.choice((600, 1200, 2400)))
    faults = _faults(draw) + (_reporting_faults(Draw(f"silence {seed}")) if cluster.agents else ())
    if seed % PEOPLE_EVERY == PEOPLE_AT:
        faults += _operator_faults(Draw(f"people {seed}"))
    queue_draw = Draw(f"queue {seed}")
    if seed % CONTENTION_EVERY == 1:
        cluster, jobs, train_s = contention.drawn(queue_draw, cluster, jobs)
        undisturbed = queue_draw.random() < contention.UNDISTURBED
        faults = () if undisturbed else (*faults, *contention.operator_actions(queue_draw, jobs, FAULTS_UNTIL_S))
    else:
        jobs = tuple(job if job.by_hand else replace(job, **contention.user_and_priority(queue_draw)) for job in jobs)
    if seed % diagnosis.EVERY == diagnosis.AT:
        evidence_draw = Draw(f"diagnosing {seed}")
        cluster, jobs = diagnosis.with_evidence(evidence_draw, cluster, jobs)
        if faults:  # a run without timed faults is compared with an undisturbed run
            cluster = diagnosis.with_short_queue_timeout(evidence_draw, cluster)
            faults = (*faults, *diagnosis.stories(evidence_draw, FAULTS_UNTIL_S))
    if seed % LARGE_EVERY == LARGE_AT:
        cluster, jobs, faults = _large_gang(Draw(f"large {seed}"), cluster, faults)
    return Scenario(seed=seed, train_s=train_s, quiet_s=QUIET_S, cluster=cluster, jobs=jobs, faults=faults)


def in_passing(seed: int) -> RandomFaults:
    """Return the source of the transient faults of the seed's run."""
    draw = Draw(f"rates {seed}")
    return RandomFaults(seed, draw.choice(RATES), late_max_s=draw.choice((10.0, 240.0, 900.0)))


def _cluster(draw: Draw) -> ClusterOf:
    policy: dict[str, Any] = dict(SHORT_WAITS)
    if draw.random() < 0.15:
        policy["preset"] = "classic"
    for name, chance in (("replace", 0.4), ("retry_exits", 0.2), ("observe_only", 0.03)):
        if draw.random() < chance:
            policy[name] = True
    adopt = draw.choice((Adoption.OFF, Adoption.OFF, Adoption.RECOVER, Adoption.OBSERVE))
    return ClusterOf(instances=draw.randint(2, INSTANCES_MAX), group=draw.random() < 0.5, adopt=adopt, policy=policy)


def _job(draw: Draw, cluster: ClusterOf, number: int) -> JobOf:
    by_hand = number == 0 and cluster.adopt != Adoption.OFF and draw.random() < 0.5
    at_s = 5.0 if by_hand else round(draw.uniform(0, 600), 1)
    limit_s = draw.choice((None, None, None, 900))
    return JobOf(
        nnodes=draw.randint(1, min(3, cluster.instances)),
        gpus=draw.choice((4, 8)),
        at_s=at_s,
        by_hand=by_hand,
        max_runtime_s=None if by_hand else limit_s,
    )


def _large_gang(
    draw: Draw, cluster: ClusterOf, faults: tuple[TimedFault, ...]
) -> tuple[ClusterOf, tuple[JobOf, ...], tuple[TimedFault, ...]]:
    """Draw a gang that fills a larger cluster. A hung file system makes its ranks unkillable, and the first crashes."""
    nnodes, at_s = draw.choice(LARGE_GANGS), round(draw.uniform(120, 500), 1)
    hangs = instances.RanksAreStuck(at_s=at_s, machines=(1,), through=nnodes - 1)
    crashes = instances.RankExits(at_s=at_s + 1, machines=(0,), code=139)
    policy = {**cluster.policy, "fleet_repairs_max": nnodes, "repair_budget_percent": 100}
    cluster = replace(
        cluster, instances=nnodes, limits={}, policy=policy if nnodes > REPAIRED_IN_TURN else cluster.policy
    )
    return cluster, (JobOf(nnodes=nnodes),), (hangs, crashes, *faults[:2])


def _faults(draw: Draw) -> tuple[TimedFault, ...]:
    """Draw timed faults. Many follow soon after another fault on the same instances, while that is still handled."""
    faults: list[TimedFault] = []
    previous: dict[str, Any] = {}
    for _ in range(draw.randint(0, FAULTS_MAX)):
        count = draw.choice((1, 1, 1, 1, 2, 3))
        where: dict[str, Any] = {
            "at_s": round(draw.uniform(60, FAULTS_UNTIL_S), 1),
            "machines": tuple(sorted(draw.sample(range(INSTANCES_MAX), count))),
        }
        if previous and draw.random() < 0.5:
            where["at_s"] = round(previous["at_s"] + draw.uniform(0, SOON_S), 1)
            where["machines"] = previous["machines"] if draw.random() < 0.7 else where["machines"]
        make = draw.choices([make for make, _ in LIKELIHOOD], [weight for _, weight in LIKELIHOOD])[0]
        faults.append(make(draw, where))
        previous = where
    return tuple(faults)


def _operator_faults(draw: Draw) -> tuple[TimedFault, ...]:
    """Draw what people do in ECS beside the product."""
    faults: list[TimedFault] = []
    for _ in range(draw.randint(1, 3)):
        where: dict[str, Any] = {
            "at_s": round(draw.uniform(60, FAULTS_UNTIL_S), 1),
            "machines": (draw.randrange(INSTANCES_MAX),),
        }
        kind = draw.choice(("deregister", "deregister", "drain", "stop"))
        if kind == "deregister":
            faults.append(operators.DeregisteredByHand(registers_every_s=draw.choice((1.0, 30.0, 400.0)), **where))
        elif kind == "drain":
            faults.append(operators.DrainedByHand(for_s=draw.choice((300.0, 3_000.0)), **where))
        else:
            faults.append(operators.RankStoppedByHand(**where))
    return tuple(faults)


def _reporting_faults(draw: Draw) -> tuple[TimedFault, ...]:
    """Draw faults of reporting: node agents that stop reporting, for a time or for good, and instances that hang."""
    faults: list[TimedFault] = []
    for _ in range(draw.randint(0, SILENCES_MAX)):
        where: dict[str, Any] = {
            "at_s": round(draw.uniform(60, FAULTS_UNTIL_S), 1),
            "machines": tuple(sorted(draw.sample(range(INSTANCES_MAX), draw.choice((1, 1, 1, 2, INSTANCES_MAX))))),
        }
        if draw.random() < 0.25:
            faults.append(instances.HostHangs(**where))
        else:
            faults.append(instances.NodeAgentSilent(for_s=draw.choice((60.0, 400.0, 1_500.0, 86_400.0)), **where))
    return tuple(faults)


def _gpu(draw: Draw, where: dict[str, Any]) -> TimedFault:
    fault = draw.choice(("xid79", "xid79", "ecc", "hidden"))
    return instances.GpuBreaks(fault=fault, cured_by=draw.choice(("reboot", "reboot", "replace", "never")), **where)


LIKELIHOOD: tuple[tuple[Callable[[Draw, dict[str, Any]], TimedFault], int], ...] = (
    (_gpu, 8),
    (lambda draw, where: instances.RankExits(code=draw.choice((1, 134, 137, 139, None)), **where), 4),
    (lambda draw, where: instances.AgentFlaps(for_s=draw.choice((20.0, 200.0, 1500.0)), **where), 3),
    (lambda draw, where: instances.HostDies(**where), 2),
    (lambda draw, where: aws_notifications.SpotInterruption(**where), 2),
    (lambda draw, where: aws_notifications.StatusCheckFails(check=draw.choice(("system", "instance")), **where), 2),
    (
        lambda draw, where: instances.RebootsGoWrong(
            how=draw.choice(("silent", "ignored", "ignored", "slow", "late")), **where
        ),
        5,
    ),
    (lambda draw, where: operators.RebootedByHand(**where), 2),
    (lambda draw, where: instances.CheckHangs(**where), 1),
    (lambda draw, where: instances.CheckSays(outcome=_outcome(draw), document=draw.random() < 0.8, **where), 5),
    (lambda draw, where: instances.RanksAreStuck(**where), 2),
    (lambda draw, where: instances.ClockIsWrong(by_s=draw.choice((-86_400.0, -300.0, 300.0, 86_400.0)), **where), 2),
    (
        lambda draw, where: aws_notifications.MaintenancePlanned(
            code=_planned(draw), in_s=draw.choice((300.0, 7_200.0)), **where
        ),
        2,
    ),
    (lambda draw, where: FunctionSleeps(function=_function(draw), for_s=900.0, at_s=where["at_s"]), 2),
    (lambda draw, where: operators.JobCanceled(job=draw.randint(0, 2), at_s=where["at_s"]), 2),
    (lambda draw, where: operators.Released(**where), 2),
    (lambda draw, where: operators.QuarantinedByHand(**where), 2),
    (lambda draw, where: aws_notifications.EcsHealthReported(status=draw.choice(("IMPAIRED", "OK")), **where), 2),
    (lambda draw, where: aws_notifications.RebalanceRecommended(**where), 1),
    (lambda draw, where: operators.RepairsPaused(at_s=where["at_s"]), 1),
)


def _outcome(draw: Draw) -> str:
    return draw.choice(("HEALTHY", "REBOOT", "REBOOT", "REPLACE", "CONFIGURATION", "INCONCLUSIVE"))


def _planned(draw: Draw) -> str:
    return draw.choice(("instance-retirement", "instance-stop", "instance-reboot", "system-reboot"))


def _function(draw: Draw) -> str:
    return draw.choice(("reconciler", "scheduler"))
