"""EASY backfill: the head of a line is promised hosts and a time, and what runs behind its back changes neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from gpu_recovery.core.queue.backfill import passers
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaLimits
from gpu_recovery.core.queue.snapshot import OutOfUse, Placement, RejectionKind, Reservation, RunningJob, WaitingJob

from tests.core.queue.build import HOUR, NOW, at, given, host, hosts, passed, running, waiting, why

FLEET = (*hosts("i-1", "i-2", free=0), *hosts("i-3", "i-4"))
BUSY = (running("r", "i-1", "i-2", ends=HOUR),)
HEAD = waiting("head", 4, since=-9)


def _runs(*line: object, **fields: object) -> set[str]:
    return set(given(passed([HEAD, *line], FLEET, BUSY, **fields)))  # type: ignore[list-item, arg-type]


def test_a_job_that_ends_before_the_head_starts_may_use_what_the_head_is_promised() -> None:
    """The GPUs would idle until then."""
    assert _runs(waiting("b", since=-1, runs_for_s=HOUR)) == {"b"}


def test_a_job_that_would_still_run_when_the_head_could_start_waits() -> None:
    """By a second, too; so does one of which its run time is unknown."""
    assert _runs(waiting("b", since=-1, runs_for_s=HOUR + 1)) == set()
    assert _runs(waiting("b", since=-1)) == set()


def test_what_the_head_is_not_promised_is_for_jobs_of_any_length() -> None:
    """The head is promised the hosts that are free first; what is free on the others is left over."""
    fleet = [*FLEET, host("i-5", free=4)]
    busy = [*BUSY, running("s", "i-5", gpus=4, ends=2 * HOUR)]
    answer = passed([HEAD, waiting("b", since=-2, gpus=4), waiting("c", since=-1, gpus=4)], fleet, busy)
    assert given(answer) == {"b": ("i-5",)}
    assert answer.reservations == (Reservation("head", "", ("i-1", "i-2", "i-3", "i-4"), at(HOUR)),)


def test_what_is_free_is_kept_for_the_head_though_as_much_comes_free_by_then() -> None:
    """Estimates are too long as a rule: with what is free kept, the head starts as soon as the first other ends."""
    busy = [running("r", "i-1", ends=HOUR), running("s", "i-2", ends=HOUR)]
    line = [waiting("head", 3, since=-9), waiting("b", since=-2)]
    answer = passed(line, FLEET, busy)
    assert given(answer) == {}
    assert set(given(passed(line, [host("i-1", free=0), *hosts("i-2", "i-3", "i-4")], busy[:1]))) == {"head"}


def test_where_nobody_knows_when_the_head_starts_what_fits_it_is_kept() -> None:
    """An estimate that is missing or has run out says nothing; one host more than the head needs is left over."""
    fleet = [*FLEET, host("i-5", free=0)]
    for ends in (None, -1):
        busy = [running("r", "i-1", "i-2", "i-5", ends=ends)]
        line = [waiting("head", 3, since=-9), waiting("b", since=-2, runs_for_s=1)]
        answer = passed(line, fleet, busy)
        assert given(answer) == {}
        assert answer.reservations[0].at is None
        assert {"i-3", "i-4"} < set(answer.reservations[0].hosts)
        assert set(given(passed(line, [*fleet, host("i-6", gpus=4), *hosts("i-7", gpus=8, free=7)], busy))) == set()


def test_hosts_that_the_head_cannot_use_are_left_over() -> None:
    """Hosts that are too small for it, and what others leave of those it is not promised."""
    line = [HEAD, waiting("small", since=-1, gpus=2)]
    assert given(passed(line, [*FLEET, host("i-5", gpus=4)], BUSY)) == {"small": ("i-5",)}


def test_a_host_in_repair_counts_for_the_head_but_nobody_knows_when() -> None:
    """It is not promised as long as others come free at a known time."""
    fleet = [*FLEET, host("i-0", usable=False)]
    (reserved,) = passed([HEAD], fleet, BUSY).reservations
    assert reserved.hosts == ("i-1", "i-2", "i-3", "i-4")
    (late,) = passed([waiting("head", 5)], fleet, BUSY).reservations
    assert (late.at, "i-0" in late.hosts) == (None, True)


def test_a_host_kept_for_another_job_is_promised_from_the_end_of_that_on() -> None:
    """A reservation that has no end promises nothing to anybody else."""
    kept = host("i-5", reserved_for="other", reserved_until=at(2 * HOUR))
    (late,) = passed([waiting("head", 5)], [*FLEET, kept], BUSY).reservations
    assert late.at == at(2 * HOUR)
    (never,) = passed([waiting("head", 5)], [*FLEET, host("i-5", reserved_for="other")], BUSY).reservations
    assert never.at is None


def test_what_starts_in_the_same_pass_is_waited_for_too() -> None:
    """The head's promise is made after those before it have taken their hosts."""
    line = [waiting("first", 2, since=-99, runs_for_s=2 * HOUR), HEAD]
    (reserved,) = passed(line, FLEET, BUSY).reservations
    assert reserved.at == at(2 * HOUR)


