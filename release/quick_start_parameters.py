"""Parameters of the quick-start template, and their places in a synthesised template.

The stacks are synthesised with a placeholder for each setting that a parameter gives. Here each placeholder becomes a
reference to its parameter. So the constructs of `infra/` need not know of parameters, and check every other setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.setting_readers import ECS_NAME, EMAIL, LOG_GROUP, ROLE_ARN, TAG_VALUE

NO_VALUE = {"Ref": "AWS::NoValue"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of the template.

    placeholder: text in the synthesised templates that stands for the value.
    pattern:     regular expression of the value, which CloudFormation checks before it creates anything.
    group:       heading above the parameter in the console of CloudFormation.
    default:     None: the user has to give a value.
    optional:    whether the value may be empty. A list of the template then leaves the item out.
    """

    name: str
    placeholder: str
    description: str
    pattern: str
    group: str
    default: str | None = None
    optional: bool = False

    @property
    def condition(self) -> str:
        """Name of the condition that the value is not empty."""
        return f"Has{self.name}"


RELEASE, CLUSTER, TRAINING, RECOVERY = "Files of the release", "Cluster", "Training", "Recovery"
PARAMETERS = (
    Parameter(
        "ReleaseBucket",
        "quick-start-bucket",
        "S3 bucket with the files of the release, in the region of the stack",
        r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        RELEASE,
    ),
    Parameter(
        "ReleasePrefix",
        "quick-start-prefix/",
        "Beginning of the keys of these files: empty, or text that ends with /",
        r"([\w!.*'()/-]{1,500}/)?",
        RELEASE,
        default="",
    ),
    Parameter(
        "ClusterName",
        "QuickStartCluster",
        "Name of the ECS cluster whose trainings are healed. The stack does not create the cluster",
        ECS_NAME,
        CLUSTER,
    ),
    Parameter(
        "ManagedTagValue",
        "QuickStartTagValue",
        "Only instances with the tag gpu-recovery:managed and this value may be rebooted",
        TAG_VALUE,
        CLUSTER,
        default="true",
    ),
    Parameter(
        "AlertEmail",
        "quick-start@example.com",
        "E-mail address that gets the notifications; confirm the subscription. Empty: nobody",
        f"({EMAIL})?",
        RECOVERY,
        default="",
        optional=True,
    ),
    Parameter(
        "ObserveOnly",
        "true-by-quick-start",
        "true: decisions are recorded and have no effect",
        "true|false",
        RECOVERY,
        default="false",
    ),
    Parameter(
        "TrainingTaskFamily",
        "QuickStartFamily1",
        "Family of task definitions that jobs may launch",
        ECS_NAME,
        TRAINING,
        default="gpu-training",
    ),
    *(
        Parameter(
            f"TrainingTaskFamily{number}",
            f"QuickStartFamily{number}",
            "A further family, or empty",
            f"({ECS_NAME})?",
            TRAINING,
            default="",
            optional=True,
        )
        for number in (2, 3)
    ),
    *(
        Parameter(
            f"TrainingRoleArn{number}",
            f"arn:aws:iam::000000000000:role/QuickStartRole{number}",
            "ARN of a task role or execution role that the task definitions name, or empty",
            f"({ROLE_ARN})?",
            TRAINING,
            default="",
            optional=True,
        )
        for number in (1, 2, 3)
    ),
    Parameter(
        "TrainingLogGroup",
        "QuickStartLogGroup",
        "Log group of the task definitions (awslogs-group)",
        LOG_GROUP,
        TRAINING,
        default="/ecs/gpu-training",
    ),
)
BY_PLACEHOLDER = {parameter.placeholder: parameter for parameter in PARAMETERS}
_PLACEHOLDERS = re.compile("|".join(re.escape(each) for each in sorted(BY_PLACEHOLDER, key=len, reverse=True)))


