"""Timeouts of a job that do not fit each other: each known pair, with both values and what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.job.timeout_order import TimeoutProblem, refused, timeout_problems, timeouts_in
from gpu_recovery.core.job.timeout_variables import KNOWN, stated_timeouts
from gpu_recovery.core.policy import PRESETS, Preset, RecoveryPolicy, TimeoutOrder

JOB = JobSpec("llm", 8, 8, task_definition="training", stop_timeout_s=120)
POLICY = RecoveryPolicy()
REFUSING = replace(POLICY, timeout_order=TimeoutOrder.REFUSE)


def problems(
    environment: dict[str, str] | None = None, command: tuple[str, ...] = (), **job: Any
) -> tuple[TimeoutProblem, ...]:
    """What does not fit in a job with these variables, this command and these fields."""
    stated = stated_timeouts(environment or {}, command)
    return timeout_problems(replace(JOB, **{"timeouts": stated, **job}), POLICY)


def only(*asked: Any, **job: Any) -> TimeoutProblem:
    """The only problem."""
    (problem,) = problems(*asked, **job)
    return problem


def test_the_usual_job_has_no_problem() -> None:
    """Neither without any variable, nor with the ladder of pytorch/torchtitan#2899, 120 < 200 < 300 s."""
    assert problems() == ()
    ladder = ("--fault_tolerance.process_group_timeout_ms=120000", "--comm.train_timeout_seconds=200")
    variables = {"TORCHFT_TIMEOUT_SEC": "120", "TORCHFT_QUORUM_TIMEOUT_SEC": "300"}
    assert problems(variables, ("torchrun", *ladder, "--comm.init_timeout_seconds", "300")) == ()


def test_the_values_of_torchft_329_are_found() -> None:
    """A user set 3,000 to 6,000 s everywhere and waited for hours: meta-pytorch/torchft#329."""
    variables = {
        "TORCHFT_TIMEOUT_SEC": "3000",
        "TORCHFT_QUORUM_TIMEOUT_SEC": "6000",
        "TORCH_NCCL_NONBLOCKING_TIMEOUT": "6000",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600",
    }
    options = ("--fault_tolerance.process_group_timeout_ms=4500000", "--comm.train_timeout_seconds=2250")
    found = problems(variables, ("torchrun", "train.py", *options))
    assert [(one.inner, one.inner_s, one.outer, one.outer_s) for one in found] == [
        ("--fault_tolerance.process_group_timeout_ms", 4500, "--comm.train_timeout_seconds", 2250),
        ("TORCHFT_TIMEOUT_SEC", 3000, "--comm.train_timeout_seconds", 2250),
        ("TORCHFT_QUORUM_TIMEOUT_SEC", 6000, "heartbeat_stale_s + lost_timeout_s", 780),
        ("TORCH_NCCL_NONBLOCKING_TIMEOUT", 6000, "progress_timeout_s of the policy", 900),
    ]
    assert [one.stated for one in found] == [True, True, False, False]


