"""A submission that the API accepts, and the task definition that it names."""

from __future__ import annotations

from typing import Any

from tests.aws.counted_aws import LOGGING
from tests.lambdas.api_gateway import Api

ASKED = {
    "workload": "sft",
    "nnodes": 2,
    "n_gpus_per_node": 8,
    "task_definition": "gpu-training",
    "command": ["python", "train.py"],
    "env": {"LR": "0.1"},
    "user": "ana",
    "attempts_max": 3,
    "max_runtime_s": 3600,
}


def with_definition(api: Api, **changes: Any) -> None:
    """Another task definition than the usual one. Each container logs as usual unless it says otherwise."""
    usual = {"networkMode": "host", "containerDefinitions": [{"name": "a"}, {"name": "b", "essential": True}]}
    described = usual | changes
    containers = [{"logConfiguration": LOGGING} | container for container in described["containerDefinitions"]]
    answer = {"taskDefinition": described | {"containerDefinitions": containers}}
    api.functions.aws.answers["DescribeTaskDefinition"] = lambda asked: answer