def declarations() -> dict[str, Any]:
    """Return the sections `Parameters`, `Conditions` and `Metadata` of the template."""
    groups: dict[str, list[str]] = {}
    declared = {}
    for each in PARAMETERS:
        groups.setdefault(each.group, []).append(each.name)
        declared[each.name] = {
            "Type": "String",
            "Description": each.description,
            "AllowedPattern": f"^({each.pattern})$",
            "ConstraintDescription": each.description,
            **({"Default": each.default} if each.default is not None else {}),
        }
    return {
        "Metadata": {
            "AWS::CloudFormation::Interface": {
                "ParameterGroups": [
                    {"Label": {"default": label}, "Parameters": names} for label, names in groups.items()
                ]
            }
        },
        "Parameters": declared,
        "Conditions": {
            each.condition: {"Fn::Not": [{"Fn::Equals": [{"Ref": each.name}, ""]}]}
            for each in PARAMETERS
            if each.optional
        },
    }


class PlaceholderMisplaced(ValueError):
    """A placeholder is where CloudFormation accepts no reference to a parameter."""


def with_references(value: Any) -> Any:
    """Return a part of a template in which every placeholder is a reference to its parameter.

    Raises:
        PlaceholderMisplaced: a key has a placeholder, or an `Fn::Sub`.
    """
    if isinstance(value, str):
        parts = list(_parts(value))
        return parts[0] if len(parts) == 1 else {"Fn::Join": ["", parts]}
    if isinstance(value, list):
        return [_item(each) for each in value]
    if not isinstance(value, Mapping):
        return value
    if misplaced := [key for key in value if _PLACEHOLDERS.search(key)]:
        raise PlaceholderMisplaced(f"the keys {misplaced}")
    if "Fn::Join" in value:
        return _joined(*value["Fn::Join"])
    if "Fn::Sub" in value and list(_found(value)):
        raise PlaceholderMisplaced(f"{value}")
    return {key: with_references(each) for key, each in value.items()}


def with_condition(resource: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource that is created only if its optional parameters have a value. Lists are no reason for that."""
    needed = {each.condition for each in _found(resource["Properties"], into_lists=False) if each.optional}
    needed -= {each.condition for each in _in_environment(resource)}
    if not needed:
        return dict(resource)
    (condition,) = needed
    return {**resource, "Condition": condition}


def _in_environment(resource: Mapping[str, Any]) -> Iterator[Parameter]:
    """The parameters in the variables of a function, which may be empty."""
    yield from _found(resource["Properties"].get("Environment", {}))


def _parts(text: str) -> Iterator[Any]:
    position = 0
    for match in _PLACEHOLDERS.finditer(text):
        if match.start() > position:
            yield text[position : match.start()]
        yield {"Ref": BY_PLACEHOLDER[match[0]].name}
        position = match.end()
    if position < len(text) or not text:
        yield text[position:]


def _joined(delimiter: str, values: Any) -> Any:
    if not isinstance(values, list):
        return {"Fn::Join": [delimiter, with_references(values)]}
    if delimiter:
        return {"Fn::Join": [delimiter, [with_references(each) for each in values]]}
    parts = [part for each in values for part in (_parts(each) if isinstance(each, str) else [with_references(each)])]
    return {"Fn::Join": ["", parts]}


def _item(value: Any) -> Any:
    """An item of a list. A scalar item with an optional parameter is left out if the parameter is empty."""
    is_scalar = isinstance(value, str) or (isinstance(value, Mapping) and any(key.startswith("Fn::") for key in value))
    optional = {each.condition for each in _found(value) if each.optional} if is_scalar else set()
    found = with_references(value)
    for condition in sorted(optional):
        found = {"Fn::If": [condition, found, NO_VALUE]}
    return found


def _found(value: Any, *, into_lists: bool = True) -> Iterator[Parameter]:
    """The parameters whose placeholders a part of a template has. Arguments of functions are no lists of items."""
    if isinstance(value, str):
        for match in _PLACEHOLDERS.finditer(value):
            yield BY_PLACEHOLDER[match[0]]
    elif isinstance(value, Mapping):
        for key, each in value.items():
            is_call = key.startswith("Fn::")
            items = each if is_call and isinstance(each, list) else [each]
            for one in items:
                yield from _found(one, into_lists=into_lists or (is_call and isinstance(one, list)))
    elif isinstance(value, list) and into_lists:
        for each in value:
            yield from _found(each)
