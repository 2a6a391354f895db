"""The template `verl`: a job on Ray from the fields of seed 004's specification of a verl job.

A user of seed 004 names code, model and data, and no command. The template turns these fields into the command of
verl's trainer and into variables. The options are those of verl's own files `verl/trainer/config/ppo_trainer.yaml` and
`sft_trainer_engine.yaml`. `overrides` sets every further option.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from gpu_recovery.core.errors import SpecInvalid

VERL = "verl"
"""Name of the template."""
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "ppo": ("verl.trainer.main_ppo", "algorithm.adv_estimator=gae"),
    "grpo": ("verl.trainer.main_ppo", "algorithm.adv_estimator=grpo"),
    "sft": ("verl.trainer.sft_trainer_ray",),
}
"""Module and first options of verl's trainer, by workload."""
MODEL_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "ppo": ("actor_rollout_ref.model.path", "critic.model.path"),
    "grpo": ("actor_rollout_ref.model.path",),
    "sft": ("model.path",),
}
"""Options that name the model, by workload."""
NUMBERS: Mapping[str, int] = {"total_epochs": 1, "total_training_steps": 1, "save_freq": -1, "test_freq": -1}
"""Optional fields that are options of `trainer` under the same name, with their lower bounds."""
NUMBER_MAX = 10**9
"""Upper bound of such a number."""
FIELDS = ("code_path", "model_id", "train_file", "val_file", *NUMBERS, "overrides")
"""Fields that only a job of the template has."""
PLACE = re.compile(r"[A-Za-z0-9_.:/@+-]{1,255}")
"""Pattern of a path or a name. Hydra, which reads verl's options, gives other characters a meaning."""
_KEY, _VALUE = r"[A-Za-z_][A-Za-z0-9_./@-]{0,199}", r"=[^\x00-\x1f]{0,500}"
OVERRIDE = re.compile(rf"(\+\+?)?{_KEY}{_VALUE}|~{_KEY}({_VALUE})?")
"""Pattern of an option as Hydra reads it: it sets an option, adds an option, or deletes an option and needs no value.
The grammar is in hydra.cc/docs/advanced/override_grammar/basic.
"""
OVERRIDES_MAX = 100
"""Upper bound of the number of overrides."""
COUNTED = {f"trainer.{name}": name for name in ("nnodes", "n_gpus_per_node")}
"""Fields of the nodes and GPUs that the job is counted with, by verl's option. No override may contradict them."""


def job_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the specification of a job on Ray that a document of the template stands for.

    The model of the specification has checked each field by itself.

    Raises:
        SpecInvalid: a field is missing, or does not fit the template or another field.
    """
    workload = document.get("workload")
    if not isinstance(workload, str) or workload not in PROGRAMS:
        raise SpecInvalid("workload", f"must be one of {', '.join(PROGRAMS)} in the template {VERL}")
    if document.get("entrypoint") is not None:
        raise SpecInvalid("entrypoint", f"is made by the template {VERL}: leave it or the template out")
    if document.get("backend") not in (None, "ray"):
        raise SpecInvalid("backend", f"is Ray in the template {VERL}")
    job = {name: value for name, value in document.items() if name not in (*FIELDS, "template")}
    return {**job, "backend": "ray", "entrypoint": _command(workload, document), "env": _env(document)}


def _command(workload: str, document: Mapping[str, Any]) -> str:
    """Return the shell command of verl's trainer. Overrides come last, because the last option wins."""
    needs_validation = workload != "sft"
    options = [*PROGRAMS[workload][1:], f"data.train_files={_place('train_file', document)}"]
    if needs_validation or document.get("val_file") is not None:
        options.append(f"data.val_files={_place('val_file', document)}")
    options += [f"{name}={_place('model_id', document)}" for name in MODEL_OPTIONS[workload]]
    numbers = ("nnodes", "n_gpus_per_node", *NUMBERS)
    options += [f"trainer.{name}={document[name]}" for name in numbers if document.get(name) is not None]
    if document.get("checkpoint_dir") is not None:
        options.append(f"trainer.default_local_dir={_place('checkpoint_dir', document)}")
    return shlex.join(["python3", "-m", PROGRAMS[workload][0], *options, *_overrides(document.get("overrides") or [])])


def _env(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of the job, with the code first on Python's path."""
    code, env = _place("code_path", document), document.get("env") or {}
    if not code.startswith("/"):
        raise SpecInvalid("code_path", "must be an absolute path, as the nodes of the Ray cluster see it")
    # Variables in `env` replace those in `runtime_env`.
    known = env.get("PYTHONPATH", ((document.get("runtime_env") or {}).get("env_vars") or {}).get("PYTHONPATH", ""))
    return {**env, "PYTHONPATH": f"{code}:{known}" if known else code}


def _place(name: str, document: Mapping[str, Any]) -> str:
    value = document.get(name)
    if value is None:
        raise SpecInvalid(name, f"is needed by the template {VERL}")
    if not PLACE.fullmatch(str(value)):
        raise SpecInvalid(name, "must be a path or a name of letters, digits and _.:/@+-, at most 255")
    return str(value)


def _overrides(options: list[str]) -> list[str]:
    for option in options:
        name = option.partition("=")[0].lstrip("+~")
        for counted, field in COUNTED.items():
            if counted == name or counted.startswith(f"{name}."):
                raise SpecInvalid("overrides", f"must leave {name} out: the field {field} sets {counted}")
    return options
