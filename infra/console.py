"""Lambda function and routes that serve the web console at `<ApiUrl>/console`.

The function has code, a role and a rate limit of its own: whoever attacks the page reaches no other function and takes
no request from operators (docs/decisions/0051-the-console-is-served-by-its-own-function.md).
"""

from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.function_properties import function_properties, log_as_json
from infra.functions import PACKAGE
from infra.permissions import Reach
from infra.settings import DeploymentSettings

NAME = "console"
"""Name of the function in this repository."""
CODE = PACKAGE.parent / "console" / "served"
"""Folder of the function's code and of the built files."""
TIMEOUT_S, MEMORY_MIB = 5, 128
PATHS = ("/", "/console", "/console/{proxy+}")
"""Paths of the console. `/` opens the console at the bare URL of the API."""


class Console(Construct):
    """The function (`function`) that serves the files of the console."""

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings, *, reach: Reach) -> None:
        super().__init__(scope, construct_id)
        properties = function_properties(
            self,
            settings,
            name=NAME,
            permissions=(),
            reach=reach,
            timeout_s=TIMEOUT_S,
            memory_mib=MEMORY_MIB,
            environment={},
        )
        self.function = lambda_.Function(
            self,
            "Function",
            **properties,
            handler="served.handler",
            code=lambda_.Code.from_asset(str(CODE), exclude=["**/__pycache__/**"]),
            runtime=lambda_.Runtime.PYTHON_3_13,
        )
        log_as_json(self.function, settings, system_level="WARN")

    def add_routes(self, api: apigatewayv2.HttpApi) -> dict[tuple[str, str], apigatewayv2.HttpRoute]:
        """Add the routes of the console and return them by method and path. They need no authorization."""
        integration = integrations.HttpLambdaIntegration("Console", self.function)
        added = {}
        for path in PATHS:
            (route,) = api.add_routes(path=path, methods=[apigatewayv2.HttpMethod.GET], integration=integration)
            added["GET", path] = route
        return added
