"""What the recovery's own loop sees: how ranks ended, XIDs, silence, and probes that were made."""

from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.case import Topology, Worker
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    IdleCheckReport,
    Observation,
    ProbeReport,
    SilenceReport,
    WorkerHealth,
    XidReport,
)
from gpu_recovery.core.diagnosis.rules.instances import RULES, signal_of
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Probe, Remedy, Scope, ScopeKind
from gpu_recovery.core.xid import class_of

from tests.core.diagnosis.rule_results import AT_S, asked, found, instance

RACKS = Topology.of(Worker(f"w{n}", f"i-{n}", "rack-a" if n < 4 else "rack-b", n) for n in range(8))


def end(rank: int = 0, at_s: float = 9_000.0, **given: object) -> ExitReport:
    """How a rank ended."""
    return ExitReport(**{"report_id": "", "at_s": at_s, "rank": rank, **given})  # type: ignore[arg-type]


def xid(number: int, **given: object) -> XidReport:
    """An XID on a GPU of i-1, with what the policy makes of it."""
    return XidReport(
        **{  # type: ignore[arg-type]
            "report_id": "",
            "at_s": 0.0,
            "instance_id": "i-1",
            "gpu": "GPU-a",
            "xid": number,
            "asks": class_of(number),
            **given,
        }
    )


def silence(name: str, silent_s: float = 200.0, **given: object) -> SilenceReport:
    """A machine that is not heard of."""
    return SilenceReport(**{"report_id": "", "at_s": 0.0, "instance_id": name, "silent_s": silent_s, **given})  # type: ignore[arg-type]


def suspects(*reports: Observation) -> set[Cause]:
    """Every cause that anything speaks for."""
    verdict = asked(RULES, *reports)
    return {verdict.cause, *(one.cause for one in verdict.rivals)}


# -- how ranks end -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "signal", "said"),
    [
        (137, None, 9),
        (None, 9, 9),
        (-9, None, 9),
        (247, None, 9),
        (134, None, 6),
        (250, None, 6),
        (139, None, 11),
        (143, None, 15),
        (1, None, None),
        (128, None, None),
        (255, None, None),
        (None, None, None),
        (-1000, None, None),
    ],
)
def test_a_signal_is_read_however_it_is_told(code: int | None, signal: int | None, said: int | None) -> None:
    """By number, by the shell's 128 + n, by Python's -n and what becomes of it in one byte."""
    assert signal_of(end(code=code, signal=signal)) == said


@pytest.mark.parametrize(
    ("code", "causes"),
    [
        (137, {Cause.HOST_MEMORY, Cause.WORKER_CRASH}),
        (134, {Cause.WORKER_CRASH, Cause.GPU_CONTEXT, Cause.APPLICATION}),
        (135, {Cause.WORKER_CRASH, Cause.HOST_MEMORY}),
        (139, {Cause.WORKER_CRASH, Cause.GPU_FAULT, Cause.APPLICATION}),
        (1, {Cause.GPU_CONTEXT, Cause.APPLICATION}),
        (75, {Cause.PREEMPTED}),
        (124, {Cause.WORKER_HANG, Cause.NETWORK}),
        (127, {Cause.CONFIGURATION}),
        (0, {Cause.UNKNOWN}),
        (None, {Cause.UNKNOWN}),
    ],
)
def test_an_end_speaks_for_what_such_ends_come_from(code: int | None, causes: set[Cause]) -> None:
    """With its rivals; success and an end that nobody knows speak for nothing."""
    assert suspects(end(code=code)) == causes


@pytest.mark.parametrize("code", [1, 134, 137])
def test_an_end_that_may_be_anything_decides_nothing_alone(code: int) -> None:
    """Exit code 1 must not fail a job without another look: faulty GPUs give it too."""
    verdict = asked(RULES, end(code=code))
    assert not verdict.decided and verdict.next_probe is not None


def test_a_command_that_was_not_found_is_the_configuration() -> None:
    """Nothing to look at on any machine."""
    verdict = asked(RULES, end(code=127))
    assert (verdict.cause, verdict.remedy, verdict.decided) == (Cause.CONFIGURATION, Remedy.FAIL, True)


def test_whom_we_ended_is_a_consequence() -> None:
    """The launcher's SIGTERM and our SIGKILL are no crashes."""
    verdict = asked(RULES, end(code=137, by_us=True), end(1, code=143, by_us=True))
    assert verdict.cause is Cause.UNKNOWN
    assert [one.row for one in verdict.informational] == ["exit-after", "exit-after"]


