"""How a rank's end is read: every trap that published events set for a plainer rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.aws.ecs_events import task_fact
from gpu_recovery.core.task import (
    OUR_STOP,
    PREFLIGHT,
    ContainerFact,
    Ending,
    EndingKind,
    FailureKind,
    StopCode,
    TaskFact,
    ending,
    failure_kind_of,
)

from tests.core.build import NOW

EVENTS = Path(__file__).parents[1] / "events"
MAIN = "algorithms-job-00000000-0000-0000-0000-000000000000"
EXITED, USER = StopCode.ESSENTIAL_CONTAINER_EXITED, StopCode.USER_INITIATED


def _published(name: str) -> TaskFact:
    """The task of a published event; the fixtures of one project keep only the detail and leave out the ARN."""
    document = json.loads((EVENTS / f"{name}.json").read_text())
    return task_fact(
        {"taskArn": "arn:aws:ecs:eu-west-1:111122223333:task/gpu/0a1b", **document.get("detail", document)}, NOW
    )


def _ended(code: int | None, stop: str = EXITED, stopped_reason: str = "", reason: str = "") -> Any:
    fact = TaskFact(
        "0a1b",
        "STOPPED",
        NOW,
        containers=(ContainerFact("train", code, reason),),
        stop_code=stop,
        stopped_reason=stopped_reason,
    )
    return ending(fact, "train")


@pytest.mark.parametrize(
    ("event", "main", "kind", "code"),
    [
        ("detail_gpu_task_success_sidecar_143", MAIN, EndingKind.SUCCEEDED, 0),
        ("detail_gpu_task_success_sidecar_143", f"{MAIN}-timeout", EndingKind.CRASHED, 143),
        ("detail_gpu_task_fast_success_taskfailedtostart_exit0", MAIN, EndingKind.SUCCEEDED, 0),
        ("detail_gpu_task_taskfailedtostart_no_exitcodes", MAIN, EndingKind.NEVER_STARTED, None),
        ("detail_gpu_task_terminationnotice_no_exitcodes", MAIN, EndingKind.INTERRUPTED, None),
        ("detail_gpu_task_userinitiated_no_exitcodes", MAIN, EndingKind.STOPPED_BY_PERSON, None),
        ("detail_taskfailedtostart_resource_gpu_empty_containers", "train", EndingKind.SHORT_OF_RESOURCES, None),
        ("ecs_task_stopped_userinitiated_ec2_exit0_v7_cwlogs", "Webapp", EndingKind.STOPPED_BY_PERSON, 0),
        ("ecs_task_stopped_minimal_runvoy", "train", EndingKind.SUCCEEDED, 0),
    ],
)
def test_published_ends_are_read_as_what_they_were(event: str, main: str, kind: EndingKind, code: int | None) -> None:
    """A missing code, a code 0 under a person's stop, a sidecar's code, no containers: each has misled somebody."""
    read = ending(_published(event), main)
    assert (read.kind, read.exit_code) == (kind, code)
    assert read.sentence


@pytest.mark.parametrize("code", [1, 2, 42, 127, 128])
def test_a_plain_non_zero_exit_is_the_programs_own_failure(code: int) -> None:
    """Up to 128 the number is the program's word."""
    assert _ended(code).kind is EndingKind.FAILED
    assert str(code) in _ended(code).sentence


@pytest.mark.parametrize(("code", "signal"), [(134, 6), (137, 9), (139, 11)])
def test_an_end_by_signal_is_a_crash(code: int, signal: int) -> None:
    """Real GPU faults end ranks so: aborted, killed, segmentation fault."""
    assert _ended(code).kind is EndingKind.CRASHED
    assert f"signal {signal}" in _ended(code).sentence


def test_a_code_137_of_a_scale_in_is_no_fault() -> None:
    """SIGKILL after the stop timeout of a service's own stop says nothing about the rank."""
    read = _ended(137, StopCode.SERVICE_SCHEDULER_INITIATED, "Scaling activity initiated by (deployment ecs-svc/1)")
    assert read.kind is EndingKind.STOPPED_BY_PERSON


def test_our_own_stop_is_told_from_a_persons() -> None:
    """Both are UserInitiated; only ours begins as ours do, whatever code the rank leaves."""
    assert _ended(0, USER, f"{OUR_STOP}sft-1--a01 is being stopped").kind is EndingKind.STOPPED_BY_US
    assert _ended(0, USER, "Task stopped by user").kind is EndingKind.STOPPED_BY_PERSON
    assert _ended(1, USER, f"not by {OUR_STOP}").kind is EndingKind.STOPPED_BY_PERSON


@pytest.mark.parametrize("stop", [StopCode.SPOT_INTERRUPTION, StopCode.TERMINATION_NOTICE])
@pytest.mark.parametrize("code", [None, 0, 143])
def test_capacity_taken_away_is_an_interruption_whatever_the_code(stop: str, code: int | None) -> None:
    """A trainer that catches the warning may leave with 0, and is not done for it."""
    assert _ended(code, stop).kind is EndingKind.INTERRUPTED


