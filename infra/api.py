"""The job API: one HTTP API, one catch-all route, one function that does the routing and checks the token itself."""

import json

from aws_cdk import aws_apigatewayv2 as apigatewayv2
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


class JobApi(Construct):
    """`/{proxy+}` and not a route per verb: API Gateway refuses the trailing slashes that some of our paths have."""

    def __init__(
        self, scope: Construct, construct_id: str, settings: DeploymentSettings, *, function: lambda_.IFunction
    ) -> None:
        super().__init__(scope, construct_id)
        self.http_api = apigatewayv2.HttpApi(
            self,
            "Api",
            api_name=f"{settings.stack_name}-jobs",
            create_default_stage=False,
            description="Submit, list, describe and cancel training jobs",
        )
        self.http_api.add_routes(
            path="/{proxy+}",
            methods=[apigatewayv2.HttpMethod.ANY],
            integration=integrations.HttpLambdaIntegration("Function", function),
        )
        logs = log_group(self, "AccessLogs", settings)
        stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(rate_limit=50, burst_limit=100),
        )
        resource = stage.node.default_child
        assert isinstance(resource, apigatewayv2.CfnStage)
        resource.access_log_settings = apigatewayv2.CfnStage.AccessLogSettingsProperty(
            destination_arn=logs.log_group_arn,
            format=json.dumps({field: f"$context.{variable}" for field, variable in _ACCESS_LOG.items()}),
        )

    @property
    def url(self) -> str:
        return self.http_api.api_endpoint
