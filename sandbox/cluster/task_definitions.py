"""Where task definitions live: in MiniStack's ECS, so that CloudFormation's are found, or in memory."""

from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from sandbox.cluster.model.cluster import AwsApiError


class Definitions(Protocol):
    """The four calls, each from its botocore parameters to its botocore answer."""

    def register_task_definition(self, **params: Any) -> dict[str, Any]: ...
    def describe_task_definition(self, **params: Any) -> dict[str, Any]: ...
    def list_task_definitions(self, **params: Any) -> dict[str, Any]: ...
    def deregister_task_definition(self, **params: Any) -> dict[str, Any]: ...


class MemoryDefinitions:
    """Families and revisions in a dict, for tests and the simulator."""

    def __init__(self, account: str, region: str) -> None:
        partition = "aws-cn" if region.startswith("cn-") else "aws"
        self._prefix = f"arn:{partition}:ecs:{region}:{account}:task-definition/"
        self._families: dict[str, list[dict[str, Any]]] = {}

    def _find(self, reference: str) -> dict[str, Any]:
        family, _, revision = reference.rsplit("/", 1)[-1].partition(":")
        found = [
            d
            for d in self._families.get(family, [])
            if (str(d["revision"]) == revision if revision else d["status"] == "ACTIVE")
        ]
        if not found:
            raise AwsApiError("ClientException", "Unable to describe task definition.")
        return found[-1]

    def register_task_definition(self, **params: Any) -> dict[str, Any]:
        tags = params.pop("tags", [])
        revisions = self._families.setdefault(params["family"], [])
        number = len(revisions) + 1
        arn = f"{self._prefix}{params['family']}:{number}"
        definition = params | {"taskDefinitionArn": arn, "revision": number, "status": "ACTIVE"}
        revisions.append(definition)
        return {"taskDefinition": definition, "tags": tags}

    def describe_task_definition(self, **params: Any) -> dict[str, Any]:
        return {"taskDefinition": self._find(params["taskDefinition"])}

    def list_task_definitions(self, **params: Any) -> dict[str, Any]:
        prefix, status = params.get("familyPrefix"), params.get("status", "ACTIVE")
        families = [d for family, d in sorted(self._families.items()) if prefix in {None, family}]
        found = [d["taskDefinitionArn"] for revisions in families for d in revisions if d["status"] == status]
        return {"taskDefinitionArns": found[::-1] if params.get("sort") == "DESC" else found}

    def deregister_task_definition(self, **params: Any) -> dict[str, Any]:
        definition = self._find(params["taskDefinition"])
        definition["status"] = "INACTIVE"
        return {"taskDefinition": definition}


class ForwardedDefinitions:
    """The same calls, asked of another ECS endpoint."""

    def __init__(self, endpoint_url: str, region: str) -> None:
        self._ecs = boto3.client(
            "ecs",
            endpoint_url=endpoint_url,
            region_name=region,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # MiniStack's root key, not a secret
            config=Config(retries={"mode": "standard", "total_max_attempts": 3}, max_pool_connections=50),
        )

    def _ask(self, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._ecs, operation)(**params)
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            body = error.response["Error"]
            raise AwsApiError(body["Code"], body["Message"], status) from error
        answer.pop("ResponseMetadata")
        return answer

    def register_task_definition(self, **params: Any) -> dict[str, Any]:
        return self._ask("register_task_definition", params)

    def describe_task_definition(self, **params: Any) -> dict[str, Any]:
        return self._ask("describe_task_definition", params)

    def list_task_definitions(self, **params: Any) -> dict[str, Any]:
        return self._ask("list_task_definitions", params)

    def deregister_task_definition(self, **params: Any) -> dict[str, Any]:
        return self._ask("deregister_task_definition", params)
