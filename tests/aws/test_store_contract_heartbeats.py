"""What every store promises about reports of agents: which reports count, and which are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from gpu_recovery.core.heartbeat import (
    BY_ROLE,
    PAST_RUNS_MAX,
    REPORTS_MAX,
    REPORTS_WINDOW_S,
    RETRY_AFTER_MAX_S,
    GpuHealth,
)
from gpu_recovery.core.instance.repair_proof import CLOCK_SKEW
from gpu_recovery.ports.errors import AnotherAgent, SequenceStale, TooManyReports
from gpu_recovery.ports.store import Store

from tests.aws.heartbeats import BOOT, NEXT_BOOT, REBOOTED_AT, UP, beat, by_gputasker, kept, log, of_next_boot
from tests.aws.records import NOW, A, B, later

# -- reports -----------------------------------------------------------------------------------------------------------


def test_the_first_report_has_none_before_it_and_is_read_back_whole(store: Store) -> None:
    """Every field survives."""
    first = beat(7, 0, 0, 1, health=GpuHealth.OK, digest="d1", utilisation="61ff")
    assert store.save_heartbeat(first, True) is None
    found = kept(store)
    assert (found.instance_id, found.seen_at, found.boot_id, found.booted_at) == (A, NOW, BOOT, NOW - UP)
    assert (found.sequence, found.interval_s, found.health, found.digest) == (7, 15, GpuHealth.OK, "d1")
    assert found.utilisation == "61ff"
    assert (found.ranks, found.orders, found.silent_since, found.heard) == (
        first.ranks,
        {},
        None,
        {BY_ROLE: 1},
    )


def test_each_report_answers_with_the_heartbeat_before_it(store: Store) -> None:
    """Whoever is heard of again, or has booted, is found by it without a read."""
    store.save_heartbeat(beat(1, 0, 0), True)
    for sequence in (2, 3, 4):
        before = kept(store)
        assert store.save_heartbeat(beat(sequence, 15 * sequence, 0), True) == before
        found = kept(store)
        assert (found.sequence, found.seen_at, found.heard[BY_ROLE]) == (sequence, later(15 * sequence), sequence)


def test_a_report_repeated_after_a_lost_answer_counts_again(store: Store) -> None:
    """It keeps its number, and it is a sign of life."""
    store.save_heartbeat(beat(3), True)
    store.save_heartbeat(beat(3, 2), True)
    assert (kept(store).sequence, kept(store).seen_at) == (3, later(2))


@pytest.mark.parametrize("present", [True, False])
def test_an_older_report_of_the_boot_is_refused_with_the_latest_number(store: Store, present: bool) -> None:
    """The agent goes on from there; nothing is written."""
    store.save_heartbeat(beat(9, 0, 0), True)
    before = kept(store)
    with pytest.raises(SequenceStale) as refused:
        store.save_heartbeat(beat(8, 15, 1), present)
    assert refused.value.last == 9
    assert kept(store) == before


def test_a_boot_before_the_last_is_refused(store: Store) -> None:
    """Its numbers may be higher: another machine speaks with this token, or an old report was held up."""
    store.save_heartbeat(of_next_boot(4, 600, 0), True)
    before = kept(store)
    with pytest.raises(SequenceStale) as refused:
        store.save_heartbeat(beat(99, 615, 1), True)
    assert refused.value.last == 4 and kept(store) == before


def test_another_boot_begins_to_count_anew(store: Store) -> None:
    """Its first number may be lower than the last of the boot before."""
    store.save_heartbeat(beat(900, 0, 0), True)
    before = store.save_heartbeat(of_next_boot(1, 600, 1), True)
    assert before is not None and (before.boot_id, before.sequence) == (BOOT, 900)
    found = kept(store)
    assert (found.boot_id, found.booted_at, found.sequence) == (NEXT_BOOT, REBOOTED_AT, 1)
    assert set(found.ranks) == {log(0), log(1)}


@pytest.mark.parametrize(("sooner", "heard"), [(0, True), (60, True), (61, False)])
def test_boots_are_told_apart_by_their_time_but_for_some_skew(store: Store, sooner: int, heard: bool) -> None:
    """Each is reckoned from an uptime and the time of receipt: they may differ by how long a report travelled."""
    store.save_heartbeat(beat(5), True)
    other = beat(1, 15, boot_id=NEXT_BOOT, booted_at=NOW - UP - timedelta(seconds=sooner))
    assert timedelta(seconds=60) == CLOCK_SKEW
    if heard:
        store.save_heartbeat(other, True)
    else:
        with pytest.raises(SequenceStale):
            store.save_heartbeat(other, True)
    assert kept(store).boot_id == (NEXT_BOOT if heard else BOOT)


# -- reports that come late --------------------------------------------------------------------------------------------


def test_a_late_report_moves_the_number_and_nothing_else(store: Store) -> None:
    """It is no sign of life: neither the instance nor a rank is seen by it, and silence goes on."""
    store.save_heartbeat(beat(1, 0, 0, health=GpuHealth.OK, digest="d1", utilisation="61"), True)
    assert store.mark_heartbeat_missing(A, NOW)
    before = kept(store)
    late = beat(2, 300, 0, 1, health=GpuHealth.IMPAIRED, digest="d2", utilisation="00")
    assert store.save_heartbeat(late, False) == before
    found = kept(store)
    assert found.sequence == 2
    for field in ("seen_at", "silent_since", "ranks", "health", "digest", "utilisation", "boot_id", "booted_at"):
        assert getattr(found, field) == getattr(before, field), field


def test_a_late_report_is_no_first_one(store: Store) -> None:
    """An instance that was never heard of stays so."""
    assert store.save_heartbeat(beat(1), False) is None
    assert store.load_heartbeats((A,)) == {}


def test_a_late_report_of_a_boot_that_is_over_is_passed_over(store: Store) -> None:
    """Its exits are told by themselves; the number of the boot that lives is not touched."""
    store.save_heartbeat(of_next_boot(4), True)
    before = kept(store)
    assert store.save_heartbeat(beat(99, 615, 0), False) == before
    assert kept(store) == before


def test_a_late_report_after_one_of_seed_000_is_passed_over(store: Store) -> None:
    """It may be of a boot that is over; the first report that is present says which one lives."""
    store.save_heartbeat(by_gputasker(0, 0), True)
    before = kept(store)
    assert store.save_heartbeat(beat(5, 15, 0), False) == before
    assert kept(store) == before
    assert store.save_heartbeat(of_next_boot(1, 600, 0), True) == before
    assert (kept(store).boot_id, kept(store).sequence) == (NEXT_BOOT, 1)


# -- agents of seed 000 ------------------------------------------------------------------------------------------------


def test_reports_without_a_boot_count_beside_those_with_one(store: Store) -> None:
    """An agent of seed 000 and ours may run side by side for a while: neither makes the other stale."""
    store.save_heartbeat(by_gputasker(0, 0), True)
    store.save_heartbeat(beat(41, 5, 1), True)
    store.save_heartbeat(by_gputasker(10, 0), True)
    found = kept(store)
    assert (found.boot_id, found.sequence, found.booted_at, found.interval_s) == (BOOT, 41, NOW - UP, 15)
    assert found.seen_at == later(10)
    assert {one: rank.seen_at for one, rank in found.ranks.items()} == {log(0): later(10), log(1): later(5)}
    with pytest.raises(SequenceStale):
        store.save_heartbeat(beat(40, 15), True)


def test_a_report_that_says_nothing_of_gpus_keeps_what_was_said(store: Store) -> None:
    """Health and digest are those of the last report that spoke of them."""
    store.save_heartbeat(beat(1, 0, health=GpuHealth.IMPAIRED, digest="d1"), True)
    store.save_heartbeat(by_gputasker(5), True)
    assert (kept(store).health, kept(store).digest) == (GpuHealth.IMPAIRED, "d1")
    store.save_heartbeat(beat(2, 10, health=GpuHealth.OK, digest="d2"), True)
    assert (kept(store).health, kept(store).digest) == (GpuHealth.OK, "d2")


def test_the_begin_of_an_idle_time_is_kept_until_a_gpu_works(store: Store) -> None:
    """Each idle report says its own time; the first of them counts. An exit that is sent alone says nothing."""
    idle = {"health": GpuHealth.OK, "utilisation": "00"}
    store.save_heartbeat(beat(1, 0, health=GpuHealth.OK, utilisation="61"), True)
    for sequence, after_s in ((2, 15), (3, 30)):
        store.save_heartbeat(beat(sequence, after_s, idle_since=later(after_s), **idle), True)
        assert kept(store).idle_since == later(15)
    store.save_heartbeat(beat(4, 45), True)
    assert kept(store).idle_since == later(15)
    store.save_heartbeat(beat(5, 60, health=GpuHealth.OK, utilisation="61"), True)
    assert kept(store).idle_since is None
    store.save_heartbeat(beat(6, 75, idle_since=later(75), **idle), True)
    assert kept(store).idle_since == later(75)


def test_the_activity_of_the_ranks_is_that_of_the_newest_report(store: Store) -> None:
    """A report without it ends it, because an older one says nothing of the present."""
    store.save_heartbeat(beat(1, 0, activity={"5": "[0]", "6": "[90,600]"}), True)
    assert kept(store).activity == {"5": "[0]", "6": "[90,600]"}
    store.save_heartbeat(beat(2, 15, activity={"5": "[0]"}), True)
    assert kept(store).activity == {"5": "[0]"}
    store.save_heartbeat(beat(3, 30), True)
    assert kept(store).activity == {}


def test_the_utilisation_is_that_of_the_last_report_of_the_gpus(store: Store) -> None:
    """An exit that is sent alone keeps it. A report of the GPUs without it, as of an older agent, ends it."""
    store.save_heartbeat(beat(1, 0, health=GpuHealth.OK, utilisation="61"), True)
    store.save_heartbeat(beat(2, 15), True)
    assert kept(store).utilisation == "61"
    store.save_heartbeat(beat(3, 30, health=GpuHealth.OK, utilisation="00"), True)
    assert kept(store).utilisation == "00"
    store.save_heartbeat(beat(4, 45, health=GpuHealth.OK), True)
    assert kept(store).utilisation == ""


# -- floods ------------------------------------------------------------------------------------------------------------


def test_so_many_reports_in_a_window_and_no_more(store: Store) -> None:
    """The refused one is not written, and the next window begins anew."""
    for n in range(REPORTS_MAX):
        store.save_heartbeat(beat(n + 1, n / 10), True)
    before = kept(store)
    with pytest.raises(TooManyReports) as refused:
        store.save_heartbeat(beat(REPORTS_MAX + 1, 200), True)
    assert refused.value.retry_after_s == RETRY_AFTER_MAX_S
    assert kept(store) == before
    with pytest.raises(TooManyReports) as refused:
        store.save_heartbeat(beat(REPORTS_MAX + 1, REPORTS_WINDOW_S - 7), True)
    assert refused.value.retry_after_s == 7
    store.save_heartbeat(beat(REPORTS_MAX + 1, REPORTS_WINDOW_S), True)
    assert (kept(store).heard, kept(store).sequence) == ({BY_ROLE: 1}, REPORTS_MAX + 1)


def test_late_reports_and_those_of_seed_000_count_into_the_window(store: Store) -> None:
    """Each is a write, whoever makes it."""
    store.save_heartbeat(beat(1), True)
    store.save_heartbeat(beat(2, 1), False)
    store.save_heartbeat(by_gputasker(2), True)
    assert kept(store).heard == {BY_ROLE: 3}


def test_whoever_floods_with_one_token_leaves_the_other_its_own_limit(store: Store) -> None:
    """The old one of a rotation may be in wrong hands; the agent with the new one is heard all the same, as often."""
    for n in range(REPORTS_MAX):
        store.save_heartbeat(beat(n + 1, 1), True, "old")
    for n in range(REPORTS_MAX):
        with pytest.raises(TooManyReports):
            store.save_heartbeat(beat(REPORTS_MAX + n + 1, 1), True, "old")
        store.save_heartbeat(beat(REPORTS_MAX + n + 1, 1), True, "new")
    with pytest.raises(TooManyReports):
        store.save_heartbeat(beat(2 * REPORTS_MAX + 1, 1), True, "new")
    store.save_heartbeat(beat(2 * REPORTS_MAX + 1, 1), True)
    assert kept(store).heard == {"old": REPORTS_MAX, "new": REPORTS_MAX, BY_ROLE: 1}
    store.save_heartbeat(beat(2 * REPORTS_MAX + 2, REPORTS_WINDOW_S), True, "new")
    assert kept(store).heard == {"new": 1}


def test_a_flood_of_one_instance_is_nobody_elses(store: Store) -> None:
    """Each has its own window."""
    for n in range(REPORTS_MAX):
        store.save_heartbeat(beat(n + 1, 1), True)
    assert store.save_heartbeat(beat(1, 2, instance_id=B), True) is None


# -- two agents --------------------------------------------------------------------------------------------------------


OLD, NEW = "0" * 16, "f" * 16


def test_of_two_agents_in_step_the_one_that_was_heard_of_later_is_heard(store: Store) -> None:
    """The same boot and the same numbers: only their names tell them apart, and a name never returns."""
    store.save_heartbeat(beat(1, 0, run=OLD), True)
    store.save_heartbeat(beat(2, 15, run=OLD), True)
    store.save_heartbeat(beat(2, 16, run=NEW), True)
    assert (kept(store).run, kept(store).past_runs) == (NEW, (OLD,))
    with pytest.raises(AnotherAgent) as refused:
        store.save_heartbeat(beat(3, 30, run=OLD), True)
    assert refused.value.known.run == NEW
    assert (kept(store).run, kept(store).sequence, kept(store).seen_at) == (NEW, 2, later(16))
    store.save_heartbeat(beat(3, 31, run=NEW), True)
    assert kept(store).sequence == 3


def test_an_agent_that_is_started_again_takes_its_own_place(store: Store) -> None:
    """Its numbers go on, or begin anew with the next boot; so many names are known again."""
    for number in range(1, 2 * PAST_RUNS_MAX):
        store.save_heartbeat(beat(number, number, run=f"{number:016x}"), True)
    assert kept(store).past_runs == tuple(f"{n:016x}" for n in range(PAST_RUNS_MAX - 1, 2 * PAST_RUNS_MAX - 1))
    store.save_heartbeat(replace(of_next_boot(1, 700), run=NEW), True)
    assert (kept(store).run, kept(store).boot_id, kept(store).sequence) == (NEW, NEXT_BOOT, 1)


def test_a_last_report_of_a_killed_agent_is_stale_and_no_sign_of_two(store: Store) -> None:
    """It was on its way while the next one began."""
    store.save_heartbeat(beat(4, 0, run=OLD), True)
    store.save_heartbeat(beat(6, 15, run=NEW), True)
    with pytest.raises(SequenceStale):
        store.save_heartbeat(beat(5, 16, run=OLD), True)


def test_an_agent_without_a_name_is_heard_as_ever(store: Store) -> None:
    """An older one, or one of seed 000: it takes nobody's place, and nobody's is kept from it."""
    store.save_heartbeat(beat(1, 0, run=OLD), True)
    store.save_heartbeat(beat(2, 15), True)
    store.save_heartbeat(by_gputasker(16), True)
    store.save_heartbeat(beat(3, 30, run=OLD), True)
    assert (kept(store).run, kept(store).past_runs, kept(store).sequence) == (OLD, (), 3)


def test_it_is_kept_when_operators_were_told_of_two(store: Store) -> None:
    """Of an instance that was heard of; of another nothing is made."""
    store.mark_duplicate_agent(A, NOW)
    assert not store.load_heartbeats((A,))
    store.save_heartbeat(beat(1, 0), True)
    store.mark_duplicate_agent(A, later(5))
    store.save_heartbeat(beat(2, 15), True)
    assert kept(store).doubled_at == later(5)
