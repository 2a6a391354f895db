"""Checks of a running deployment: its functions, rules, dead letters, subscribers and permissions.

The names of the resources come from CloudFormation, so the checks need no settings file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpu_recovery_client.account.access import Account, Described, Refused
from gpu_recovery_client.account.findings import DEFAULTS, Finding, Settings
from gpu_recovery_client.account.tasks import TASK_SERVICE

NO_STACK = ("ValidationError",)
BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
"""Parameter of Systems Manager that `cdk bootstrap` writes."""
BOOTSTRAP_MIN = 6
"""Version of the bootstrap that an assembly of the CDK requires."""
NOT_DEPLOYED = ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
LAUNCHING = ("SchedulerFunctionName", "CommandExecutorFunctionName", "ReconcilerFunctionName")
"""Outputs with the functions that launch tasks of jobs."""
DEAD_LETTERS = {
    "FailedQueueUrl": "events that a function failed on",
    "UndeliveredQueueUrl": "events that EventBridge could not deliver",
    "SchedulerDeadLettersQueueUrl": "messages that the scheduler failed on",
    "RayDeadLettersQueueUrl": "messages that the function for Ray failed on",
}
"""Outputs with the dead-letter queues, and what the queues hold."""
VARIABLES = {
    "MANAGED_TAG_KEY": "managed_tag_key",
    "MANAGED_TAG_VALUE": "managed_tag_value",
    "ADOPT": "adopt",
    "API_AUTH": "api_auth",
    "API_ROLES": "api_roles",
    "USER_PRIORITY_MAX": "user_priority_max",
    "JOB_ID_PREFIX": "job_id_prefix",
    "CHECK_LEVEL": "check_level",
    "CHECK_RESERVES_GPUS": "check_reserves_gpus",
    "GPU_HISTORY": "gpu_history",
    "POWERTOOLS_LOG_LEVEL": "log_level",
}
"""Variables of the function `job_api` with a setting as it is, and the names of the settings."""
JSON_SETTINGS = ("api_roles", "check_level", "check_reserves_gpus")
"""Settings whose variables are JSON."""
SWITCHES = ("replace", "observe_only", "record_attempts", "tag_repairs")
OF_THEIR_OWN = (*SWITCHES, "preset", "xid_profile")
"""Fields of the deployed policy that settings of their own decide."""


@dataclass(frozen=True)
class Deployment:
    """A deployed stack: its name, its status and its outputs."""

    account: Account
    name: str
    status: str
    outputs: Mapping[str, str]

    @cached_property
    def resources(self) -> list[Described]:
        """The resources of the stack."""
        found = self.account.items(
            "cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=self.name
        )
        return list(found)

    def of_type(self, kind: str) -> dict[str, str]:
        """Return the physical ids of the resources of a type, by logical id."""
        return {
            one["LogicalResourceId"]: one["PhysicalResourceId"]
            for one in self.resources
            if one["ResourceType"] == kind and one.get("PhysicalResourceId")
        }

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """The variables of the function `job_api`."""
        return self.variables_of("JobApiFunctionName")

    def variables_of(self, output: str) -> Mapping[str, str]:
        """Return the variables of the function that an output names."""
        found = self.account.call("lambda", "get_function_configuration", FunctionName=self.outputs[output])
        variables: Mapping[str, str] = found.get("Environment", {}).get("Variables", {})
        return variables

    @cached_property
    def settings(self) -> Settings:
        """The settings that the functions and the outputs show. `survey.settings_of` adds those of other resources."""
        variables, check = self.environment, self.outputs["HealthCheckTaskDefinitionArn"]
        policy = json.loads(variables.get("RECOVERY_POLICY", "{}"))
        definition = self.account.call("ecs", "describe_task_definition", taskDefinition=check)["taskDefinition"]
        container = definition["containerDefinitions"][0]
        of_check = {one["name"]: one["value"] for one in container.get("environment", ())}
        # A function of an earlier release lacks the variables of later settings, which have their defaults there.
        plain = {setting: variables[name] for name, setting in VARIABLES.items() if name in variables}
        values = {
            **plain,
            **{setting: json.loads(plain[setting]) for setting in JSON_SETTINGS if setting in plain},
            "cluster_name": self.outputs["ClusterName"],
            "stack_name": self.name,
            "training_task_families": _words(variables, "TRAINING_TASK_FAMILIES"),
            "training_role_arns": _words(variables, "TRAINING_ROLE_ARNS"),
            "training_log_groups": _words(variables, "TRAINING_LOG_GROUPS"),
            "node_role_arns": _words(self.variables_of("NodeApiFunctionName"), "NODE_ROLE_ARNS"),
            "preset": policy.get("preset", DEFAULTS["preset"]),
            "xid_policy": policy.get("xid_profile", DEFAULTS["xid_policy"]),
            **{switch: bool(policy.get(switch, False)) for switch in SWITCHES},  # the variable has those that are on
            "policy": {name: value for name, value in policy.items() if name not in OF_THEIR_OWN},
            "health_check_image": container["image"],
            "check_host_engine": of_check.get("HOST_ENGINE", DEFAULTS["check_host_engine"]),
            "node_agent": "daemon" if "AgentLogGroupName" in self.outputs else "off",
        }
        return Settings(values, known=False)


def _words(variables: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(variables.get(name, "").split())


def deployed(account: Account, stack_name: str) -> Deployment | None:
    """Return the deployment with this stack; None if the stack is not deployed, or its creation failed."""
    stack = existing_stack(account, stack_name)
    if stack is None or stack["StackStatus"] in NOT_DEPLOYED:
        return None
    found = _deployment(account, stack)
    return found if found.outputs else None  # a stack that was never complete has no outputs


def existing_stack(account: Account, stack_name: str) -> Described | None:
    """Return the stack with this name as CloudFormation describes it; None if there is none."""
    try:
        stacks: list[Described] = account.call("cloudformation", "describe_stacks", StackName=stack_name)["Stacks"]
    except Refused as error:
        if error.code not in NO_STACK:
            raise
        return None
    return next(iter(stacks), None)


def deployments(account: Account) -> list[Deployment]:
    """Return every deployment of gpu-recovery in the account and region."""
    stacks = account.items("cloudformation", "describe_stacks", "Stacks")
    found = [_deployment(account, stack) for stack in stacks if stack["StackStatus"] not in NOT_DEPLOYED]
    return [one for one in found if {"ApiId", "HealthCheckTaskDefinitionArn", "ClusterName"} <= one.outputs.keys()]


def of_address(account: Account, api_url: str) -> Deployment | None:
    """Return the deployment whose API has this address; None if no stack of the account has it."""
    return next((one for one in deployments(account) if one.outputs["ApiId"] in api_url), None)


def _deployment(account: Account, stack: Described) -> Deployment:
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}
    return Deployment(account, stack["StackName"], stack["StackStatus"], outputs)


def check_bootstrap(account: Account) -> Iterator[Finding]:
    """Yield a finding if the CDK is not bootstrapped in the account and region."""
    try:
        version = int(account.call("ssm", "get_parameter", Name=BOOTSTRAP_PARAMETER)["Parameter"]["Value"])
    except Refused as error:
        if error.code != "ParameterNotFound":
            raise
        version = 0
    if version < BOOTSTRAP_MIN:
        yield Finding(
            "bootstrap",
            f"{account.account_id} in {account.region}",
            f"the bootstrap of the CDK has version {version}" if version else "the CDK is not bootstrapped",
            "cdk deploy needs the bucket and the roles that the bootstrap makes, once in an account and region",
            f"npx cdk bootstrap aws://{account.account_id}/{account.region}",
        )


def check_layer(account: Account, settings: Settings) -> Iterator[Finding]:
    """Yield findings about the layer with the libraries of the functions."""
    layer = settings["powertools_layer"]
    if layer == "public" and account.region.startswith(("cn-northwest-", "us-gov-")):
        yield Finding(
            "layer",
            "powertools_layer",
            f"AWS does not publish the public layer for {account.region}",
            "the functions could not be created, and the deployment fails",
            settings.change("powertools_layer", '"own"'),
        )
    if not layer.startswith("arn:"):
        return
    try:
        version = account.call("lambda", "get_layer_version_by_arn", Arn=layer)
    except Refused as error:
        yield Finding(
            "layer",
            layer,
            f"the layer version cannot be read: {error.code or error}",
            "the functions could not be created, and the deployment fails",
            settings.change("powertools_layer", '"own"'),
        )
        return
    runtimes, kinds = version.get("CompatibleRuntimes", ()), version.get("CompatibleArchitectures", ())
    if (runtimes and "python3.13" not in runtimes) or (kinds and "arm64" not in kinds):
        yield Finding(
            "layer",
            layer,
            f"the layer is for {', '.join((*runtimes, *kinds))}, the functions run python3.13 on arm64",
            "the libraries of the layer cannot be imported, so every function fails",
            settings.change("powertools_layer", '"own"'),
        )


def check_functions(deployment: Deployment) -> Iterator[Finding]:
    """Yield findings about functions that cannot run, or are not as the stack made them."""
    account = deployment.account
    body = account.call("cloudformation", "get_template", StackName=deployment.name)["TemplateBody"]
    template: Any = json.loads(body) if isinstance(body, str) else body
    again = f"deploy again: make deploy, with the settings of {deployment.name}"
    for logical_id, name in sorted(deployment.of_type("AWS::Lambda::Function").items()):
        wanted = template["Resources"][logical_id]["Properties"]
        try:
            found = account.call("lambda", "get_function_configuration", FunctionName=name)
        except Refused as error:
            if error.code != "ResourceNotFoundException":
                raise
            yield Finding("functions", name, "the function was deleted", "its events are lost", again)
            continue
        state = found.get("State", "Active")
        if state not in ("Active", "Inactive", "Pending") or found.get("LastUpdateStatus") == "Failed":
            sentence = f"the function is {state}: {found.get('StateReason') or found.get('LastUpdateStatusReason', '')}"
            yield Finding("functions", name, sentence, "its events fail and end in a dead-letter queue", again)
        if wanted.get("Layers") and not found.get("Layers"):
            yield Finding(
                "functions",
                name,
                "the function has lost its layer",
                "its libraries are missing, so each invocation fails at import",
                again,
            )
        runtime = wanted.get("Runtime")
        if isinstance(runtime, str) and found.get("Runtime") != runtime:
            yield Finding(
                "functions",
                name,
                f"the runtime is {found.get('Runtime')}, the stack made it {runtime}",
                "the layer is for the runtime of the stack, and the tests ran with it",
                f"aws lambda update-function-configuration --function-name {name} --runtime {runtime}",
            )
        concurrency = account.call("lambda", "get_function_concurrency", FunctionName=name)
        if concurrency.get("ReservedConcurrentExecutions") == 0:
            yield Finding(
                "functions",
                name,
                "the reserved concurrency is 0",
                "Lambda runs the function never: AWS sets 0 after a recursive loop, people to stop a function",
                f"aws lambda delete-function-concurrency --function-name {name}",
            )


def check_rules(deployment: Deployment) -> Iterator[Finding]:
    """Yield a finding for each rule of EventBridge that is disabled or deleted."""
    for name in sorted(deployment.of_type("AWS::Events::Rule").values()):
        bus, _, rule = name.rpartition("|")
        option = f" --event-bus-name {bus}" if bus else ""
        try:
            state = _state_of_rule(deployment, rule, bus)
        except Refused as error:
            if error.code != "ResourceNotFoundException":
                raise
            why = "the events of this rule reach no function, so failures are not noticed"
            again = f"deploy again: make deploy, with the settings of {deployment.name}"
            yield Finding("rules", rule, "the rule was deleted", why, again)
            continue
        if state == "DISABLED":
            yield Finding(
                "rules",
                rule,
                "the rule is disabled",
                "its events or its schedule reach no function, so failures are not noticed or not repaired",
                f"aws events enable-rule --name {rule}{option}",
            )


def _state_of_rule(deployment: Deployment, rule: str, bus: str) -> str:
    """Return the state of a rule of a bus. Without a name of the bus, both buses of the deployment are tried."""
    buses = [bus] if bus else ["default", deployment.outputs["EventBusName"]]
    for number, name in enumerate(buses, start=1):
        try:
            return str(deployment.account.call("events", "describe_rule", Name=rule, EventBusName=name)["State"])
        except Refused as error:
            if error.code != "ResourceNotFoundException" or number == len(buses):
                raise
    return ""


def check_subscriptions(deployment: Deployment, settings: Settings) -> Iterator[Finding]:
    """Yield findings about the subscribers of the operators' topic."""
    account, topic = deployment.account, deployment.outputs["TopicArn"]
    subscriptions = [*account.items("sns", "list_subscriptions_by_topic", "Subscriptions", TopicArn=topic)]
    why = "SNS drops messages to a subscriber that has not confirmed, so the operators get no e-mail about a failure"
    confirmed = 0
    for one in subscriptions:
        if not _is_pending(account, one):
            confirmed += 1
            continue
        endpoint = one["Endpoint"]
        yield Finding(
            "subscriptions",
            endpoint,
            "the subscription is not confirmed",
            why,
            f"{_confirmation(one)}; to have AWS ask again: "
            f"aws sns subscribe --topic-arn {topic} --protocol {one['Protocol']} --notification-endpoint {endpoint}",
        )
    endpoints = {one["Endpoint"] for one in subscriptions}
    for address in settings["alert_emails"] if settings.knows("alert_emails") else ():
        if address not in endpoints:
            yield Finding(
                "subscriptions",
                address,
                "the address of alert_emails is not subscribed: it has unsubscribed, or SNS has disabled it",
                "no message reaches the address",
                f"aws sns subscribe --topic-arn {topic} --protocol email --notification-endpoint {address}",
            )
    if not subscriptions or not (confirmed or settings.knows("alert_emails")):
        yield Finding(
            "subscriptions",
            topic.rsplit(":", 1)[-1],
            "the operators' topic has no confirmed subscriber",
            "operators get no e-mail about a failure, an instance that needs an operator, or an alarm",
            settings.change("alert_emails", '["oncall@example.com"]'),
        )


