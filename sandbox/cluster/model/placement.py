"""Placement of a task: its resource need, the placement constraints, and ECS's rejection reasons."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.cluster.model.cluster import AwsApiError, ClusterModel
from sandbox.cluster.model.records import ModelInstance
from sandbox.cluster.model.statuses import ContainerInstanceStatus
from sandbox.cluster.model.views import attributes_of

ONE_INSTANCE = re.compile(r"\s*ec2InstanceId\s*==\s*(i-[0-9a-f]+)\s*")
"""Constraint expression that allows exactly one instance."""
UNSATISFIED = "MemberOf placement constraint unsatisfied."
_CLAUSE = re.compile(r"^(?P<subject>[\w:.\-/]+)\s*(?P<operator>==|!=|in\b|exists\b)\s*(?P<value>.*)$", re.DOTALL)


@dataclass(frozen=True)
class ResourceNeed:
    """Resources that one task needs: CPU units, MiB of memory, and the number of GPUs by container.

    A number of None means every GPU of the instance (`"ALL"`).
    """

    cpu: int
    memory: int
    gpus: dict[str, int | None]

    def gpu_count(self, instance: ModelInstance) -> int:
        """Return the number of GPUs that the task needs on this instance. `"ALL"` means at least one GPU."""
        return sum(max(len(instance.gpus), 1) if n is None else n for n in self.gpus.values())


def _gpu_value(requirements: list[dict[str, str]]) -> int | None:
    value = next((r["value"] for r in requirements if r["type"] == "GPU"), "0")
    if value == "ALL":
        return None
    if not value.isdigit():
        raise AwsApiError("InvalidParameterException", f"GPU requirement must be a number or ALL, not {value}")
    return int(value)


def need_of(definition: dict[str, Any], overrides: dict[str, Any]) -> ResourceNeed:
    """Return the resource need of a task.

    A size of the whole task replaces the sum over its containers. An override replaces its container's values.
    """
    by_name = {entry["name"]: entry for entry in overrides.get("containerOverrides", [])}
    gpus: dict[str, int | None] = {}
    cpu = memory = 0
    for container in definition["containerDefinitions"]:
        merged = container | by_name.get(container["name"], {})
        value = _gpu_value(merged.get("resourceRequirements", []))
        if value is None or value > 0:
            gpus[container["name"]] = value
        cpu += merged.get("cpu", 0)
        memory += merged.get("memoryReservation") or merged.get("memory") or 0
    return ResourceNeed(
        cpu=int(overrides.get("cpu") or definition.get("cpu") or cpu),
        memory=int(overrides.get("memory") or definition.get("memory") or memory),
        gpus=gpus,
    )


def _clause(text: str) -> Callable[[dict[str, str]], bool]:
    match = _CLAUSE.match(text.strip())
    if match is None:
        raise AwsApiError("InvalidParameterException", f"Invalid placement constraint expression: {text.strip()}")
    subject, operator, value = match["subject"], match["operator"], match["value"].strip().strip("'\"")
    if operator == "exists":
        return lambda facts: subject in facts
    if operator == "in":
        values = {item.strip().strip("'\"") for item in value.strip("[]").split(",")}
        return lambda facts: facts.get(subject) in values
    if operator == "==":
        return lambda facts: facts.get(subject) == value
    return lambda facts: facts.get(subject) != value


def predicate(expression: str) -> Callable[[ModelInstance], bool]:
    """Return a test for the instances that match an expression of the cluster query language.

    Supported are `==`, `!=`, `in` and `exists`, joined by `and` and `or`, without parentheses.
    """
    alternatives = [
        [_clause(part) for part in re.split(r"\s+and\s+|&&", side)] for side in re.split(r"\s+or\s+|\|\|", expression)
    ]

    def holds(instance: ModelInstance) -> bool:
        facts = {
            "ec2InstanceId": instance.instance_id,
            "agentConnected": str(instance.agent_connected).lower(),
        }
        facts |= {f"attribute:{name}": value for name, value in attributes_of(instance).items()}
        return any(all(clause(facts) for clause in clauses) for clauses in alternatives)

    return holds


def misfit(cluster: ClusterModel, instance: ModelInstance, need: ResourceNeed) -> str | None:
    """Return ECS's rejection reason if the task does not fit on the instance, else None."""
    if not instance.agent_connected:
        return "AGENT"
    cpu, memory, gpus = cluster.remaining(instance)
    if need.cpu > cpu:
        return "RESOURCE:CPU"
    if need.memory > memory:
        return "RESOURCE:MEMORY"
    return "RESOURCE:GPU" if need.gpu_count(instance) > len(gpus) else None


def choose(
    cluster: ClusterModel, constraints: list[dict[str, str]], need: ResourceNeed
) -> tuple[ModelInstance | None, list[dict[str, str]]]:
    """Return the fitting instance with the fewest tasks, or None and the failures that ECS would return.

    Raises:
        AwsApiError: A constraint is not supported, or the cluster has no ACTIVE instance.
    """
    predicates: list[Callable[[ModelInstance], bool]] = []
    pool: dict[str, ModelInstance] = cluster.instances
    for constraint in constraints:
        if constraint.get("type") != "memberOf":
            raise AwsApiError("UnsupportedFeatureException", f"placement constraint type {constraint.get('type')}")
        expression = constraint.get("expression", "")
        named = ONE_INSTANCE.fullmatch(expression)
        if named is None:
            predicates.append(predicate(expression))
        else:
            pool = {named[1]: pool[named[1]]} if named[1] in pool else {}
    candidates = [i for i in pool.values() if i.status is ContainerInstanceStatus.ACTIVE]
    for holds in predicates:
        candidates = [i for i in candidates if holds(i)]
    if not candidates:
        active = [i for i in cluster.instances.values() if i.status is ContainerInstanceStatus.ACTIVE]
        if not active:
            raise AwsApiError("InvalidParameterException", "No Container Instances were found in your cluster.")
        return None, [{"arn": instance.arn, "reason": UNSATISFIED} for instance in active]
    reasons = [misfit(cluster, instance, need) for instance in candidates]
    fitting = [instance for instance, reason in zip(candidates, reasons, strict=True) if reason is None]
    if fitting:
        return min(fitting, key=lambda instance: len(instance.live)), []
    rejected = zip(candidates, reasons, strict=True)
    return None, [{"arn": instance.arn, "reason": reason} for instance, reason in rejected if reason]