@pytest.mark.parametrize(
    ("asked", "inner_s", "outer_s", "stated"),
    [
        ({"environment": {"TORCHFT_TIMEOUT_SEC": "600"}}, 600, 600, False),
        ({"environment": {"TORCHFT_TIMEOUT_SEC": "70", "TORCHFT_QUORUM_TIMEOUT_SEC": "60"}}, 70, 60, True),
        ({"environment": {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "150000"}}, 600, 480, False),
        ({"environment": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"}}, 60, 60, False),
        ({"environment": {"DEEPSPEED_TIMEOUT": "7200"}}, 432_000, 900, False),
        ({"command": ("--distributed-timeout-minutes", "30")}, 1_800, 900, False),
        ({"command": ("--ddp_timeout", "1800"), "progress_timeout_s": 1_200}, 1_800, 1_200, True),
        ({"progress_timeout_s": 20}, 25, 20, False),
        ({"progress_timeout_s": 3_600, "max_runtime_s": 3_600}, 3_600, 3_600, True),
        ({"suspend_grace_s": 118}, 118, 120, False),
        ({"environment": {"GPU_RECOVERY_STOP_TIMEOUT_S": "300"}}, 300, 120, True),
        ({"environment": {"SUSPEND_GRACE_S": "60"}, "stop_timeout_s": None, "task_stop_timeout_s": 30}, 60, 30, False),
        ({"environment": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}}, 600, 900, False),
        ({"environment": {"NCCL_TIMEOUT": "3600"}}, 3_600, 600, False),
    ],
)
def test_each_pair_is_told_with_both_values(
    asked: dict[str, Any], inner_s: float, outer_s: float, stated: bool
) -> None:
    """Both values are in seconds, whatever the unit of the variable. A second sentence says what to change."""
    found = only(asked.pop("environment", {}), asked.pop("command", ()), **asked)
    assert (found.inner_s, found.outer_s, found.stated) == (inner_s, outer_s, stated)
    assert f"{inner_s:g} s" in found.sentence and f"{outer_s:g} s" in found.sentence
    assert found.inner.split()[0] in found.sentence and ". " in found.sentence


def test_a_monitor_that_is_off_ends_no_process() -> None:
    """Then the wait for a dump has nothing around it."""
    assert problems({"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "150000", "TORCH_NCCL_ENABLE_MONITORING": "0"}) == ()


def test_the_classic_preset_stops_no_job_for_a_hang() -> None:
    """So a collective may wait for as long as it likes."""
    patient = replace(JOB, timeouts={"--ddp_timeout": 7_200})
    assert timeout_problems(patient, POLICY) and timeout_problems(patient, PRESETS[Preset.CLASSIC]) == ()


def test_what_a_running_rank_shows_replaces_what_was_stated() -> None:
    """The program of the image may set another value than the specification."""
    job = replace(JOB, timeouts={"--ddp_timeout": 1_800})
    (stated,) = timeout_problems(job, POLICY)
    (seen,) = timeout_problems(job, POLICY, {"--ddp_timeout": 3_600, "PASSWORD": 1})
    assert (stated.inner_s, seen.inner_s) == (1_800, 3_600)
    assert timeout_problems(job, POLICY, {"--ddp_timeout": 300}) == ()


def test_only_what_was_set_for_the_job_is_refused() -> None:
    """A pair with a default is a warning under every policy, and the switch turns all of it off."""
    certain = problems({"TORCHFT_TIMEOUT_SEC": "70", "TORCHFT_QUORUM_TIMEOUT_SEC": "60"})
    by_default = problems({"TORCHFT_TIMEOUT_SEC": "600"})
    assert refused(certain, POLICY) is None
    assert refused(by_default, REFUSING) is None
    problem = refused((*by_default, *certain), REFUSING)
    assert problem is not None and problem.field == "env.TORCHFT_TIMEOUT_SEC"
    off = replace(POLICY, timeout_order=TimeoutOrder.OFF)
    assert timeout_problems(replace(JOB, timeouts={"NCCL_TIMEOUT": 3_600}), off) == ()


@pytest.mark.parametrize(
    ("inner", "field"),
    [("--ddp_timeout", "command"), ("TORCHFT_TIMEOUT_SEC", "env.TORCHFT_TIMEOUT_SEC"), ("suspend_grace_s",) * 2],
)
def test_the_field_of_a_refusal_is_where_the_limit_stands(inner: str, field: str) -> None:
    """A client marks that field."""
    assert TimeoutProblem(inner, 1.0, "outer", 1.0, "").field == field


@pytest.mark.parametrize("value", ["", "abc", "-1", "1.5", "1e3", "1234567890", "grn_abcdefghijkl_s3cret"])
def test_only_whole_numbers_of_known_names_are_read(value: str) -> None:
    """A token in the wrong variable, or any other variable, is neither stored nor shown."""
    assert stated_timeouts({"NCCL_TIMEOUT": value, "TOKEN": "12345", "DDP_TIMEOUT": "60"}) == {}
    assert stated_timeouts({}, ("--ddp_timeout", value)) == {}


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun", "train.py", "--ddp_timeout", "1800"),
        ("torchrun", "train.py", "--ddp-timeout=1800"),
        ("bash", "-c", "source env.sh && torchrun train.py --ddp_timeout 1800"),
        ("bash", "-c", "torchrun it's.py \\\n --ddp_timeout 1800"),
    ],
)
def test_an_option_is_found_however_it_is_written(command: tuple[str, ...]) -> None:
    """Also in the script of a shell, and in a script that no shell could read."""
    assert stated_timeouts({}, command) == {"--ddp_timeout": 1_800}


def test_the_specification_replaces_the_container() -> None:
    """Its variables win, and its command takes the place of the container's."""
    container = {
        "environment": [{"name": "NCCL_TIMEOUT", "value": "10"}, {"name": "DEEPSPEED_TIMEOUT", "value": "20"}],
        "command": ["train", "--ddp_timeout", "30"],
    }
    assert timeouts_in(container, JOB) == {"NCCL_TIMEOUT": 10, "DEEPSPEED_TIMEOUT": 20, "--ddp_timeout": 30}
    own = replace(JOB, env={"NCCL_TIMEOUT": "11"}, command=("train",))
    assert timeouts_in(container, own) == {"NCCL_TIMEOUT": 11, "DEEPSPEED_TIMEOUT": 20}
    assert set(timeouts_in(container, JOB)) <= set(KNOWN)
