"""What holds for every cluster and every line: random ones, small enough for everything to collide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from unittest import mock

from gpu_recovery.core.queue.place import place
from gpu_recovery.core.queue.preemption import Preemption
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits
from gpu_recovery.core.queue.release_forecast import priority_of
from gpu_recovery.core.queue.snapshot import Host, Placement, RejectionKind, RunningJob, Snapshot, WaitingJob
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.core.queue.build import NOW, POLICY, at, counted, running, waiting

NAMES = [f"i-{n}" for n in range(6)]
USERS = st.sampled_from(["ann", "bob"])
LEVELS = st.sampled_from([Priority.HIGH, Priority.ABOVE_NORMAL, Priority.NORMAL, Priority.LOW])
GROUPS = st.sampled_from(["", "", "", "g"])
TIMES = st.sampled_from([None, 60, 600, 3_600])
LIMITS = st.sampled_from(
    [
        QuotaLimits(),
        QuotaLimits({("*", "*", "*"): 2}),
        QuotaLimits({("ann", "*", "*"): 3, ("*", "NORMAL", "*"): 1}),
        QuotaLimits(max_running_jobs=3),
        QuotaLimits({("*", "*", "*"): 4}, max_running_jobs_per_user=2),
    ]
)


@st.composite
def snapshots(draw: st.DrawFn, *, calm: bool = False) -> Snapshot:
    """Hosts of two groups with running jobs on them that fit, and a line. `calm`: all hosts work, it is known when all
    that runs ends, and nobody can be suspended."""
    sizes = {name: draw(st.sampled_from([4, 8])) for name in NAMES[: draw(st.integers(1, 6))]}
    groups = {name: draw(GROUPS) for name in sizes}
    free = dict(sizes)
    busy: list[RunningJob] = []
    for number in range(draw(st.integers(0, 5))):
        gpus = draw(st.sampled_from([1, 2, 4, 8]))
        first = draw(st.sampled_from(sorted(sizes)))
        there = [name for name in sorted(sizes) if groups[name] == groups[first]]
        on = draw(st.lists(st.sampled_from(there), min_size=1, max_size=3, unique=True))
        if any(free[name] < gpus for name in on):
            continue
        for name in on:
            free[name] -= gpus
        level = draw(LEVELS)
        leaving = draw(st.booleans()) and not calm
        busy.append(
            running(
                f"r{number}",
                *on,
                gpus=gpus,
                user=draw(USERS),
                priority=level,
                group=groups[first],
                since=-draw(st.sampled_from([60, 5_000])),
                ends=draw(TIMES.filter(lambda s: s is not None) if calm else TIMES),
                leaving=leaving,
                demotes_at=at(draw(st.sampled_from([-1, 50]))) if level is Priority.ABOVE_NORMAL else None,
                for_job=draw(st.sampled_from(["", "w0", "w1"])) if leaving else "",
                suspensions=draw(st.sampled_from([0, 0, 3])),
                can_suspend=not calm and draw(st.booleans()),
            )
        )
    fleet = tuple(
        Host(
            name,
            groups[name],
            gpus,
            free[name],
            usable=calm or draw(st.sampled_from([True, True, True, False])),
            rack=draw(st.sampled_from(["", "a", "b"])),
            zone=draw(st.sampled_from(["", "x", "y"])),
            epoch=draw(st.integers(0, 2)),
            reserved_for="" if calm else draw(st.sampled_from(["", "", "", "w0", "w2"])),
            reserved_until=None if calm else draw(st.sampled_from([None, at(30), at(-30)])),
            leaves_at=None if calm else draw(st.sampled_from([None, None, None, at(120)])),
            lemon=draw(st.sampled_from([0.0, 0.0, 0.3, 0.6])),
        )
        for name, gpus in sizes.items()
    )
    line = tuple(_waiting(draw, number, calm) for number in range(draw(st.integers(0, 6))))
    used = counted(*busy)
    for job in line:
        if job.holds_quota:
            key = QuotaKey(job.user, job.asked, job.group)
            used[key] = used.get(key, 0) + job.nodes
    return Snapshot(line, tuple(busy), fleet, used, QuotaLimits() if calm else draw(LIMITS))


def _waiting(draw: st.DrawFn, number: int, calm: bool) -> WaitingJob:
    back = draw(st.sampled_from([False, False, True])) and not calm
    last = tuple(draw(st.lists(st.sampled_from(["", *NAMES]), max_size=3))) if back else ()
    return waiting(
        f"w{number}",
        draw(st.integers(1, 4)),
        draw(st.sampled_from([1, 2, 4, 8])),
        since=-draw(st.integers(0, 9)),
        priority=Priority.NORMAL if calm else draw(LEVELS),
        user=draw(USERS),
        recovering=back,
        last=last,
        own_only=back and draw(st.booleans()),
        holds_quota=back and draw(st.booleans()),
        runs_for_s=draw(TIMES),
        suspects=draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), max_size=2)) if back else {},
        suspensions=draw(st.sampled_from([0, 0, 1])),
        group=draw(GROUPS),
    )


def _sizes(snapshot: Snapshot) -> Mapping[str, WaitingJob]:
    return {job.job_id: job for job in snapshot.waiting}


@given(snapshots())
def test_no_gpu_is_given_twice(snapshot: Snapshot) -> None:
    """Whole gangs, one rank on a host, and on no host more than is free there; only hosts that work, and are theirs."""
    jobs, hosts = _sizes(snapshot), {host.host_id: host for host in snapshot.hosts}
    taken: Counter[str] = Counter()
    for one in place(snapshot, POLICY, NOW).assignments:
        job = jobs[one.job_id]
        assert len(set(one.instances)) == len(one.instances) == job.nodes
        for name, epoch in zip(one.instances, one.epochs, strict=True):
            taken[name] += job.gpus
            host = hosts[name]
            over = host.reserved_until is not None and host.reserved_until <= NOW
            assert host.usable and host.group == job.group
            assert over or host.reserved_for in ("", job.job_id)
            assert epoch == host.epoch
    assert all(taken[name] <= hosts[name].free for name in taken)


@given(snapshots())
def test_everybody_in_line_is_answered_exactly_once(snapshot: Snapshot) -> None:
    """It starts, or it hears in a sentence why it does not, and its place in line, which is its own in its group."""
    answer = place(snapshot, POLICY, NOW)
    told = [one.job_id for one in (*answer.assignments, *answer.rejected)]
    assert sorted(told) == sorted(_sizes(snapshot))
    assert all(one.sentence and one.position > 0 for one in answer.rejected)
    groups = {job.job_id: job.group for job in snapshot.waiting}
    places = [(groups[one.job_id], one.position) for one in answer.rejected]
    assert len(set(places)) == len(places)


@given(snapshots(), st.randoms(use_true_random=False))
def test_placing_depends_on_no_order_of_reading(snapshot: Snapshot, drawn: object) -> None:
    """The same snapshot has the same answer, however it is listed, and as often as it is asked."""
    turned = {name: list(getattr(snapshot, name)) for name in ("waiting", "running", "hosts")}
    for things in turned.values():
        drawn.shuffle(things)  # type: ignore[attr-defined]
    mixed = replace(snapshot, **{name: tuple(things) for name, things in turned.items()})
    assert place(mixed, POLICY, NOW) == place(snapshot, POLICY, NOW) == place(snapshot, POLICY, NOW)


@given(snapshots())
def test_quotas_hold(snapshot: Snapshot) -> None:
    """No key has more than it may after the pass, unless it had before; nor do more jobs run than may.

    A person's gang that goes on elsewhere is nobody's to refuse: it had its place before there was a count of it.
    """
    waiting = tuple(replace(job, holds_quota=job.holds_quota or job.recovering) for job in snapshot.waiting)
    snapshot = replace(snapshot, waiting=waiting)
    jobs, limits = _sizes(snapshot), snapshot.limits
    answer = place(snapshot, POLICY, NOW)
    started = [jobs[one.job_id] for one in answer.assignments]
    fresh = [job for job in started if not job.holds_quota]
    used = Counter(dict(snapshot.used))
    for job in fresh:
        used[QuotaKey(job.user, job.asked, job.group)] += job.nodes
    for job in fresh:
        key = QuotaKey(job.user, job.asked, job.group)
        limit = limits.of(key)
        assert limit is None or used[key] <= limit
    holders = [*snapshot.running, *(job for job in snapshot.waiting if job.holds_quota), *fresh]
    if fresh and limits.max_running_jobs is not None:
        assert len(holders) <= limits.max_running_jobs
    made = [jobs[one.job_id] for one in answer.rejected if one.short_of is RejectionKind.ROOM]
    promised = [job for job in made if not job.holds_quota]
    going = {one.job_id for one in answer.suspensions} | {
        one.job_id for one in snapshot.running if one.leaving and one.for_job
    }
    if promised and limits.max_running_jobs is not None:
        assert len(holders) + len(promised) - len(going) <= limits.max_running_jobs
    for job in fresh:
        each = limits.max_running_jobs_per_user
        assert each is None or sum(one.user == job.user for one in holders) <= each


def _by_preemptor(answer: Placement) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in answer.suspensions:
        found.setdefault(one.for_job, set()).add(one.job_id)
    return found


@given(snapshots())
def test_victims_are_few_lower_and_leave_for_one(snapshot: Snapshot) -> None:
    """Each is of a lower priority, unprotected, not of the same user and priority, and no other's victim. Without any
    one of them the first that they leave for could not start; with all of them it can."""
    answer = place(snapshot, POLICY, NOW)
    jobs, busy = _sizes(snapshot), {job.job_id: job for job in snapshot.running}
    assert len({one.job_id for one in answer.suspensions}) == len(answer.suspensions)
    for name, victims in _by_preemptor(answer).items():
        job = jobs[name]
        for victim in (busy[one] for one in victims):
            assert priority_of(victim, NOW) < job.priority
            assert victim.can_suspend and not victim.leaving
            assert victim.suspensions < POLICY.suspensions_max
            assert (NOW - victim.since).total_seconds() >= POLICY.preemption_protect_s
            assert (victim.user, victim.asked) != (job.user, job.asked)
    first = next((one.job_id for one in answer.rejected if one.short_of is RejectionKind.ROOM), "")
    victims = _by_preemptor(answer).get(first, set())
    assert not victims or _could_start(snapshot, answer, jobs[first], victims)
    assert not any(_could_start(snapshot, answer, jobs[first], victims - {one}) for one in victims)


@st.composite
def contested(draw: st.DrawFn) -> Snapshot:
    """Every host in use, by gangs of low priorities that overlap on some, and a few large jobs that are before them."""
    names = [f"i-{number}" for number in range(draw(st.integers(4, 9)))]
    free, busy = dict.fromkeys(names, 8), []
    for number in range(draw(st.integers(3, 9))):
        gpus = draw(st.sampled_from([4, 8, 8]))
        there = [name for name in names if free[name] >= gpus]
        if not there:
            break
        on = draw(st.lists(st.sampled_from(there), min_size=1, max_size=3, unique=True))
        for name in on:
            free[name] -= gpus
        level, since = draw(st.sampled_from([Priority.NORMAL, Priority.LOW])), -draw(st.integers(1_000, 5_000))
        busy.append(running(f"r{number}", *on, gpus=gpus, priority=level, since=since))
    line = tuple(
        waiting(f"w{number}", draw(st.integers(1, 3)), since=number, priority=Priority.HIGH) for number in range(3)
    )
    return Snapshot(line, tuple(busy), tuple(Host(name, "", 8, free[name]) for name in names), counted(*busy))


@given(st.one_of(snapshots(), contested()))
def test_no_preemptor_has_a_victim_too_many(snapshot: Snapshot) -> None:
    """The first, the second and any other, each with what those before it have left: all its victims are enough, and
    all but any one of them are not."""
    real = Preemption.victims

    def checked(
        self: Preemption, job: WaitingJob, need: int, spoken_for: Iterable[str], budget: int, *, unlimited: bool = False
    ) -> list[RunningJob] | None:
        taken = {*spoken_for}
        found = real(self, job, need, taken, budget, unlimited=unlimited)
        if found is not None:
            assert _vacated(self, job, found, taken) >= need
            for one in found:
                assert _vacated(self, job, [other for other in found if other is not one], taken) < need
        return found

    with mock.patch.object(Preemption, "victims", checked):
        place(snapshot, POLICY, NOW)


def _vacated(preemption: Preemption, job: WaitingJob, victims: Iterable[RunningJob], taken: set[str]) -> int:
    """How many hosts that the job could use, and has not spoken for, do not fit it now and do without the victims."""
    room, found = preemption._hosts, 0
    for name, host in room.hosts.items():
        mine = host.usable and host.leaves_at is None and room.owner(host) in ("", job.job_id)
        free = room.free_for(name, job)
        back = sum(one.gpus for one in victims if name in one.hosts)
        spoken_for = name in taken or name in room.held or name in room.started
        found += mine and not spoken_for and free < job.gpus <= free + back
    return found


def _could_start(snapshot: Snapshot, answer: Placement, job: WaitingJob, victims: set[str]) -> bool:
    """Whether the first for whom others make room fits once they, and those that leave already, are gone, and those
    that start in this pass have what is theirs."""
    jobs = _sizes(snapshot)
    free = {host.host_id: host.free for host in snapshot.hosts}
    for one in answer.assignments:
        for name in one.instances:
            free[name] -= jobs[one.job_id].gpus
    for running_job in snapshot.running:
        if running_job.job_id in victims or (running_job.leaving and running_job.for_job):
            for name in running_job.hosts:
                free[name] += running_job.gpus
    hosts = tuple(replace(host, free=free[host.host_id]) for host in snapshot.hosts)
    return bool(place(Snapshot((job,), (), hosts), POLICY, NOW).assignments)


@given(snapshots())
def test_nothing_changes_by_the_clock_alone_before_the_time_given(snapshot: Snapshot) -> None:
    """A pass that orders nothing orders nothing until `next_at`: an idle tick needs to look at nothing else."""
    first = place(snapshot, POLICY, NOW)
    assume(not first.assignments and not first.suspensions)
    for seconds in (1, 29, 30, 49, 50, 59, 60, 119, 120, 599, 600, 839, 840, 3_599, 3_600, 9_999):
        if first.next_at is not None and at(seconds) >= first.next_at:
            break
        later = place(snapshot, POLICY, at(seconds))
        assert not later.assignments and not later.suspensions


@st.composite
def latecomers(draw: st.DrawFn) -> Mapping[int, WaitingJob]:
    """Jobs of the usual priority that are submitted while others start and end, by the step at which each is."""
    steps = draw(st.lists(st.integers(0, 5), max_size=4, unique=True))
    return {
        step: waiting(
            f"late-{step}",
            draw(st.integers(1, 3)),
            draw(st.sampled_from([1, 2, 4, 8])),
            user=draw(USERS),
            runs_for_s=draw(TIMES),
            group=draw(GROUPS),
        )
        for step in steps
    }


@given(snapshots(calm=True), latecomers())
def test_no_head_starves(snapshot: Snapshot, late: Mapping[int, WaitingJob]) -> None:
    """With true estimates: as jobs start and end and others come, the promise to the head moves by its slack at most,
    and it starts by then, whatever passes it."""
    now = 0.0
    promised: dict[str, datetime] = {}
    for step in range(60):
        if step in late:
            came = replace(late[step], queued_at=at(now))
            snapshot = replace(snapshot, waiting=(*snapshot.waiting, came))
        answer = place(snapshot, POLICY, at(now))
        for one in answer.reservations:
            if one.at is not None:
                slack = (one.at - _sizes(snapshot)[one.job_id].queued_at) * (POLICY.backfill_slack_percent / 100)
                assert one.at <= promised.setdefault(one.job_id, one.at + slack)
        delayed = {one.job_id: one.passed_since for one in answer.rejected}
        waits = tuple(replace(job, passed_since=delayed.get(job.job_id)) for job in snapshot.waiting)
        snapshot = replace(snapshot, waiting=waits)
        for started in answer.assignments:
            assert started.job_id not in promised or at(now) <= promised[started.job_id]
        snapshot = _started(snapshot, answer, now)
        ends = [job.ends_at for job in snapshot.running if job.ends_at is not None]
        if not ends:
            break
        now = (min(ends) - NOW).total_seconds()
        for job in snapshot.running:
            if job.ends_at == at(now):
                snapshot = _ended(snapshot, job)
    heads = {one.job_id for one in place(snapshot, POLICY, at(now)).reservations}
    assert not heads & set(promised)


def _started(snapshot: Snapshot, answer: Placement, now: float) -> Snapshot:
    """The assignments carried out; whose run time nobody knows runs for ever."""
    jobs, free = _sizes(snapshot), {host.host_id: host.free for host in snapshot.hosts}
    fresh = []
    for one in answer.assignments:
        job = jobs[one.job_id]
        ends = None if job.runs_for_s is None else now + job.runs_for_s
        started = running(
            one.job_id, *one.instances, gpus=job.gpus, since=now, ends=ends, can_suspend=False, group=job.group
        )
        fresh.append(replace(started, queued_at=job.queued_at))
        for name in one.instances:
            free[name] -= job.gpus
    left = tuple(job for job in snapshot.waiting if job.job_id not in {one.job_id for one in answer.assignments})
    hosts = tuple(replace(host, free=free[host.host_id]) for host in snapshot.hosts)
    return replace(snapshot, waiting=left, running=(*snapshot.running, *fresh), hosts=hosts)


def _ended(snapshot: Snapshot, job: RunningJob) -> Snapshot:
    hosts = tuple(
        replace(host, free=host.free + job.gpus) if host.host_id in job.hosts else host for host in snapshot.hosts
    )
    return replace(snapshot, running=tuple(one for one in snapshot.running if one != job), hosts=hosts)
