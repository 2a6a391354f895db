"""What the end of a driver means: one failure is a place in line, every other one is final and says who is to blame."""

from __future__ import annotations

import pytest
from gpu_recovery.core.ray.driver import DriverState, DriverStatus, ending_of
from gpu_recovery.core.task import EndingKind, FailureKind, failure_kind_of

VERL = "ValueError: Total available GPUs {} is less than total desired GPUs {}"
COMMAND_ERROR = "JOB_ENTRYPOINT_COMMAND_ERROR"


def failed(message: str = "", error_type: str = COMMAND_ERROR, exit_code: int | None = 1) -> DriverStatus:
    """A driver that Ray calls FAILED."""
    return DriverStatus(DriverState.FAILED, message, exit_code, error_type)


@pytest.mark.parametrize(("found", "wanted"), [("0", "8"), ("0.0", "8.0"), ("6.0", "8"), ("7.5", "8")])
def test_too_few_free_gpus_are_a_place_in_line(found: str, wanted: str) -> None:
    """verl prints whole numbers or floats; both say that the cluster is busy, and nothing about the job."""
    end = ending_of(failed(VERL.format(found, wanted)), "", 8.0, 8)
    assert end.kind is EndingKind.SHORT_OF_RESOURCES
    assert failure_kind_of(end) is FailureKind.INSUFFICIENT_RESOURCES


def test_what_the_message_leaves_out_is_found_in_the_log() -> None:
    """Ray repeats ten lines; verl's error is followed by the end of everything it had started."""
    status = failed("Job entrypoint command failed with exit code 1, last available logs\n" + "shutting down\n" * 10)
    assert status.needs_its_log
    assert ending_of(status, VERL.format(0, 8) + "\n" + "shutting down\n" * 500, 8.0, 8).kind is (
        EndingKind.SHORT_OF_RESOURCES
    )


@pytest.mark.parametrize(
    "words",
    [
        "Total available GPUs 4 is less than total desired 8 GPUs",
        "Total available GPUs: {'GPU': 4} are less than total desired: {'GPU': 8}",
        "Total available GPUs of 2 nodes\nless than total desired",
    ],
)
@pytest.mark.parametrize("is_in_log", [False, True])
def test_the_two_texts_of_seed_004_are_enough_whatever_the_rest_of_the_sentence(words: str, is_in_log: bool) -> None:
    """Another release of verl may word its sentence in another way: no number is needed."""
    status = failed("shutting down") if is_in_log else failed(f"ValueError: {words}\n")
    assert status.needs_its_log is is_in_log
    end = ending_of(status, words if is_in_log else "", 8.0, 8)
    assert (end.kind, end.sentence) == (EndingKind.SHORT_OF_RESOURCES, "found fewer free GPUs than it needs")


@pytest.mark.parametrize("words", ["Total available GPUs 0", "ValueError: 3 is less than total desired", "out of GPUs"])
def test_one_of_the_two_texts_is_not_enough(words: str) -> None:
    """A program may print how many GPUs it found."""
    assert ending_of(failed(words), words, 8.0, 8).kind is EndingKind.FAILED


def test_a_job_that_wants_what_it_asked_for_waits_while_the_cluster_is_smaller() -> None:
    """A node of the cluster may have left after the job was admitted, and another may join."""
    end = ending_of(failed(VERL.format(4, 8)), "", 4.0, 8)
    assert (end.kind, end.sentence) == (EndingKind.SHORT_OF_RESOURCES, "found 4 free GPUs of the 8 that it needs")


@pytest.mark.parametrize("in_all", [7.0, 0.0])
def test_more_gpus_than_the_job_asks_for_and_the_cluster_has_is_an_error_of_the_user(in_all: float) -> None:
    """It would never fit, however long it waits."""
    end = ending_of(failed(VERL.format(4.0, 8.0)), "", in_all, 4)
    assert failure_kind_of(end) is FailureKind.USER_ERROR
    assert "wants 8 GPUs" in end.sentence and f"{in_all:g} in all" in end.sentence