def test_small_jobs_on_one_host_are_all_waited_for() -> None:
    """A rank of 8 GPUs needs both halves of the host."""
    busy = [running("a", "i-1", gpus=4, ends=60), running("b", "i-1", gpus=4, ends=120)]
    assert passed([waiting("head")], hosts("i-1", free=0), busy).reservations[0].at == at(120)
    assert passed([waiting("head", gpus=4)], hosts("i-1", free=0), busy).reservations[0].at == at(60)


def test_there_is_one_reservation_for_each_group() -> None:
    """The head of one group keeps nobody of another back."""
    fleet = [host("a-1", group="a", free=0), host("b-1", group="b", free=0)]
    line = [waiting("x", group="a"), waiting("y", group="b"), waiting("z", group="b", since=-1)]
    assert [(one.group, one.job_id) for one in passed(line, fleet).reservations] == [("a", "x"), ("b", "y")]


def test_who_waits_is_told_its_position_whom_it_waits_for_and_from_when_it_may_start() -> None:
    """What `explain` shows of a job that is pending."""
    answer = passed([HEAD, waiting("b", since=-1)], FLEET, BUSY)
    head, behind = answer.rejected
    assert (head.short_of, head.position, head.blockers, head.earliest_at) == (RejectionKind.GPUS, 1, ("r",), at(HOUR))
    assert (behind.short_of, behind.position, behind.blockers, behind.earliest_at) == (
        RejectionKind.TURN,
        2,
        ("head",),
        at(HOUR),
    )
    assert why(answer)["b"] == "waits behind head"


def test_a_higher_priority_that_comes_later_heads_the_line() -> None:
    """The promise is to who is first, by the order of the line."""
    answer = passed([HEAD, waiting("urgent", 4, since=0, priority=Priority.HIGH)], FLEET, BUSY[:0])
    assert answer.reservations[0].job_id == "urgent"


def test_a_gang_that_ends_in_time_has_what_is_kept_and_what_is_left_over_together() -> None:
    """One rank on a host that the head is promised, one beside it."""
    busy = [running("r", "i-1", ends=60), running("s", "i-3", gpus=4, ends=HOUR)]
    fleet = [host("i-1", free=0), host("i-2"), host("i-3", free=4)]
    line = [waiting("head", 2, since=-9), waiting("gang", 2, gpus=4, since=-1, runs_for_s=60)]
    assert given(passed(line, fleet, busy)) == {"gang": ("i-2", "i-3")}


def test_a_gang_on_reserved_and_open_hosts_gets_one_host_for_each_rank() -> None:
    """Two reserved hosts and one of two open hosts serve three ranks; the second open host stays free."""
    busy = [running("r", "i-1", ends=60), running("s", "i-4", "i-5", gpus=4, ends=HOUR)]
    fleet = [host("i-1", free=0), *hosts("i-2", "i-3"), *hosts("i-4", "i-5", free=4)]
    line = [waiting("head", 3, since=-9), waiting("gang", 3, gpus=4, since=-1, runs_for_s=60)]
    chosen = given(passed(line, fleet, busy))["gang"]
    assert len(chosen) == 3 and {"i-2", "i-3"} < set(chosen)


def test_the_head_is_promised_no_host_that_needs_an_operator() -> None:
    """A job that ends on a quarantined host frees no GPUs for the head, and the head does not wait for that job."""
    fleet = [host("i-1", free=0, usable=False, counts=False, out_of_use=OutOfUse.QUARANTINED), host("i-2", free=0)]
    busy = [running("r", "i-1", ends=60), running("s", "i-2", ends=HOUR)]
    answer = passed([waiting("head", since=-9)], fleet, busy)
    assert answer.reservations == (Reservation("head", "", ("i-2",), at(HOUR)),)
    assert answer.rejected[0].blockers == ("s",) and answer.rejected[0].earliest_at == at(HOUR)


def test_the_head_is_promised_no_host_that_is_reserved_for_another_job_without_an_end() -> None:
    """The head does not wait for the jobs on such a host. A host whose reservation ends is promised from then on."""
    fleet = [host("i-1", free=0, reserved_for="other"), host("i-2", free=0)]
    busy = [running("r", "i-1", ends=60), running("s", "i-2", ends=HOUR)]
    answer = passed([waiting("head", 2, since=-9)], fleet, busy)
    assert answer.reservations == (Reservation("head", "", ("i-2",), None),)
    assert answer.rejected[0].blockers == ("s",)
    ending = [host("i-1", free=0, reserved_for="other", reserved_until=at(120)), fleet[1]]
    answer = passed([waiting("head", 2, since=-9)], ending, busy)
    assert answer.reservations == (Reservation("head", "", ("i-1", "i-2"), at(HOUR)),)