def test_the_first_end_is_the_one_to_look_at() -> None:
    """A gang follows its first rank within seconds, with codes of all kinds."""
    later = [end(1, 9_005.0, code=134), end(1, 9_009.0, code=139)]
    assert {one.evidence for one in found(RULES, "exit", end(0, code=139), *later)} == {("r0",)}
    assert {one.evidence for one in found(RULES, "exit-after", end(0, code=139), *later)} == {("r1",), ("r2",)}
    ours_first = end(0, 8_000.0, code=137, by_us=True)
    assert {one.evidence for one in found(RULES, "exit", ours_first, *later)} == {("r1",)}


def test_ends_within_a_second_are_told_together() -> None:
    """Stops are told to the second: which was first is not known."""
    assert {one.evidence for one in found(RULES, "exit", end(0, code=139), end(1, 9_000.9, code=139))} == {
        ("r0",),
        ("r1",),
    }


# -- XIDs --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "cause", "decided"),
    [
        (79, Cause.GPU_FAULT, True),
        (48, Cause.GPU_FAULT, True),
        (54, Cause.GPU_FAULT, True),
        (74, Cause.GPU_FAULT, True),
        (94, Cause.GPU_FAULT, True),
        (31, Cause.APPLICATION, True),
        (13, Cause.APPLICATION, True),
        (63, Cause.GPU_FAULT, False),
        (78, Cause.CONFIGURATION, True),
        (43, Cause.UNKNOWN, False),
    ],
)
def test_an_xid_speaks_for_what_its_class_asks(number: int, cause: Cause, decided: bool) -> None:
    """The GPU where it asks for a reboot, the program where the program did it, nothing where it is no news."""
    verdict = asked(RULES, xid(number))
    assert (verdict.cause, verdict.decided) == (cause, decided)
    if cause is Cause.GPU_FAULT:
        assert verdict.scope == instance("i-1")


def test_an_xid_that_follows_another_anchors_nothing() -> None:
    """45 comes with the XID that says what is wrong, on however many machines."""
    many = [xid(45, instance_id=f"i-{n}") for n in range(200)]
    verdict = asked(RULES, *many, xid(79, instance_id="i-7"))
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.GPU_FAULT, instance("i-7"), True)
    assert not asked(RULES, xid(45)).decided


def test_an_xid_with_a_word_that_nobody_knows_is_looked_into() -> None:
    """A newer table's word is met with a look, not with silence."""
    assert asked(RULES, xid(79, asks="DANCE")).cause is Cause.GPU_FAULT


def test_a_programs_xid_twice_on_one_gpu_suspects_the_gpu() -> None:
    """13, 31 and 94 ask for a look at the second occurrence; one burst of lines is one occurrence."""
    at = (1_000.0, 1_010.0, 5_000.0)
    burst, twice = [xid(31, at_s=s) for s in at[:2]], [xid(31, at_s=s) for s in at]
    assert asked(RULES, *burst).cause is Cause.APPLICATION and asked(RULES, *burst).decided
    assert not asked(RULES, *twice).decided
    elsewhere = [xid(31, at_s=1_000.0), xid(31, at_s=5_000.0, gpu="GPU-b")]
    assert asked(RULES, *elsewhere).decided


# -- silence -----------------------------------------------------------------------------------------------------------


def test_a_machine_that_is_silent_alone_is_down_or_cut_off() -> None:
    """Its network is the rival."""
    verdict = asked(RULES, silence("i-1"), topology=RACKS)
    assert (verdict.cause, verdict.scope) == (Cause.NODE_FAULT, instance("i-1"))
    assert [(one.cause, one.scope) for one in verdict.rivals] == [(Cause.NETWORK, instance("i-1"))]


def test_a_silence_of_a_minute_is_none() -> None:
    """A few heartbeats are missing."""
    assert asked(RULES, silence("i-1", 60.0), topology=RACKS).cause is Cause.UNKNOWN


def test_who_was_heard_of_since_is_not_silent() -> None:
    """The silence is over."""
    heard = WorkerHealth(report_id="", at_s=9_500.0, instance_id="i-1")
    assert asked(RULES, silence("i-1"), heard, topology=RACKS).cause is Cause.UNKNOWN
    assert asked(RULES, silence("i-1"), heard, silence("i-1", at_s=9_900.0), topology=RACKS).cause is Cause.NODE_FAULT


def test_a_rack_that_is_silent_is_one_fault_of_its_network() -> None:
    """Four machines of four: nobody reboots four machines."""
    verdict = asked(RULES, *(silence(f"i-{n}") for n in range(4)), topology=RACKS)
    assert (verdict.cause, verdict.scope) == (Cause.NETWORK, Scope.of(ScopeKind.RACK, "rack-a"))
    assert (verdict.remedy, verdict.decided) == (Remedy.LEAVE_OUT, True)


