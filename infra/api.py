"""HTTP API: the routes to the job API, and node routes with token or with signature.

The function behind a route does the routing and checks tokens. With the setting `api_auth: iam` every route has IAM
authorization, and nodes have only the route with signatures (docs/decisions/0036-iam-instead-of-tokens.md). The routes
of nodes have rate limits of their own, so that reports of a large fleet do not block users, and requests of users do
not block reports.
"""

import json
from collections.abc import Mapping

from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.console import Console
from infra.log_groups import log_group
from infra.settings import DeploymentSettings

_ACCESS_LOG = {
    "request_id": "requestId",
    "at": "requestTime",
    "source_ip": "identity.sourceIp",
    "method": "httpMethod",
    "path": "path",
    "status": "status",
    "latency_ms": "responseLatency",
    "integration_error": "integrationErrorMessage",
}
"""Fields of an access log line, each with the `$context` variable of API Gateway that fills it."""

_USERS = apigatewayv2.ThrottleSettings(rate_limit=50, burst_limit=100)
"""Requests a second, and burst, of the routes of users."""
_READS = apigatewayv2.ThrottleSettings(rate_limit=60, burst_limit=120)
"""Requests a second, and burst, of the routes that read."""
_POLLED = apigatewayv2.ThrottleSettings(rate_limit=100, burst_limit=200)
"""Requests a second, and burst, of each route that the web console polls. They read snapshots and the event history."""
_NODES = apigatewayv2.ThrottleSettings(rate_limit=2_000, burst_limit=4_000)
"""Requests a second, and burst, of each route of nodes.

10,000 instances report 667 times a second. After an outage all of them report at once.
"""
_CONSOLE = apigatewayv2.ThrottleSettings(rate_limit=20, burst_limit=60)
"""Requests a second, and burst, of each route of the console. A page needs four files, and browsers cache three."""
_READ_PATH = "/api/v2/{proxy+}"
"""Path of the routes that read. Those who read do not use up the rate of those who act, and vice versa."""
POLLED_PATHS = (
    "/api/v2/overview",
    "/api/v2/fleet/map",
    "/api/v2/fleet/members",
    "/api/v2/fleet/limits",
    "/api/v2/events",
)
"""Paths that the web console polls. Answers to other paths cost up to a second of a function each."""
_NODE_PATHS = {"/api/v1/{proxy+}": False, "/api/v1/signed/{proxy+}": True}
"""Paths to which nodes report, and whether a call to the path must be signed with IAM credentials."""


class JobApi(Construct):
    """The HTTP API with its routes, its stage and its access log.

    The path is `/{proxy+}` instead of a route per operation, because API Gateway refuses the trailing slashes of some
    paths. Only the paths that are polled have a route of their own.

    Args:
        function: the function of the job API.
        nodes: the function of the node API.
        console: serves the web console; None without it.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        function: lambda_.IFunction,
        nodes: lambda_.IFunction,
        console: Console | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.http_api = apigatewayv2.HttpApi(
            self,
            "Api",
            api_name=f"{settings.stack_name}-jobs",
            create_default_stage=False,
            description="Submit, list, describe and cancel training jobs; hear what nodes report",
        )
        integration = integrations.HttpLambdaIntegration("Function", function)
        authorizer = authorizers.HttpIamAuthorizer() if settings.signs_requests else None
        self.http_api.add_routes(
            path="/{proxy+}",
            methods=[apigatewayv2.HttpMethod.ANY],
            integration=integration,
            authorizer=authorizer,
        )
        reads = {
            path: self.http_api.add_routes(
                path=path,
                methods=[apigatewayv2.HttpMethod.GET],
                integration=integration,
                authorizer=authorizer,
            )[0]
            for path in (_READ_PATH, *POLLED_PATHS)
        }
        paths = {path: signed for path, signed in _NODE_PATHS.items() if signed or not settings.signs_requests}
        node_routes = self._node_routes(paths, integrations.HttpLambdaIntegration("Nodes", nodes))
        console_routes = console.add_routes(self.http_api) if console is not None else {}
        limits = dict.fromkeys(node_routes, _NODES) | dict.fromkeys(console_routes, _CONSOLE)
        limits |= {("GET", path): _POLLED if path in POLLED_PATHS else _READS for path in reads}
        # API Gateway adds a group outside /aws/vendedlogs/ to the account's resource policy of CloudWatch Logs. The
        # policy has at most 5,120 characters; when it is full, the stage cannot be created.
        name = f"/aws/vendedlogs/apis/{self.http_api.api_id}/access"
        logs = log_group(self, "AccessLogs", settings, name)
        stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            stage_name="$default",
            auto_deploy=True,
            throttle=_USERS,
        )
        resource = stage.node.default_child
        assert isinstance(resource, apigatewayv2.CfnStage)
        resource.access_log_settings = apigatewayv2.CfnStage.AccessLogSettingsProperty(
            destination_arn=logs.log_group_arn,
            format=json.dumps({field: f"$context.{variable}" for field, variable in _ACCESS_LOG.items()}),
        )

        # The stage must be created after the routes: API Gateway refuses a rate for a route that does not exist.
        resource.route_settings = {
            f"{method} {path}": {
                "ThrottlingRateLimit": limit.rate_limit,
                "ThrottlingBurstLimit": limit.burst_limit,
            }
            for (method, path), limit in limits.items()
        }
        stage.node.add_dependency(*reads.values(), *node_routes.values(), *console_routes.values())

    def _node_routes(
        self, paths: Mapping[str, bool], integration: integrations.HttpLambdaIntegration
    ) -> dict[tuple[str, str], apigatewayv2.HttpRoute]:
        """Add the routes of nodes and return them by method and path.

        A path without signatures accepts any method, so that the function can answer 405.
        """
        added = {}
        for path, signed in paths.items():
            method = apigatewayv2.HttpMethod.POST if signed else apigatewayv2.HttpMethod.ANY
            (added[method.value, path],) = self.http_api.add_routes(
                path=path,
                methods=[method],
                integration=integration,
                authorizer=authorizers.HttpIamAuthorizer() if signed else None,
            )
        return added

    @property
    def url(self) -> str:
        """URL of the API, without a path."""
        return self.http_api.api_endpoint
