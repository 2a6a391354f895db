"""What a job specification may say, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.job.spec import (
    COMMAND_AND_ENV_CHARACTERS_MAX,
    NNODES_MAX,
    OUR_VARIABLES,
    VARIABLES_OF_PROGRAMS,
    JobSpec,
)
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.job_api.job_spec import parse_spec

LEAST = {"workload": "sft", "nnodes": 2, "n_gpus_per_node": 8, "task_definition": "gpu-training"}


def test_the_least_that_must_be_said() -> None:
    """Everything else has a default."""
    assert parse_spec(LEAST) == JobSpec("sft", 2, 8, "gpu-training")


def test_everything_that_may_be_said() -> None:
    """Each field arrives as it was given."""
    document = {
        **LEAST,
        "container": "train",
        "command": ["python", "train.py"],
        "env": {"LR": "1e-4"},
        "user": "ada",
        "attempts_max": 5,
        "max_runtime_s": 3_600,
        "progress_timeout_s": 600,
        "task_definition": "gpu-training:17",
        "name": "Night.run_1-b",
    }
    assert parse_spec(document) == JobSpec(
        "sft",
        2,
        8,
        "gpu-training:17",
        "train",
        ("python", "train.py"),
        {"LR": "1e-4"},
        "ada",
        5,
        3_600,
        name=document["name"],
        progress_timeout_s=600,
    )


@pytest.mark.parametrize("text", ["high", "High", "HIGH", 30])
def test_a_priority_may_be_written_in_any_case_or_as_a_number(text: str | int) -> None:
    """People write `priority: high`."""
    assert parse_spec({**LEAST, "priority": text}).priority is Priority.HIGH


@pytest.mark.parametrize("field", LEAST)
def test_a_missing_field_is_named(field: str) -> None:
    """The four that have no default."""
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({key: value for key, value in LEAST.items() if key != field})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("workload", ""),
        ("workload", "SFT"),
        ("workload", "1st"),
        ("workload", "a" * 41),
        ("workload", "a\nb"),
        ("name", ""),
        ("name", "a b"),
        ("name", "-a"),
        ("name", "a" * 64),
        ("name", 7),
        ("workload", 7),
        ("workload", None),
        ("nnodes", 0),
        ("nnodes", NNODES_MAX + 1),
        ("nnodes", "2"),
        ("nnodes", 2.0),
        ("nnodes", True),
        ("nnodes", {"min": 2}),
        ("nnodes", {"max": 2}),
        ("nnodes", {"min": 2, "max": 4, "step": 2}),
        ("nnodes", {"min": 4, "max": 2}),
        ("nnodes", {"min": 2, "max": 2}),
        ("nnodes", {"min": 0, "max": 2}),
        ("nnodes", {"min": True, "max": 2}),
        ("nnodes", {"min": 1, "max": NNODES_MAX + 1}),
        ("nnodes", [2, 4]),
        ("n_gpus_per_node", 0),
        ("n_gpus_per_node", 17),
        ("n_gpus_per_node", False),
        ("task_definition", "arn:aws:ecs:eu-west-1:111122223333:task-definition/gpu:1"),
        ("task_definition", "a b"),
        ("task_definition", "a:"),
        ("task_definition", ""),
        ("container", 3),
        ("container", "c" * 256),
        ("user", ["ada"]),
        ("user", "u" * 256),
        ("command", "python train.py"),
        ("command", ["python", 3]),
        ("command", {}),
        ("env", ["LR=1"]),
        ("attempts_max", 0),
        ("attempts_max", 21),
        ("attempts_max", "3"),
        ("attempts_max", True),
        ("progress_timeout_s", 9),
        ("progress_timeout_s", "600"),
        ("max_runtime_s", 59),
        ("max_runtime_s", 90 * 86_400 + 1),
        ("max_runtime_s", 60.5),
    ],
)
def test_a_wrong_field_is_named_and_told_what_it_must_be(field: str, value: Any) -> None:
    """The user reads which field, and what to write instead."""
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({**LEAST, field: value})
    assert refused.value.field == field
    assert refused.value.detail.startswith("must be")
    assert str(refused.value) == f"{field}: {refused.value.detail}"


def test_an_elastic_job_has_a_range_of_instances() -> None:
    """A number stays a number."""
    spec = parse_spec({**LEAST, "nnodes": {"min": 2, "max": 4}})
    assert (spec.nnodes, spec.nnodes_min, spec.width_min) == (4, 2, 2)
    spec = parse_spec(LEAST)
    assert (spec.nnodes, spec.nnodes_min, spec.width_min) == (2, None, 2)


def test_a_job_on_ray_has_a_fixed_number_of_nodes() -> None:
    """Also a job of a template, whose command has the number."""
    ranged = {"nnodes": {"min": 1, "max": 2}}
    with pytest.raises(SpecInvalid, match="must be a whole number in a job on ray") as refused:
        parse_spec({**RAY, **ranged})
    assert refused.value.field == "nnodes"
    with pytest.raises(SpecInvalid, match="must be a whole number in the template verl") as refused:
        parse_spec({**LEAST, "template": "verl", **ranged})
    assert refused.value.field == "nnodes"


@pytest.mark.parametrize("name", sorted(OUR_VARIABLES))
def test_a_variable_that_we_set_cannot_be_given(name: str) -> None:
    """A rank must be able to trust it."""
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({**LEAST, "env": {name: "1"}})
    assert refused.value.field == f"env.{name}"


RAY = {"workload": "ppo", "nnodes": 1, "n_gpus_per_node": 8, "backend": "ray", "entrypoint": "python ppo.py"}


def with_variables(variables: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Give a job on ECS and a job on Ray these variables, each with the field that holds them."""
    return [
        ("env", {**LEAST, "env": variables}),
        ("env", {**RAY, "env": variables}),
        ("runtime_env.env_vars", {**RAY, "runtime_env": {"env_vars": variables}}),
    ]


