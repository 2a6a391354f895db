"""Seed 004's specification of a verl job: its YAML is submitted as it is, with the one line `template: verl`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.job.spec import Backend

from tests.job_api.test_submission import submitted
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions
from tests.lambdas.ray_function import ray_runner_of

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ROOT = Path(__file__).parents[2]
DELETIONS = ("~trainer.val_before_train", "~reward_model@other=x", "~data.shuffle=")
"""Options that delete an option, in each form of Hydra's grammar."""
YAML = """\
# gsm8k, two nodes
template: verl
workload: ppo
code_path: /private/common/code/verl/verl_repo
model_id: Qwen/Qwen2.5-0.5B-Instruct
train_file: /private/datasets/gsm8k/train.parquet
val_file: /private/datasets/gsm8k/test.parquet
nnodes: 2
n_gpus_per_node: 4
total_epochs: 1
total_training_steps: 10
save_freq: 10
test_freq: -1
"""
FIELDS: dict[str, Any] = {
    "template": "verl",
    "workload": "ppo",
    "code_path": "/private/verl",
    "model_id": "Qwen/Qwen2.5-0.5B-Instruct",
    "train_file": "/private/train.parquet",
    "val_file": "/private/test.parquet",
    "nnodes": 2,
    "n_gpus_per_node": 4,
}