@pytest.mark.parametrize(
    ("waited_s", "passes"),
    [(60, {"median", "p90", "limit"}), (86_400, {"p90", "limit"}), (1_612_800 // 16, {"limit"})],
)
def test_the_longer_the_head_waits_the_less_is_risked(waited_s: int, passes: set[str]) -> None:
    """A job passes by the median of its kind, after a day by the 90th percentile, and in the end by its limit."""
    busy = [running("r", "i-0", ends=HOUR)]
    for name, bounds in {
        "median": {"median_s": 60, "runs_for_s": 2 * HOUR, "limit_s": 9 * HOUR},
        "p90": {"median_s": 60, "runs_for_s": HOUR, "limit_s": 9 * HOUR},
        "limit": {"median_s": 60, "runs_for_s": HOUR, "limit_s": HOUR},
    }.items():
        line = [waiting("head", 2, since=-waited_s), waiting(name, since=-1, **bounds)]
        answer = passed(line, [host("i-0", free=0), host("i-1")], busy)
        assert set(given(answer)) == ({name} & passes)


PASSED = [running("r", "i-1", since=-1_000, ends=100), running("b", "i-2", since=-50, ends=500)]
"""Before the head, and behind it: `b` was submitted and started while the head waits."""
LONG = waiting("head", 3, since=-400)


def _with_one_free(*line: WaitingJob, busy: Sequence[RunningJob] = PASSED, **fields: object) -> Placement:
    return passed(line, [*hosts("i-1", "i-2", free=0), host("i-3")], busy, **fields)  # type: ignore[arg-type]


def test_jobs_may_delay_the_head_by_its_slack() -> None:
    """It could start in 100 s without `b`, and has waited for 400 s. Five percent are 20 s. `b` moves neither."""
    for runs_for_s, starts in ((120, {"c"}), (121, set())):
        assert set(given(_with_one_free(LONG, waiting("c", since=-1, runs_for_s=runs_for_s)))) == starts


def test_who_started_before_the_head_came_or_is_before_it_in_the_queue_has_not_passed_it() -> None:
    """A higher priority, an earlier submission, a start before the head came: what they hold counts as taken."""
    for other in (
        replace(PASSED[1], priority=Priority.HIGH),
        replace(PASSED[1], queued_at=at(-500)),
        replace(PASSED[1], priority=Priority.LOW, queued_at=at(-500), since=at(-450)),
    ):
        answer = _with_one_free(LONG, waiting("c", since=-1, runs_for_s=520), busy=[PASSED[0], other])
        assert set(given(answer)) == {"c"}
    assert passers(LONG, [replace(PASSED[1], priority=Priority.LOW)]) == {"b"}
    assert passers(replace(LONG, suspended_at=at(-40)), PASSED) == frozenset()


def test_a_head_that_only_jobs_that_passed_it_delay_says_so_and_since_when() -> None:
    """`r` has ended. From that time on the slack is used up, second by second."""
    answer = passed([LONG], [host("i-1"), host("i-2", free=0), host("i-3")], PASSED[1:])
    (head,) = answer.rejected
    assert head.sentence.endswith("2 are free; b passed it, or it could start now")
    assert (head.passed_since, head.earliest_at) == (NOW, at(500))
    later = replace(LONG, queued_at=at(-415), passed_since=at(-15))
    for runs_for_s, starts in ((20, {"c"}), (21, set())):
        line = [later, waiting("c", since=-1, runs_for_s=runs_for_s)]
        answer = passed(line, [host("i-1"), host("i-2", free=0), host("i-3")], PASSED[1:])
        assert set(given(answer)) == starts
        assert answer.rejected[0].passed_since == at(-15)


def test_the_slack_of_a_job_counts_since_it_was_suspended() -> None:
    """A job that ran for a day waits only since it makes room."""
    old = replace(LONG, queued_at=at(-86_400), suspended_at=at(-400))
    for limit_s, starts in ((120, {"c"}), (121, set())):
        assert set(given(_with_one_free(old, waiting("c", since=-1, limit_s=limit_s)))) == starts


def test_the_slack_is_not_lent_from_a_kept_quota() -> None:
    """A head that could start but for its user's other job would have lost its place at the head."""
    limits = QuotaLimits({("ann", "*", "*"): 3})
    head = replace(LONG, user="ann")
    for runs_for_s, starts in ((100, {"c"}), (101, set())):
        line = [head, waiting("c", since=-1, runs_for_s=runs_for_s, user="ann")]
        answer = _with_one_free(
            *line, busy=[PASSED[0], replace(PASSED[1], queued_at=at(-500), ends_at=at(90))], limits=limits
        )
        assert set(given(answer)) == starts
