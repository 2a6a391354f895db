"""Stores of task definitions: MiniStack's ECS, which also has those of CloudFormation, or memory."""

from collections.abc import Mapping
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from sandbox.cluster.model.cluster import AwsApiError


class Definitions(Protocol):
    """The five calls on task definitions, with the parameters and responses of botocore."""

    def register_task_definition(self, **params: Any) -> dict[str, Any]:
        """RegisterTaskDefinition: store a new revision of a family."""

    def describe_task_definition(self, **params: Any) -> dict[str, Any]:
        """DescribeTaskDefinition. Raises AwsApiError if there is no such definition."""

    def list_task_definitions(self, **params: Any) -> dict[str, Any]:
        """ListTaskDefinitions: return ARNs."""

    def list_task_definition_families(self, **params: Any) -> dict[str, Any]:
        """ListTaskDefinitionFamilies: return names."""

    def deregister_task_definition(self, **params: Any) -> dict[str, Any]:
        """DeregisterTaskDefinition: make a revision INACTIVE."""


class MemoryDefinitions:
    """Task definitions in a dict of families and revisions, for tests and the simulator."""

    def __init__(self, account: str, region: str) -> None:
        partition = "aws-cn" if region.startswith("cn-") else "aws"
        self._prefix = f"arn:{partition}:ecs:{region}:{account}:task-definition/"
        self._families: dict[str, list[dict[str, Any]]] = {}

    def _find(self, reference: str) -> dict[str, Any]:
        family, _, revision = reference.rsplit("/", 1)[-1].partition(":")
        matching = [
            d
            for d in self._families.get(family, [])
            if (str(d["revision"]) == revision if revision else d["status"] == "ACTIVE")
        ]
        if not matching:
            raise AwsApiError("ClientException", "Unable to describe task definition.")
        return matching[-1]

    def register_task_definition(self, **params: Any) -> dict[str, Any]:
        """Store a new revision, ACTIVE."""
        tags = params.pop("tags", [])
        revisions = self._families.setdefault(params["family"], [])
        number = len(revisions) + 1
        arn = f"{self._prefix}{params['family']}:{number}"
        definition = params | {"taskDefinitionArn": arn, "revision": number, "status": "ACTIVE"}
        revisions.append(definition)
        return {"taskDefinition": definition, "tags": tags}

    def describe_task_definition(self, **params: Any) -> dict[str, Any]:
        """Return the named revision, or the newest ACTIVE revision of the named family."""
        return {"taskDefinition": self._find(params["taskDefinition"])}

    def list_task_definitions(self, **params: Any) -> dict[str, Any]:
        """Return the ARNs of the family `familyPrefix`, or of all families, that have `status`."""
        prefix, status = params.get("familyPrefix"), params.get("status", "ACTIVE")
        families = [d for family, d in sorted(self._families.items()) if prefix in {None, family}]
        arns = [d["taskDefinitionArn"] for revisions in families for d in revisions if d["status"] == status]
        return {"taskDefinitionArns": arns[::-1] if params.get("sort") == "DESC" else arns}

    def list_task_definition_families(self, **params: Any) -> dict[str, Any]:
        """Return the families that begin with `familyPrefix` and have a revision of `status`."""
        prefix, status = params.get("familyPrefix", ""), params.get("status", "ACTIVE")
        named = {family: {d["status"] for d in revisions} for family, revisions in sorted(self._families.items())}
        found = [family for family, statuses in named.items() if status in statuses | {"ALL"}]
        return {"families": [family for family in found if family.startswith(prefix)]}

    def deregister_task_definition(self, **params: Any) -> dict[str, Any]:
        """Make the revision INACTIVE."""
        definition = self._find(params["taskDefinition"])
        definition["status"] = "INACTIVE"
        return {"taskDefinition": definition}


class ForwardedDefinitions:
    """Forwards the five calls to another ECS endpoint."""

    def __init__(self, endpoint_url: str, region: str, keys: Mapping[str, str]) -> None:
        self._ecs = boto3.client(
            "ecs",
            endpoint_url=endpoint_url,
            region_name=region,
            aws_access_key_id=keys["aws_access_key_id"],
            aws_secret_access_key=keys["aws_secret_access_key"],
            config=Config(retries={"mode": "standard", "total_max_attempts": 3}, max_pool_connections=50),
        )

    def _forward(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._ecs, operation)(**params)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            body = error.response["Error"]
            raise AwsApiError(body["Code"], body["Message"], status) from error
        answer.pop("ResponseMetadata")
        return answer

    def register_task_definition(self, **params: Any) -> dict[str, Any]:
        """Forward RegisterTaskDefinition."""
        return self._forward("register_task_definition", params)

    def describe_task_definition(self, **params: Any) -> dict[str, Any]:
        """Forward DescribeTaskDefinition."""
        return self._forward("describe_task_definition", params)

    def list_task_definitions(self, **params: Any) -> dict[str, Any]:
        """Forward ListTaskDefinitions."""
        return self._forward("list_task_definitions", params)

    def list_task_definition_families(self, **params: Any) -> dict[str, Any]:
        """Forward ListTaskDefinitionFamilies."""
        return self._forward("list_task_definition_families", params)

    def deregister_task_definition(self, **params: Any) -> dict[str, Any]:
        """Forward DeregisterTaskDefinition."""
        return self._forward("deregister_task_definition", params)