@pytest.fixture
def api(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Api:
    """A deployment with a Ray cluster."""
    monkeypatch.setenv("RAY_QUEUE_URL", "https://sqs.us-east-1.amazonaws.com/111122223333/ray.fifo")
    functions.chill()
    return Api(functions)


def words(api: Api, **changes: Any) -> list[str]:
    """The words of the command of a job of the template, without fields that are None."""
    fields = {name: value for name, value in {**FIELDS, **changes}.items() if value is not None}
    answer = api.post("/jobs", fields)
    assert answer.status == 201, answer.body
    return shlex.split(api.functions.job(answer.body["job_id"]).spec.entrypoint)


def test_the_yaml_of_seed_004_is_submitted_and_its_driver_starts(api: Api) -> None:
    """The text is kept as it was written, and Ray gets verl's own command."""
    job_id = submitted(api, YAML).body["job_id"]
    assert api.functions.store.load_submitted(job_id) == YAML
    with ray_runner_of(api.functions) as ray:
        ray.deliver()
        (submission,) = ray.pool.submitted
    assert submission.submission_id == f"{job_id}--a01"
    assert shlex.split(submission.entrypoint) == [
        "python3",
        "-m",
        "verl.trainer.main_ppo",
        "algorithm.adv_estimator=gae",
        "data.train_files=/private/datasets/gsm8k/train.parquet",
        "data.val_files=/private/datasets/gsm8k/test.parquet",
        "actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct",
        "critic.model.path=Qwen/Qwen2.5-0.5B-Instruct",
        "trainer.nnodes=2",
        "trainer.n_gpus_per_node=4",
        "trainer.total_epochs=1",
        "trainer.total_training_steps=10",
        "trainer.save_freq=10",
        "trainer.test_freq=-1",
    ]
    assert submission.runtime_env["env_vars"]["PYTHONPATH"] == "/private/common/code/verl/verl_repo"
    assert submission.resources == {"worker_node": 1}


def test_the_example_of_the_page_is_accepted(api: Api) -> None:
    """With its comments and its override."""
    page = (ROOT / "docs/queue.md").read_text(encoding="utf-8")
    example = page.partition("### A job of verl")[2].partition("```yaml\n")[2].partition("```")[0]
    answer = submitted(api, example)
    assert answer.status == 201 and example.startswith("template: verl")
    assert api.functions.job(answer.body["job_id"]).spec.entrypoint.endswith("save_freq=10 data.train_batch_size=256")


def test_each_workload_has_its_program(api: Api) -> None:
    """GRPO has no critic; SFT has a trainer and a field of the model of its own, and needs no validation."""
    grpo, sft = words(api, workload="grpo"), words(api, workload="sft", val_file=None)
    assert grpo[2:4] == ["verl.trainer.main_ppo", "algorithm.adv_estimator=grpo"]
    assert not [word for word in grpo if word.startswith("critic.")]
    assert sft[2] == "verl.trainer.sft_trainer_ray" and "model.path=Qwen/Qwen2.5-0.5B-Instruct" in sft
    assert not [word for word in sft if word.startswith(("data.val_files", "algorithm."))]


def test_a_template_goes_with_the_other_fields_of_a_job(api: Api) -> None:
    """Overrides come last, so that they win, and no shell reads them. A checkpoint folder is verl's, too."""
    overrides = ["data.train_batch_size=256", "+note=$(reboot) 'x'", "trainer.logger=[console]", *DELETIONS]
    said = words(api, overrides=overrides, checkpoint_dir="/private/ckpt", priority="LOW", env={"PYTHONPATH": "/mine"})
    assert said[-7:] == ["trainer.default_local_dir=/private/ckpt", *overrides]
    (listed,) = api.get("/jobs").body["jobs"]
    assert (listed["backend"], listed["priority"], listed["workload"]) == (Backend.RAY, "LOW", "ppo")
    assert api.functions.job(listed["job_id"]).spec.env == {"PYTHONPATH": "/private/verl:/mine"}


def test_the_code_comes_before_a_path_in_the_runtime_env(api: Api) -> None:
    """Variables of `env` replace those of `runtime_env`, so the path of the user is kept behind that of the code."""
    fields = FIELDS | {"runtime_env": {"env_vars": {"PYTHONPATH": "/mine"}}}
    job_id = api.post("/jobs", fields).body["job_id"]
    with ray_runner_of(api.functions) as ray:
        ray.deliver()
        (submission,) = ray.pool.submitted
    assert submission.runtime_env["env_vars"]["PYTHONPATH"] == "/private/verl:/mine"
    assert submission.submission_id == f"{job_id}--a01"


@pytest.mark.parametrize("missing", ["code_path", "model_id", "train_file", "val_file", "nnodes", "n_gpus_per_node"])
def test_a_missing_field_is_named(api: Api, missing: str) -> None:
    """Before anything is stored."""
    fields = {name: value for name, value in FIELDS.items() if name != missing}
    assert refused(api.post("/jobs", fields), 422, missing)
    assert api.get("/jobs").body["jobs"] == []


@pytest.mark.parametrize(
    ("change", "field", "detail"),
    [
        ({"template": "megatron"}, "template", "verl"),
        ({"workload": "dpo"}, "workload", "ppo, grpo, sft"),
        ({"entrypoint": "python x.py"}, "entrypoint", "template"),
        ({"backend": "ecs"}, "backend", "Ray"),
        ({"task_definition": "x"}, "task_definition", "ray"),
        ({"code_path": "verl"}, "code_path", "absolute"),
        ({"model_id": "a b; reboot"}, "model_id", "letters"),
        ({"train_file": ["a", "b"]}, "train_file", "letters"),
        ({"total_epochs": 0}, "total_epochs", "whole number"),
        ({"save_freq": "often"}, "save_freq", "whole number"),
        ({"overrides": ["--help"]}, "overrides", "key=value"),
        *(
            ({"overrides": [option]}, "overrides", "~key")
            for option in ("~", "~=1", "~~a", "+~a.b", "~+a", "++a.b", "+a", "a.b", "~a b", "~1a", "~a\n", "~a;reboot")
        ),
        ({"overrides": ["~trainer.nnodes"]}, "overrides", "the field nnodes sets trainer.nnodes"),
        ({"overrides": ["~trainer"]}, "overrides", "the field nnodes sets trainer.nnodes"),
        ({"overrides": ["++trainer={nnodes: 64}"]}, "overrides", "the field nnodes sets trainer.nnodes"),
        ({"overrides": "a=b"}, "overrides", "list"),
        ({"overrides": ["a.b=1"] * 101}, "overrides", "at most 100"),
        ({"checkpoint_dir": "/a b"}, "checkpoint_dir", "letters"),
        ({"overrides": ["trainer.nnodes=64"]}, "overrides", "the field nnodes sets trainer.nnodes"),
        (
            {"overrides": ["++trainer.n_gpus_per_node=8"]},
            "overrides",
            "the field n_gpus_per_node sets trainer.n_gpus_per_node",
        ),
        ({"overrides": [f"a.b={'x' * 400}"] * 20}, "overrides", "6000 characters"),
        ({"env": {"PYTHONPATH": 5}}, "env.PYTHONPATH", "a text"),
        ({"runtime_env": {"env_vars": {"PYTHONPATH": 5}}}, "runtime_env.env_vars.PYTHONPATH", "a text"),
        ({"template": None}, "code_path", "template: verl"),
        ({"learning_rate": 0.1}, "learning_rate", "overrides"),
    ],
)
def test_a_field_that_cannot_be_is_named(api: Api, change: dict[str, Any], field: str, detail: str) -> None:
    """With what it must be. The fields of the template without the template say which line is missing."""
    fields = {name: value for name, value in (FIELDS | change).items() if value is not None}
    assert detail in refused(api.post("/jobs", fields), 422, field)


def test_a_job_without_the_template_may_leave_its_fields_empty(api: Api) -> None:
    """A client may send every field of the schema."""
    fields = dict.fromkeys([*FIELDS, "overrides"], None) | {"workload": "ppo", "nnodes": 1, "n_gpus_per_node": 8}
    assert api.post("/jobs", fields | {"backend": "ray", "entrypoint": "true"}).status == 201


def test_the_same_key_and_the_same_yaml_are_the_same_job(api: Api) -> None:
    """The digest is of what was sent, not of what the template makes of it."""
    first, again = (submitted(api, YAML, **{"idempotency-key": "k"}) for _ in range(2))
    assert (first.status, again.status) == (201, 200) and first.body["job_id"] == again.body["job_id"]