@pytest.mark.parametrize("name", ["", "A=B", "A B", "1A", "A-B", "A.B", "A\n", "A\0", "\u00c4", "a" * 50 + "\0"])
def test_a_name_that_is_no_variable_is_refused(name: str) -> None:
    """ECS would refuse it only at launch, and each attempt would be spent on it."""
    for field, document in with_variables({name: "1"}):
        with pytest.raises(SpecInvalid, match="letters, digits and _") as refused:
            parse_spec(document)
        assert refused.value.field == field and len(refused.value.detail) < 200


@pytest.mark.parametrize(
    "name",
    [
        *(
            "GPU_RECOVERY_SIMULATE",
            "GPU_RECOVERY_STOP_TIMEOUT_S",
            "GPU_RECOVERY_NOTICE",
            "GPU_RECOVERY_NEW",
            "LAUNCH_TAG",
        ),
        *("GPUTASKER_RUNNING_TASKS_DIR", "ECS_CONTAINER_METADATA_URI_V4", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
    ],
)
def test_a_reserved_name_is_refused_with_its_field(name: str) -> None:
    """Such a variable configures our own tools, or the credentials of the task."""
    for field, document in with_variables({"LR": "1", name: "1"}):
        with pytest.raises(SpecInvalid, match="cannot be given") as refused:
            parse_spec(document)
        assert refused.value.field == f"{field}.{name}"


GUIDES = ("training", "training-library")
"""Pages for authors of training programs."""


def test_a_variable_that_the_documents_give_to_programs_is_accepted() -> None:
    """A distributed lock needs the address and the token; `_` and small letters are ordinary names."""
    variables = {"GPU_RECOVERY_API_URL": "https://h", "GPU_RECOVERY_TOKEN": "t", "_a": "\n", "AWS_REGION": "eu-west-1"}
    for _, document in with_variables(variables):
        parse_spec(document)
    guide = "".join((Path(__file__).parents[2] / f"docs/{name}.md").read_text() for name in GUIDES)
    guide += (Path(__file__).parents[2] / "agent" / "README.md").read_text()
    assert all(f"`{name}" in guide for name in VARIABLES_OF_PROGRAMS)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({**LEAST, "command": ["python", "a\0b"]}, "command"),
        ({**LEAST, "env": {"LR": "\0"}}, "env.LR"),
        ({**RAY, "entrypoint": "python\0"}, "entrypoint"),
        ({**RAY, "runtime_env": {"env_vars": {"LR": "\0"}}}, "runtime_env.env_vars.LR"),
    ],
)
def test_a_nul_character_is_refused(document: dict[str, Any], field: str) -> None:
    """No process can be started with it."""
    with pytest.raises(SpecInvalid, match="NUL") as refused:
        parse_spec(document)
    assert refused.value.field == field


