"""The synthesised templates as a deployment would see them: every intrinsic function resolved to plain text.

`Ref` and `Fn::GetAtt` become `LogicalId` and `LogicalId.Attribute` without the hash at the end, so that tests can speak
of `TablesJobs.Arn`. Partition, region and account are arguments: one synthesis answers for China as well.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ACCOUNT = "111122223333"
NO_VALUE = "AWS::NoValue"
IMAGES = "Images"
"""Beginning of the logical ids of what builds images during a deployment and rests afterwards.

`tests/infra/test_image_build.py` tests these resources.
"""
_HASH = re.compile(r"[0-9A-F]{8}$")


@dataclass(frozen=True)
class Deployment:
    """`templates` by stack name; `resources` of all stacks by stack-qualified logical id, resolved."""

    templates: Mapping[str, dict[str, Any]]
    termination_protection: Mapping[str, bool]
    partition: str = "aws"
    region: str = "us-east-1"
    resources: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, **where: str) -> "Deployment":
        templates = {
            path.name.removesuffix(".template.json"): json.loads(path.read_text())
            for path in sorted(folder.glob("*.template.json"))
        }
        stacks = {
            name: artifact["properties"].get("terminationProtection", False)
            for name, artifact in json.loads((folder / "manifest.json").read_text())["artifacts"].items()
            if artifact["type"] == "aws:cloudformation:stack"
        }
        found = cls(templates, stacks, **where)
        for stack, template in templates.items():
            for logical_id, resource in template["Resources"].items():
                found.resources[f"{stack}/{_HASH.sub('', logical_id)}"] = found.resolve(resource, template)
        return found

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties of every resource of this type, by logical id without stack and hash."""
        return {
            name.split("/")[1]: resource.get("Properties", {})
            for name, resource in self.resources.items()
            if resource["Type"] == kind
        }

    def at_run_time(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties as of `of_type`, without the resources that work only during a deployment."""
        return {name: each for name, each in self.of_type(kind).items() if not name.startswith(IMAGES)}

    def package_functions(self) -> dict[str, Any]:
        """The functions that run the package `lambdas/`: not the console's, which has code of its own."""
        return {name: each for name, each in self.at_run_time("AWS::Lambda::Function").items() if "Console" not in name}

    def only(self, kind: str, containing: str = "") -> dict[str, Any]:
        (properties,) = (each for name, each in self.of_type(kind).items() if containing in name)
        return properties

    def outputs(self, stack: str) -> dict[str, Any]:
        template = self.templates[stack]
        return {name: self.resolve(output["Value"], template) for name, output in template["Outputs"].items()}

    def resolve(self, value: Any, template: Mapping[str, Any]) -> Any:
        if isinstance(value, list):
            return [self.resolve(item, template) for item in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, argument),) = value.items()
            if name == "Ref" or name.startswith("Fn::"):
                return self._call(name, argument, template)
        resolved = {key: self.resolve(item, template) for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item != NO_VALUE}

    def _call(self, name: str, argument: Any, template: Mapping[str, Any]) -> Any:
        pseudo = {
            "AWS::Partition": self.partition,
            "AWS::Region": self.region,
            "AWS::AccountId": ACCOUNT,
            "AWS::URLSuffix": "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com",
        }
        if name == "Ref":
            return pseudo.get(argument) or _HASH.sub("", argument)
        if name == "Fn::GetAtt":
            return f"{_HASH.sub('', argument[0])}.{argument[1]}"
        if name == "Fn::If":
            condition, if_true, if_false = argument
            return self.resolve(
                if_true if self._holds(template["Conditions"][condition], template) else if_false, template
            )
        if name == "Fn::Join":
            separator, parts = argument
            return separator.join(self.resolve(parts, template))
        if name == "Fn::Split":
            separator, text = self.resolve(argument, template)
            return text.split(separator)
        if name == "Fn::Select":
            index, parts = self.resolve(argument, template)
            return parts[index] if len(parts) > 1 else f"{parts[0]}[{index}]"  # an attribute is not known before
        if name == "Fn::FindInMap":
            table, row, column = self.resolve(argument, template)
            return template["Mappings"][table][row][column]
        if name == "Fn::ImportValue":
            return self._exported(argument)
        if name == "Fn::Sub" and isinstance(argument, str):
            return re.sub(r"\$\{([^}]+)}", lambda match: pseudo[match[1]], argument)
        raise ValueError(f"the templates use {name}, which this reader does not know")

    def _holds(self, condition: Mapping[str, Any], template: Mapping[str, Any]) -> bool:
        ((name, argument),) = condition.items()
        if name == "Fn::Not":
            return not self._holds(argument[0], template)
        if name == "Fn::Or":
            return any(self._holds(each, template) for each in argument)
        if name == "Fn::Equals":
            left, right = self.resolve(argument, template)
            return bool(left == right)
        raise ValueError(f"the templates use {name}, which this reader does not know")

    def _exported(self, name: str) -> Any:
        for template in self.templates.values():
            for output in template.get("Outputs", {}).values():
                if output.get("Export", {}).get("Name") == name:
                    return self.resolve(output["Value"], template)
        raise ValueError(f"no stack exports {name}")

    def allow_statements(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(resource type, logical id, statement) of every Allow statement, identity and resource policies alike."""
        for qualified, resource in self.resources.items():
            for document in _policy_documents(resource.get("Properties", {})):
                for statement in document["Statement"]:
                    if statement["Effect"] == "Allow":
                        yield resource["Type"], qualified.split("/")[1], statement


def _policy_documents(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("Statement"), list):
            yield value
        else:
            for item in value.values():
                yield from _policy_documents(item)
    elif isinstance(value, list):
        for item in value:
            yield from _policy_documents(item)


def listed(value: Any) -> list[Any]:
    """IAM writes one-element lists as the element."""
    return value if isinstance(value, list) else [value]
