"""The names in the CloudFormation templates: logical ids, names of resources, variables of functions, outputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

NAMES = (
    "AlarmName",
    "BucketName",
    "DashboardName",
    "Family",
    "FunctionName",
    "Handler",
    "LogGroupName",
    "MetricName",
    "Name",
    "Namespace",
    "QueueName",
    "RoleName",
    "RouteKey",
    "TableName",
    "TopicName",
)
"""Properties that hold a name."""


def template_names(templates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """By stack: each logical id with its type and names, and the outputs with the names they are exported under."""
    return {
        stack: {
            "resources": {each: _resource(resource) for each, resource in template["Resources"].items()},
            "outputs": {name: _text(output.get("Export", {})) for name, output in template.get("Outputs", {}).items()},
        }
        for stack, template in templates.items()
    }


def _resource(resource: Mapping[str, Any]) -> str:
    properties = resource.get("Properties", {})
    names = [f"{name}={_text(properties[name])}" for name in NAMES if name in properties]
    variables = sorted(properties.get("Environment", {}).get("Variables", {}))
    indexes = [_text(index["IndexName"]) for index in properties.get("GlobalSecondaryIndexes", [])]
    return " ".join([resource["Type"], *names, *variables, *indexes])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