def test_a_field_without_a_name_is_named_too() -> None:
    """An error without a field would leave the user searching."""
    with pytest.raises(SpecInvalid) as refused:
        parse_spec({**LEAST, "": 1})
    assert refused.value.field == '""'


def test_a_field_that_no_job_has_is_refused() -> None:
    """A misspelt field would otherwise be a wish that nobody hears; the right names are listed."""
    with pytest.raises(SpecInvalid, match="n_gpus_per_node") as refused:
        parse_spec({**LEAST, "n_gpus": 8})
    assert refused.value.field == "n_gpus"


@pytest.mark.parametrize("document", [None, [], "sft", 3])
def test_a_body_that_is_no_object_is_refused(document: Any) -> None:
    """Any JSON may arrive."""
    with pytest.raises(SpecInvalid) as refused:
        parse_spec(document)
    assert refused.value.field == "body"


def test_command_and_env_together_fit_into_the_overrides() -> None:
    """ECS refuses longer overrides at launch, which is too late to say so; quotes count as they are sent."""
    document = {**LEAST, "command": ["x"], "env": {"K": "v"}}
    parse_spec(document)
    for filler in ("x", '"'):
        longest = 0
        for length in range(COMMAND_AND_ENV_CHARACTERS_MAX, 0, -1):
            try:
                parse_spec({**document, "command": [filler * length]})
            except SpecInvalid as refused:
                assert (refused.field, str(COMMAND_AND_ENV_CHARACTERS_MAX) in refused.detail) == ("env", True)
                continue
            longest = length
            break
        sent = json.dumps({"command": [filler * longest], "environment": [{"name": "K", "value": "v"}]})
        assert COMMAND_AND_ENV_CHARACTERS_MAX - 200 < len(sent) < COMMAND_AND_ENV_CHARACTERS_MAX + 200


ON_RAY = {"workload": "sft", "nnodes": 1, "n_gpus_per_node": 8, "backend": "ray", "entrypoint": "python a.py"}


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, True), (1_000_000, True), (1_000_001, False)])
def test_a_resource_of_a_driver_has_its_limits(count: int, fits: bool) -> None:
    """From 1 to a million, both included."""
    document = {**ON_RAY, "entrypoint_resources": {"big": count}}
    if fits:
        assert parse_spec(document).entrypoint_resources == {"big": count}
        return
    with pytest.raises(SpecInvalid, match="entrypoint_resources"):
        parse_spec(document)


@pytest.mark.parametrize(("length", "fits"), [(64, True), (65, False)])
def test_the_name_of_a_resource_has_at_most_64_characters(length: int, fits: bool) -> None:
    """The limit itself fits."""
    document = {**ON_RAY, "entrypoint_resources": {"n" * length: 1}}
    if fits:
        assert parse_spec(document).entrypoint_resources == {"n" * length: 1}
        return
    with pytest.raises(SpecInvalid, match="entrypoint_resources"):
        parse_spec(document)


@pytest.mark.parametrize("more", [0, 1])
def test_a_runtime_env_has_at_most_its_limit_of_characters(more: int) -> None:
    """As JSON: the limit itself fits."""
    spent = len(json.dumps({"config": {"a": ""}}))
    document = {**ON_RAY, "runtime_env": {"config": {"a": "x" * (16_000 - spent + more)}}}
    if not more:
        assert len(parse_spec(document).runtime_env) == 16_000
        return
    with pytest.raises(SpecInvalid, match="runtime_env"):
        parse_spec(document)
