"""One CloudFormation template with the resources of both stacks and the parameters of the quick start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from release import version
from release.quick_start_parameters import PARAMETERS, declarations, with_condition, with_references

TEMPLATE = "gpu-recovery.template.json"
"""Name of the file."""
PLACEHOLDER = {parameter.name: parameter.placeholder for parameter in PARAMETERS}
"""Text that stands for the value of each parameter in the synthesised stacks, by the name of the parameter."""
OBSERVES, OBSERVES_BY_PARAMETER = '"observe_only": true', f'"observe_only": {PLACEHOLDER["ObserveOnly"]}'


class TemplatesDiffer(ValueError):
    """The two stacks cannot become one template."""


def quick_start_template(state: Mapping[str, Any], recovery: Mapping[str, Any]) -> dict[str, Any]:
    """Return one template with the resources of both stacks and the parameters of the quick start.

    Raises:
        TemplatesDiffer: a name has two meanings, or a stack has a section that this function does not know.
    """
    known = {"Resources", "Outputs", "Conditions", "Mappings"}
    if unknown := (state.keys() | recovery.keys()) - known - {"Description"}:
        raise TemplatesDiffer(f"sections that the quick start does not know: {sorted(unknown)}")
    exports = {output["Export"]["Name"]: output["Value"] for output in state["Outputs"].values() if "Export" in output}
    sections = {
        name: _union(state.get(name, {}), _with_values(recovery.get(name, {}), exports))
        for name in ("Mappings", "Conditions", "Resources", "Outputs")
    }
    sections["Outputs"] = {name: each for name, each in sections["Outputs"].items() if "Export" not in each}
    text = json.dumps(sections["Resources"]).replace(
        json.dumps(OBSERVES)[1:-1], json.dumps(OBSERVES_BY_PARAMETER)[1:-1]
    )
    resources = {name: with_references(with_condition(each)) for name, each in json.loads(text).items()}
    declared = declarations()
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": f"gpu-recovery {version()}: heals GPU faults of training jobs on Amazon ECS (quick start)",
        "Metadata": declared["Metadata"],
        "Parameters": declared["Parameters"],
        **({"Mappings": sections["Mappings"]} if sections["Mappings"] else {}),
        "Conditions": _union(declared["Conditions"], sections["Conditions"]),
        "Resources": resources,
        "Outputs": with_references(sections["Outputs"]),
    }


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    if twice := [name for name in one.keys() & other.keys() if one[name] != other[name]]:
        raise TemplatesDiffer(f"names with two meanings: {sorted(twice)}")
    return {**one, **other}


def _with_values(part: Any, exports: Mapping[str, Any]) -> Any:
    """A part of a template in which the imported values are those that the other stack exports."""
    if isinstance(part, Mapping):
        if "Fn::ImportValue" in part:
            return exports[part["Fn::ImportValue"]]
        return {key: _with_values(each, exports) for key, each in part.items()}
    return [_with_values(each, exports) for each in part] if isinstance(part, list) else part