def test_a_size_that_nobody_knows_is_no_error_of_the_user() -> None:
    """Where the cluster's size cannot be asked for, the job goes on waiting."""
    assert failure_kind_of(ending_of(failed(VERL.format(0, 8)), "", None, 8)) is FailureKind.INSUFFICIENT_RESOURCES


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (failed("Traceback ...\nKeyError: 'x'"), FailureKind.RUNTIME_ERROR),
        (failed("", exit_code=-11), FailureKind.RUNTIME_ERROR),
        (failed("/bin/sh: 1: nosuchcmd: not found", exit_code=127), FailureKind.USER_ERROR),
        (failed("/bin/sh: 1: ./x: Permission denied", exit_code=126), FailureKind.USER_ERROR),
        (failed("no such file", "JOB_ENTRYPOINT_COMMAND_START_ERROR", None), FailureKind.USER_ERROR),
        (failed("404 for the archive", "RUNTIME_ENV_SETUP_FAILURE", None), FailureKind.USER_ERROR),
        (failed("cannot be negative", "JOB_SUPERVISOR_ACTOR_START_FAILURE", None), FailureKind.USER_ERROR),
        (failed("within 900 s", "JOB_SUPERVISOR_ACTOR_START_TIMEOUT", None), FailureKind.UNKNOWN),
        (failed("died", "JOB_SUPERVISOR_ACTOR_DIED", None), FailureKind.UNKNOWN),
        (failed("new in some later Ray", "SOMETHING_ELSE", None), FailureKind.UNKNOWN),
        (failed("", "", None), FailureKind.UNKNOWN),
        (DriverStatus(DriverState.GONE), FailureKind.UNKNOWN),
    ],
)
def test_every_other_failure_says_who_is_to_blame(status: DriverStatus, kind: FailureKind) -> None:
    """And none of them is taken for a lack of resources, which alone is tried again."""
    end = ending_of(status, "", 8.0, 8)
    assert failure_kind_of(end) is kind
    assert end.kind is not EndingKind.SHORT_OF_RESOURCES


def test_a_driver_that_succeeded_has_no_failure() -> None:
    """Even if it prints what a failed one prints."""
    status = DriverStatus(DriverState.SUCCEEDED, VERL.format(0, 8), 0)
    assert ending_of(status, "", 8.0, 8).kind is EndingKind.SUCCEEDED


def test_a_driver_stopped_in_ray_was_stopped_by_a_person() -> None:
    """Whoever uses Ray's own command line is obeyed like whoever uses ours."""
    assert ending_of(DriverStatus(DriverState.STOPPED), "", 8.0, 8).kind is EndingKind.STOPPED_BY_PERSON


def test_the_sentence_is_the_last_line_and_bounded() -> None:
    """A message of 20,000 characters must not fill the job's record; the last line names the error."""
    end = ending_of(failed("x\n" * 9_000 + "ValueError: " + "y" * 5_000), "", 8.0, 8)
    assert "ValueError: y" in end.sentence and len(end.sentence) < 400


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n"
            "KeyError: 'x'\nRunning entrypoint for job a--a01: python x.py",
            "KeyError: 'x'",
        ),
        ("2026-01-01 INFO job_manager.py:581 -- Runtime env is setting up.\n\n", "without a message"),
        ("", "without a message"),
    ],
)
def test_what_ray_writes_itself_is_not_taken_for_the_drivers_last_words(message: str, words: str) -> None:
    """Ray's own line about the entrypoint often comes after the output of a driver that fails at once."""
    assert ending_of(failed(message), "", 8.0, 8).sentence == f"exited with code 1 ({words})"


@pytest.mark.parametrize(
    "status",
    [
        failed(VERL.format(0, 8)),
        failed("not found", exit_code=127),
        failed("died", "JOB_SUPERVISOR_ACTOR_DIED", None),
        DriverStatus(DriverState.SUCCEEDED, "", 0),
        DriverStatus(DriverState.GONE),
    ],
)
def test_a_log_is_read_only_where_it_can_tell_more(status: DriverStatus) -> None:
    """Ray sends a log whole: it is not asked for where the message, or the type of the error, says enough."""
    assert not status.needs_its_log


@pytest.mark.parametrize("state", [DriverState.PENDING, DriverState.RUNNING])
def test_a_driver_that_waits_or_runs_has_not_ended(state: DriverState) -> None:
    """Its GPUs are not free."""
    assert not DriverStatus(state).has_ended
    assert DriverStatus(DriverState.STOPPED).has_ended and DriverStatus(DriverState.GONE).has_ended