def test_some_machines_of_a_rack_are_no_rack() -> None:
    """Two of four are not most of it, and one machine is no rack."""
    verdict = asked(RULES, silence("i-0"), silence("i-1"), topology=RACKS)
    assert ScopeKind.RACK not in {verdict.scope.kind, *(one.scope.kind for one in verdict.rivals)}
    alone = Topology.of([Worker("a", "i-0", "rack-a", 0), Worker("b", "i-9", "rack-b", 1)])
    assert asked(RULES, silence("i-0"), topology=alone).scope == instance("i-0")


def test_when_all_are_silent_it_is_who_listens() -> None:
    """Eight machines do not die at once."""
    verdict = asked(RULES, *(silence(f"i-{n}") for n in range(8)), topology=RACKS)
    assert (verdict.cause, verdict.scope, verdict.decided) == (Cause.CALLER, JOB, True)


def test_the_only_machine_is_not_everybody() -> None:
    """With one machine nothing can be told from nothing."""
    one = Topology.of([Worker("a", "i-0", "rack-a", 0)])
    assert asked(RULES, silence("i-0"), topology=one).cause is Cause.NODE_FAULT


# -- probes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probe", "cause"),
    [
        (Probe.DCGM, Cause.GPU_FAULT),
        (Probe.REBOOT, Cause.NODE_FAULT),
        (Probe.KERNEL_LOG, Cause.NODE_FAULT),
        (Probe.PAIRWISE, Cause.NETWORK),
        (Probe.SELF_REPORT, Cause.WORKER_HANG),
    ],
)
def test_a_probe_that_failed_speaks_for_what_it_shows(probe: Probe, cause: Cause) -> None:
    """At its own place."""
    verdict = asked(RULES, ProbeReport(report_id="", at_s=0.0, instance_id="i-1", probe=probe, passed=False))
    assert (verdict.cause, verdict.scope) == (cause, instance("i-1"))


@pytest.mark.parametrize("passed", [True, None])
def test_a_probe_that_did_not_fail_speaks_for_nobody(passed: bool | None) -> None:
    """A pass is said; one without a result is not even that: skipped is not passed."""
    verdict = asked(RULES, ProbeReport(report_id="", at_s=0.0, instance_id="i-1", probe=Probe.DCGM, passed=passed))
    assert verdict.cause is Cause.UNKNOWN and len(verdict.informational) == (1 if passed else 0)


# -- idle checks -------------------------------------------------------------------------------------------------------


def idle_check(name: str) -> IdleCheckReport:
    """An idle check that an instance had passed half an hour before the diagnosis."""
    return IdleCheckReport(report_id=f"idle-check/{name}", at_s=AT_S - 1_800, instance_id=name, level=3)


def test_a_passed_idle_check_is_told_of_the_instance_that_is_blamed_and_of_no_other() -> None:
    """Most instances of a gang have passed one. Without a cause it is told of none."""
    verdict = asked(RULES, xid(79), idle_check("i-1"), idle_check("i-2"))
    assert [(one.scope, one.english) for one in verdict.informational] == [
        (instance("i-1"), "i-1 had passed an idle check at level 3, 0.5 h before this diagnosis")
    ]
    assert not asked(RULES, idle_check("i-1"), idle_check("i-2")).informational


def test_a_rival_has_its_idle_check_told_too() -> None:
    """It is part of what speaks about the choice between the two."""
    verdict = asked(RULES, xid(79), silence("i-2"), idle_check("i-2"))
    assert verdict.scope == instance("i-1") and instance("i-2") in {one.scope for one in verdict.rivals}
    assert [one.scope for one in verdict.informational] == [instance("i-2")]


@pytest.mark.parametrize(
    "reports",
    [
        (xid(79),),
        (end(code=139, instance_id="i-1"),),
        (end(code=1, instance_id="i-1"),),
        (silence("i-1"), silence("i-2")),
        (WorkerHealth(report_id="", at_s=0.0, instance_id="i-1"),),
    ],
    ids=["XID", "segmentation fault", "exit code 1", "silence", "nothing"],
)
def test_a_passed_idle_check_changes_nothing_else_of_a_diagnosis(reports: tuple[Observation, ...]) -> None:
    """Cause, confidence, remedy, and the probe to run next: a fault may have begun since the pass."""
    without = asked(RULES, *reports)
    verdict = asked(RULES, *reports, idle_check("i-1"), idle_check("i-2"))
    assert replace(verdict, informational=()) == replace(without, informational=())
