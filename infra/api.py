"""The HTTP API: a catch-all route to the job API, one for nodes, and one for nodes that sign their calls.

Behind each a function does the routing and checks tokens itself. The routes of nodes have rates of their own: what a
fleet reports must not keep people out, nor people a fleet.
"""

import json

from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

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


_PEOPLE = apigatewayv2.ThrottleSettings(rate_limit=50, burst_limit=100)
_NODES = apigatewayv2.ThrottleSettings(rate_limit=2_000, burst_limit=4_000)
"""Ten thousand instances report 667 times a second; after an outage all of them come at once."""
_NODE_PATHS = {"/api/v1/{proxy+}": False, "/api/v1/signed/{proxy+}": True}
"""Where nodes report, and whether the call must be signed."""


class JobApi(Construct):
    """`/{proxy+}` and not a route per verb: API Gateway refuses the trailing slashes that some of our paths have."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: DeploymentSettings,
        *,
        function: lambda_.IFunction,
        nodes: lambda_.IFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        self.http_api = apigatewayv2.HttpApi(
            self,
            "Api",
            api_name=f"{settings.stack_name}-jobs",
            create_default_stage=False,
            description="Submit, list, describe and cancel training jobs; hear what nodes report",
        )
        self.http_api.add_routes(
            path="/{proxy+}",
            methods=[apigatewayv2.HttpMethod.ANY],
            integration=integrations.HttpLambdaIntegration("Function", function),
        )
        routes = self._node_routes(integrations.HttpLambdaIntegration("Nodes", nodes))
        logs = log_group(self, "AccessLogs", settings)
        stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            stage_name="$default",
            auto_deploy=True,
            throttle=_PEOPLE,
        )
        resource = stage.node.default_child
        assert isinstance(resource, apigatewayv2.CfnStage)
        resource.access_log_settings = apigatewayv2.CfnStage.AccessLogSettingsProperty(
            destination_arn=logs.log_group_arn,
            format=json.dumps({field: f"$context.{variable}" for field, variable in _ACCESS_LOG.items()}),
        )

        # Without these the stage could be made first, and API Gateway knows no rate for a route that is not there.
        resource.route_settings = {
            f"{method} {path}": {
                "ThrottlingRateLimit": _NODES.rate_limit,
                "ThrottlingBurstLimit": _NODES.burst_limit,
            }
            for method, path in routes
        }
        stage.node.add_dependency(*routes.values())

    def _node_routes(
        self, integration: integrations.HttpLambdaIntegration
    ) -> dict[tuple[str, str], apigatewayv2.HttpRoute]:
        """The routes of nodes by method and path. Any method without a signature, so that the function can say 405."""
        made = {}
        for path, signed in _NODE_PATHS.items():
            method = apigatewayv2.HttpMethod.POST if signed else apigatewayv2.HttpMethod.ANY
            (made[method.value, path],) = self.http_api.add_routes(
                path=path,
                methods=[method],
                integration=integration,
                authorizer=authorizers.HttpIamAuthorizer() if signed else None,
            )
        return made

    @property
    def url(self) -> str:
        return self.http_api.api_endpoint
