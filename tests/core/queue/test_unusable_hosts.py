"""Wait reasons name the hosts that get no job: how many, and why."""

from __future__ import annotations

from gpu_recovery.core.fleet import HoldingLimit
from gpu_recovery.core.queue.snapshot import OutOfUse, RejectionKind
from gpu_recovery.core.queue.unusable_hosts import UnusableHosts

from tests.core.queue.build import at, host, hosts, passed, recovering, running, waiting, why

HELD = {"usable": False, "counts": False, "out_of_use": OutOfUse.HELD}
BREAKER = HoldingLimit("the circuit breaker", at(900))


def test_a_job_that_fits_but_for_held_hosts_is_told_what_holds_them() -> None:
    """The cluster is not too small: its repairs are held until the breaker permits a probe."""
    fleet = [*hosts("i-1", "i-2", "i-3"), *hosts("i-4", "i-5", "i-6", "i-7", "i-8", **HELD)]
    answer = passed([waiting("a", 8)], fleet, repairs_held_by=BREAKER)
    assert why(answer) == {
        "a": "needs 8 instance(s) with 8 GPU(s) each; the cluster has 3, used or free; "
        "5 are held by the circuit breaker until 00:15:00 UTC at the earliest"
    }
    assert answer.rejected[0].short_of is RejectionKind.HELD


def test_a_job_that_is_too_large_even_with_the_held_hosts_is_short_of_cluster() -> None:
    """The held hosts are named all the same."""
    answer = passed([waiting("a", 3)], [host("i-1"), host("i-2", **HELD)], repairs_held_by=BREAKER)
    assert answer.rejected[0].short_of is RejectionKind.CLUSTER
    assert why(answer)["a"].endswith("the cluster has 1, used or free; 1 is held by " + str(BREAKER))


def test_a_job_that_could_run_without_the_held_hosts_is_short_of_them_or_of_gpus() -> None:
    """Of held hosts if it would start with them now, else of GPUs that other jobs hold."""
    fleet = [host("i-1"), host("i-2", free=0), host("i-3", **HELD)]
    busy = [running("r", "i-2")]
    answer = passed([waiting("a", 2)], fleet, busy, repairs_held_by=HoldingLimit("the pause of ana (maintenance)"))
    assert why(answer) == {
        "a": "needs 2 instance(s) with 8 GPU(s) each; 1 are free, 1 is held by the pause of ana (maintenance)"
    }
    assert answer.rejected[0].short_of is RejectionKind.HELD and answer.rejected[0].blockers == ("r",)
    fleet = [host("i-1", free=0), host("i-2", free=0), host("i-3", **HELD)]
    answer = passed([waiting("a", 2)], fleet, [running("r", "i-1", "i-2")], repairs_held_by=BREAKER)
    assert answer.rejected[0].short_of is RejectionKind.GPUS and "1 is held by" in why(answer)["a"]


def test_a_job_that_wants_its_own_hosts_is_told_that_they_are_held() -> None:
    """Hosts that are not its own do not matter to it."""
    fleet = [host("i-1"), host("i-9"), host("i-2", **HELD), host("i-3", **HELD)]
    answer = passed([recovering("a", "i-1", "i-2", own_only=True)], fleet, repairs_held_by=BREAKER)
    assert why(answer)["a"] == f"waits for its own instances: i-2; 1 is held by {BREAKER}"


def test_hosts_are_counted_by_reason_if_they_are_large_enough() -> None:
    """The gravest reason first. A host of another group or with too few GPUs would be of no use to the job."""
    away = [
        host("i-1", usable=False, out_of_use=OutOfUse.DRAINING),
        host("i-2", usable=False, out_of_use=OutOfUse.IMPAIRED),
        host("i-3", usable=False, out_of_use=OutOfUse.IMPAIRED),
        host("i-4", 4, usable=False, out_of_use=OutOfUse.LOST),
        host("i-5", group="g", usable=False, out_of_use=OutOfUse.LOST),
        host("i-6"),
    ]
    assert why(passed([waiting("a", 2)], away))["a"].endswith("1 are free, 1 is DRAINING in ECS, 2 are impaired")
    assert why(passed([waiting("b", 2, 4)], away))["b"].endswith("1 is DRAINING in ECS, 2 are impaired, 1 is LOST")


def test_every_reason_has_words_for_one_host_and_for_several() -> None:
    """Without a limit that holds repairs, a held host waits for something else, such as a job that must leave."""
    for kind in OutOfUse:
        one, two = (UnusableHosts(hosts(*names, out_of_use=kind), None) for names in (("i-1",), ("i-1", "i-2")))
        assert one.sentence(8).startswith("1 ") and two.sentence(8).startswith("2 are " if kind != "held" else "2 wait")
    assert UnusableHosts(hosts("i-1"), BREAKER).sentence(8) == ""
