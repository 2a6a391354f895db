"""Recovering gangs: before the others of their priority, on what is left of their last attempt."""

from __future__ import annotations

from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.snapshot import RejectionKind

from tests.core.queue.build import given, host, hosts, passed, recovering, running, waiting, why


def test_a_recovering_gang_goes_before_its_equals_and_keeps_its_survivors_by_rank() -> None:
    """Rank 1's instance is sick: a spare takes its rank, the others stay where they were."""
    fleet = [host("i-0"), *hosts("i-1", "i-3", reserved_for="back"), host("i-2", usable=False)]
    answer = passed([waiting("first", since=-9_999), recovering("back", "i-3", "i-2", "i-1", since=0)], fleet)
    assert given(answer) == {"back": ("i-3", "i-0", "i-1")}
    assert set(why(answer)) == {"first"}


def test_a_higher_priority_goes_before_a_recovering_gang_but_not_onto_what_is_kept_for_it() -> None:
    """The instances that survive stay the gang's while one of them is repaired."""
    line = [waiting("urgent", 2, priority=Priority.HIGH), recovering("back", "i-1", "i-2", "i-3")]
    fleet = [*hosts("i-1", "i-2", reserved_for="back"), host("i-3", usable=False), host("i-4")]
    assert given(passed(line, fleet)) == {}
    assert given(passed(line, [*fleet, host("i-5")])) == {"urgent": ("i-4", "i-5")}


def test_a_recovering_gang_that_waits_keeps_the_spares_it_has_found_and_holds_nobody_else_back() -> None:
    """Otherwise small jobs would take each spare as it comes, and the gang would never be whole."""
    fleet = [*hosts("i-1", "i-2"), host("i-3", usable=False), host("i-4", gpus=4)]
    line = [recovering("back", "i-1", "i-3", "i-9", since=0), waiting("b"), waiting("small", gpus=4)]
    answer = passed(line, fleet)
    assert given(answer) == {"small": ("i-4",)}
    assert why(answer)["back"] == "needs 3 instance(s) with 8 GPU(s) each; 2 are free"


def test_a_reserved_host_that_is_out_of_use_serves_no_rank_however_small() -> None:
    """A rank with one GPU gets another host."""
    fleet = [host("i-1", usable=False, reserved_for="back"), host("i-2")]
    assert given(passed([recovering("back", "i-1", gpus=1)], fleet)) == {"back": ("i-2",)}


def test_a_gang_that_takes_its_own_instances_only_waits_for_them() -> None:
    """Seed 001 re-runs on the instance that came back, spare capacity or not; the rest may work."""
    fleet = [*hosts("i-1", "i-9"), host("i-2", usable=False)]
    answer = passed([recovering("back", "i-1", "i-2", own_only=True), waiting("b")], fleet)
    assert given(answer) == {"b": ("i-9",)}
    assert why(answer) == {"back": "waits for its own instances: i-2"}
    assert answer.rejected[0].short_of is RejectionKind.OWN
    again = passed([recovering("back", "i-2", "i-1", own_only=True)], hosts("i-1", "i-2"))
    assert given(again) == {"back": ("i-2", "i-1")}


def test_a_gang_that_takes_its_own_only_waits_until_it_has_heard_of_the_repair() -> None:
    """An instance that is back before the job was told is not taken behind its back."""
    answer = passed([recovering("back", "i-1", "i-2", own_only=True, repairing=True)], hosts("i-1", "i-2"))
    assert why(answer) == {"back": "waits for its own instances: their repair to be reported"}


def test_a_suspect_is_used_last_and_never_under_the_rank_it_was_suspected_for() -> None:
    """Who ends first next tells whether it was the machine or the rank's part of the program."""
    gang = recovering("back", "i-1", "i-2", suspects={"i-1": 0})
    assert given(passed([gang], hosts("i-1", "i-2", "i-3"))) == {"back": ("i-3", "i-2")}
    assert given(passed([gang], hosts("i-1", "i-2"))) == {"back": ("i-2", "i-1")}


def test_two_suspects_are_both_kept_from_their_ranks() -> None:
    """Their exchange must not put the second where it was suspected."""
    gang = recovering("back", "i-1", "i-2", "i-3", suspects={"i-1": 0, "i-2": 1})
    ranked = given(passed([gang], hosts("i-1", "i-2", "i-3")))["back"]
    assert (ranked[0] != "i-1", ranked[1] != "i-2", sorted(ranked)) == (True, True, ["i-1", "i-2", "i-3"])


def test_two_ranks_that_a_person_put_on_one_instance_are_not_relaunched_there_together() -> None:
    """An adopted gang may have shared an instance; ours has one rank on each."""
    assert given(passed([recovering("back", "i-1", "i-1")], hosts("i-1", "i-2"))) == {"back": ("i-1", "i-2")}


def test_a_spare_is_taken_from_the_survivors_rack() -> None:
    """The gang was near together before, and stays so where it can."""
    fleet = [host("i-1", rack="a"), *hosts("i-2", "i-3", rack="b"), host("i-4", rack="a")]
    assert given(passed([recovering("back", "i-1", "i-9")], fleet)) == {"back": ("i-1", "i-4")}


def test_a_recovering_gang_of_higher_priority_may_have_room_made_for_it() -> None:
    """Spares first: others of a lower priority give theirs, rather than that the gang waits for a repair."""
    fleet = [host("i-1", reserved_for="back"), host("i-2", usable=False), host("i-3", free=0)]
    busy = [running("low", "i-3", priority=Priority.LOW)]
    answer = passed([recovering("back", "i-1", "i-2", priority=Priority.HIGH)], fleet, busy)
    assert [(one.job_id, one.hosts) for one in answer.suspensions] == [("low", ("i-3",))]


def test_a_job_that_is_not_recovering_knows_nothing_of_earlier_instances() -> None:
    """Only a recovering gang has survivors to keep."""
    assert given(passed([waiting("a", last=("i-9",))], hosts("i-1", "i-9"))) == {"a": ("i-1",)}
