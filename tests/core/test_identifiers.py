"""The names by which ECS hands our identities back."""

from __future__ import annotations

import pytest
from gpu_recovery.core.identifiers import attempt_id, attempt_of, check_id, family_of, instance_of_check
from hypothesis import given
from hypothesis import strategies as st


@given(job_id=st.from_regex(r"[A-Za-z0-9_/-]{1,40}", fullmatch=True), attempt=st.integers(1, 5_000))
def test_an_attempts_name_is_read_back(job_id: str, attempt: int) -> None:
    """Whatever the job is called, even like an attempt of another."""
    assert attempt_of(attempt_id(job_id, attempt)) == (job_id, attempt)


@given(instance_id=st.from_regex(r"i-[0-9a-f]{8,17}", fullmatch=True), number=st.integers(1, 5_000))
def test_a_checks_name_is_read_back_and_is_no_attempts(instance_id: str, number: int) -> None:
    """A check's task is never taken for a rank."""
    assert instance_of_check(check_id(instance_id, number)) == instance_id
    assert attempt_of(check_id(instance_id, number)) is None


@pytest.mark.parametrize("started_by", ["", "ecs-svc/92233", "ada", "sft-1--a1", "--a01", "check/i-0a1", "check/x/1"])
def test_other_peoples_names_are_not_ours(started_by: str) -> None:
    """A service's tasks and a person's are left alone."""
    assert attempt_of(started_by) is None
    assert instance_of_check(started_by) is None


@pytest.mark.parametrize("name", ["llm", "llm:3", "arn:aws-cn:ecs:cn-north-1:111122223333:task-definition/llm:3"])
def test_every_name_of_a_task_definition_has_its_family(name: str) -> None:
    """A job may name its task definition in each of the three forms; ECS answers with the ARN."""
    assert family_of(name) == "llm"