def _confirmation(subscription: Described) -> str:
    if subscription["Protocol"].startswith("email"):
        return f"open the link in the e-mail that AWS sent to {subscription['Endpoint']}"
    return "the receiver must open the SubscribeURL of the message that SNS sent to it"


def _is_pending(account: Account, subscription: Described) -> bool:
    arn = subscription["SubscriptionArn"]
    if not arn.startswith("arn:"):
        return True  # PendingConfirmation
    attributes = account.call("sns", "get_subscription_attributes", SubscriptionArn=arn)["Attributes"]
    return str(attributes.get("PendingConfirmation", "false")).lower() == "true"


def check_dead_letters(deployment: Deployment) -> Iterator[Finding]:
    """Yield a finding for each dead-letter queue that is not empty."""
    for output, what in DEAD_LETTERS.items():
        url = deployment.outputs.get(output)
        if not url:
            continue
        attributes = deployment.account.call(
            "sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"]
        )["Attributes"]
        number = int(attributes["ApproximateNumberOfMessages"])
        if number:
            yield Finding(
                "dead-letters",
                url.rsplit("/", 1)[-1],
                f"{number} messages wait: {what}",
                "what they report was not processed; the log of the function says why",
                "gpu-recovery redrive --dry-run, then gpu-recovery redrive",
            )


def check_permissions(deployment: Deployment, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each role that a launching function may not pass, by the simulator of IAM."""
    account, roles = deployment.account, list(settings["training_role_arns"])
    for output in LAUNCHING if roles else ():
        name = deployment.outputs[output]
        source = account.call("lambda", "get_function_configuration", FunctionName=name)["Role"]
        answer = account.call(
            "iam",
            "simulate_principal_policy",
            PolicySourceArn=source,
            ActionNames=["iam:PassRole"],
            ResourceArns=roles,
            ContextEntries=[
                {
                    "ContextKeyName": "iam:PassedToService",
                    "ContextKeyValues": [TASK_SERVICE],
                    "ContextKeyType": "string",
                }
            ],
        )
        for result in answer["EvaluationResults"]:
            if result["EvalDecision"] != "allowed":
                yield Finding(
                    "permissions",
                    name,
                    f"the function may not pass the role {result['EvalResourceName']} ({result['EvalDecision']})",
                    "each launch with this role is refused, and the jobs wait in the queue",
                    "deploy again; if the decision stays, find the policy of the organization or the permissions "
                    "boundary that denies iam:PassRole",
                )