@pytest.mark.parametrize("stop", ["InfrastructureHealth", "SomethingNew"])
def test_an_unknown_stop_code_is_a_host_fault(stop: str) -> None:
    """AWS adds values before it describes them; they are investigated, never an exception."""
    assert _ended(137, stop).kind is EndingKind.HOST_FAULT
    assert _ended(None, stop).kind is EndingKind.HOST_FAULT


@pytest.mark.parametrize(
    "text",
    [
        "TaskFailedToStart: RESOURCE:GPU",
        "TaskFailedToStart: RESOURCE:MEMORY",
        "TaskFailedToStart: AGENT",
        "TaskFailedToStart: MemberOf placement constraint unsatisfied",
        "TaskFailedToStart: NO ACTIVE INSTANCES",
        "TaskFailedToStart: EMPTY CAPACITY PROVIDER",
    ],
)
def test_a_task_that_found_no_place_is_short_of_resources(text: str) -> None:
    """These never ran for want of room, which is nobody's failure."""
    assert _ended(None, StopCode.TASK_FAILED_TO_START, text).kind is EndingKind.SHORT_OF_RESOURCES


def test_a_task_whose_image_cannot_be_pulled_never_started() -> None:
    """Room was there; the container's own reason says what was not."""
    read = _ended(None, StopCode.TASK_FAILED_TO_START, "Task failed to start", "CannotPullContainerError: no such tag")
    assert read.kind is EndingKind.NEVER_STARTED
    assert "CannotPullContainerError" in read.sentence


def test_a_vanished_container_is_a_crash_without_a_code() -> None:
    """After a reboot the agent assumes a missing container dead and gives no exit code."""
    read = _ended(None, EXITED, reason="ContainerVanishedError: container was not found")
    assert (read.kind, read.exit_code) == (EndingKind.CRASHED, None)


def test_running_out_of_host_memory_is_the_programs_failure() -> None:
    """The kernel's kill looks like a crash by its code 137, but a restart would end the same way."""
    read = _ended(137, EXITED, reason="OutOfMemoryError: Container killed due to memory usage")
    assert read.kind is EndingKind.FAILED
    assert "memory" in read.sentence


def test_without_a_name_the_only_container_is_the_main_one() -> None:
    """A person's override may name no container; with two of them nobody can tell."""
    one = TaskFact("0a1b", "STOPPED", NOW, containers=(ContainerFact("train", 0),), stop_code=EXITED)
    two = TaskFact("0a1b", "STOPPED", NOW, containers=(ContainerFact("a", 0), ContainerFact("b", 0)), stop_code=EXITED)
    assert ending(one, "").kind is EndingKind.SUCCEEDED
    assert ending(two, "").kind is EndingKind.CRASHED


def test_a_running_task_may_carry_a_stop_code_already() -> None:
    """The two-minute warning is told apart by lastStatus alone, so the fact keeps both."""
    warned = task_fact({"taskArn": "task/0a1b", "lastStatus": "RUNNING", "stopCode": "SpotInterruption"}, NOW)
    assert (warned.last_status, warned.stop_code) == ("RUNNING", "SpotInterruption")


@pytest.mark.parametrize("path", sorted(EVENTS.glob("*task*.json")), ids=lambda path: path.stem)
def test_every_published_task_event_can_be_read(path: Path) -> None:
    """Whatever is missing from them, none raises, and an end has a sentence."""
    assert ending(_published(path.stem), "").sentence


OWN = {EndingKind.FAILED, EndingKind.CRASHED, EndingKind.NEVER_STARTED, EndingKind.HOST_FAULT}


@pytest.mark.parametrize("kind", EndingKind)
def test_an_end_is_the_ranks_own_unless_somebody_ordered_it_or_took_the_capacity(kind: EndingKind) -> None:
    """Only such ends tell whether one rank ended or the gang."""
    assert Ending(kind, None, "it ended").is_own is (kind in OWN)


@pytest.mark.parametrize(
    ("code", "has_preflight", "is_preflight"), [(76, True, True), (76, False, False), (1, True, False)]
)
def test_code_76_is_a_failed_preflight_only_of_a_rank_that_has_one(
    code: int, has_preflight: bool, is_preflight: bool
) -> None:
    """Any other program may exit with it. The sentence and the kind of the attempt tell the two apart."""
    environment = {PREFLIGHT: "quick"} if has_preflight else {}
    containers = (ContainerFact("train", code),)
    task = TaskFact("t", "STOPPED", NOW, containers=containers, environment=environment, stop_code=EXITED)
    end = ending(task, "train")
    assert (end.kind, end.exit_code, end.is_preflight) == (EndingKind.FAILED, code, is_preflight)
    assert ("preflight" in end.sentence) is is_preflight
    assert failure_kind_of(end) is (FailureKind.HARDWARE if is_preflight else FailureKind.RUNTIME_ERROR)
