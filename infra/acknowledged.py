"""Acknowledged findings of cdk-nag, each with its reason.

The tests run the rules of cdk-nag. They fail on a finding without a row of `ACKNOWLEDGED`, and on a row without a
finding. The rows never reach a deployment (docs/decisions/0012-cdk-nag.md).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Acknowledged:
    """Acknowledgement of the findings of one rule about certain constructs.

    Args:
        rule: id of the cdk-nag rule.
        about: pattern of construct paths. Here and in `resource`, `*` matches any text and `[*]` matches a star.
        reason: why the finding stays, as a sentence.
        resource: pattern of the resource that a finding about a policy names, without the account, such as
            `ecs:task/name/*` or `TablesJobs/index/*`.
        profile: deployment profile (`dev` or `prod`) to which the row is limited. Empty: every profile.
    """

    rule: str
    about: str
    reason: str
    resource: str = ""
    profile: str = ""


_ROLES = "GpuRecovery/Functions/*/Role/DefaultPolicy/Resource"
_FUNCTIONS = "GpuRecovery/Functions/*/Function/Resource"
_RAY_ROLE = "GpuRecovery/Ray/Role/DefaultPolicy/Resource"
_POLICY = "AwsSolutions-IAM5"
_RUNTIME = (
    "Python 3.13 is the newest runtime that Lambda's documentation names for every partition; "
    "the runtime and the layer move together."
)
_ISSUER_KEY = (
    "Issued tokens are valid only under the present value, so automatic rotation would revoke all of them; "
    "docs/deploy.md describes the replacement."
)
_BUILDS = "GpuRecovery/Images/*/Project"
_IMAGE_BUILDER = "GpuRecovery/Images/Function/Resource"
_CONSOLE = "GpuRecovery/Console/Function/Resource"
_DEPLOYMENT = (
    "The function runs during a deployment only. Without its answer the deployment fails, and the next deployment asks "
    "for the image again."
)
_DEAD_LETTER_QUEUE = "It is itself a dead-letter queue. An alarm reports every message in it, and redrive empties it."

ACKNOWLEDGED = (
    Acknowledged(
        _POLICY,
        _ROLES,
        "Task ids are not known in advance; the cluster in the ARN limits the permission.",
        "ecs:task/*/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Each registration of an instance has a new id; the cluster in the ARN limits the permission.",
        "ecs:container-instance/*/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "All revisions of the families in the settings, only in one cluster and only with the roles in the settings.",
        "ecs:task-definition/*:[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Instance ids are not known in advance; a condition refuses every instance without the opt-in tag.",
        "ec2:instance/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Only with the setting `replace`; a condition refuses every Auto Scaling group without the opt-in tag.",
        "autoscaling:autoScalingGroup:[*]:autoScalingGroupName/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Log streams are named after tasks; the settings name the log groups.",
        "logs:log-group:*:log-stream:[*]",
    ),
    Acknowledged(_POLICY, _ROLES, "Only the indexes of the table are under this ARN.", "Tables*/index/[*]"),
    Acknowledged(
        _POLICY,
        "GpuRecovery/*/DefaultPolicy/Resource",
        "Verdicts are named after health checks.",
        "VerdictsBucket/verdicts/[*]",
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/*/DefaultPolicy/Resource",
        "Job records are named after jobs.",
        "VerdictsBucket/jobs/[*]",
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/*/DefaultPolicy/Resource",
        "The console snapshots are the only objects with this prefix.",
        "VerdictsBucket/console/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "These actions have no resource level. `WITHOUT_RESOURCE_LEVEL` lists them; the tests accept no other action.",
        "[*]",
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/HealthCheck/ExecutionRole/DefaultPolicy/Resource",
        "A login to the container registry has no resource level; the pull itself is allowed for one repository.",
        "[*]",
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/NodeAgent/ExecutionRole/DefaultPolicy/Resource",
        "A login to the container registry has no resource level; the pull itself is allowed for one repository.",
        "[*]",
    ),
    Acknowledged(
        "AwsSolutions-ECS2",
        "GpuRecovery/NodeAgent/Definition/Resource",
        "The variables are the address of the API, its region, and paths. None is a secret.",
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        "GpuRecovery/JobApi/Api/ANY--{proxy+}/Resource",
        "The function checks the operator token itself, so the check does not depend on API Gateway.",
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        "GpuRecovery/JobApi/Api/GET--api--v2--*/Resource",
        "The function checks tokens and sessions itself, as behind the route of all other requests.",
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        "GpuRecovery/JobApi/Api/GET--*Resource",
        "The web console is static files that are the same for everyone and hold nothing of a deployment.",
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        "GpuRecovery/JobApi/Api/ANY--api--v1--{proxy+}/Resource",
        "The function checks the node tokens itself: one token for each instance, of which only the hash is stored.",
    ),
    Acknowledged(
        "AwsSolutions-ECS2",
        "GpuRecovery/HealthCheck/Definition/Resource",
        "The variables are the region, which ECS on EC2 does not set, and the XID policy. Neither is a secret.",
    ),
    Acknowledged(
        "AwsSolutions-DDB3",
        "GpuRecoveryState/Tables/*/Resource",
        "A development deployment is deleted with its data; production has point-in-time recovery.",
        profile="dev",
    ),
    Acknowledged(
        "AwsSolutions-S1",
        "GpuRecoveryState/Verdicts/Bucket/Resource",
        "Access logs are best effort and need a second bucket; data events of CloudTrail are complete.",
    ),
    Acknowledged(
        "AwsSolutions-SMG4",
        "GpuRecoveryState/OperatorToken/Secret/Resource",
        "Users hold the token, so automatic rotation would lock them out; docs/deploy.md describes manual rotation.",
    ),
    Acknowledged("AwsSolutions-SMG4", "GpuRecoveryState/NodeTokenKey/Secret/Resource", _ISSUER_KEY),
    Acknowledged("AwsSolutions-SMG4", "GpuRecoveryState/SigningKey/Secret/Resource", _ISSUER_KEY),
    Acknowledged("AwsSolutions-SQS3", "GpuRecovery/Queues/Undelivered/Resource", _DEAD_LETTER_QUEUE),
    Acknowledged("AwsSolutions-SQS3", "GpuRecovery/Queues/Failed/Resource", _DEAD_LETTER_QUEUE),
    Acknowledged("Serverless-SQSRedrivePolicy", "GpuRecovery/Queues/SchedulerDeadLetters/Resource", _DEAD_LETTER_QUEUE),
    Acknowledged("Serverless-SQSRedrivePolicy", "GpuRecovery/Queues/Undelivered/Resource", _DEAD_LETTER_QUEUE),
    Acknowledged("Serverless-SQSRedrivePolicy", "GpuRecovery/Queues/Failed/Resource", _DEAD_LETTER_QUEUE),
    Acknowledged(
        "Serverless-SNSRedrivePolicy",
        "GpuRecoveryState/Operators/Topic/*@*/Resource",
        "The alarm on such a queue would go to the same address; operators are reminded every day of what needs them.",
    ),
    Acknowledged(
        "Serverless-SNSRedrivePolicy",
        "GpuRecoveryState/Operators/Endpoint*/Resource",
        "SNS counts what it could not deliver, and an alarm shows it; e-mail is sent nevertheless.",
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/Images/*/Role/DefaultPolicy/Resource",
        "A login to the container registry has no resource level; pull and push are allowed for named repositories.",
        "[*]",
    ),
    Acknowledged(
        "AwsSolutions-CB4",
        _BUILDS,
        "A build leaves no artifact in S3, so nothing is encrypted with this key; the image is in ECR.",
    ),
    Acknowledged("AwsSolutions-L1", _IMAGE_BUILDER, _RUNTIME),
    Acknowledged("Serverless-LambdaLatestVersion", _IMAGE_BUILDER, _RUNTIME),
    Acknowledged("Serverless-LambdaDLQ", _IMAGE_BUILDER, _DEPLOYMENT),
    Acknowledged("Serverless-LambdaTracing", _IMAGE_BUILDER, _DEPLOYMENT),
    Acknowledged("Serverless-EventBusDLQ", "GpuRecovery/Images/Ended/Resource", _DEPLOYMENT),
    Acknowledged("AwsSolutions-L1", _CONSOLE, _RUNTIME),
    Acknowledged("Serverless-LambdaLatestVersion", _CONSOLE, _RUNTIME),
    Acknowledged(
        "Serverless-LambdaDLQ", _CONSOLE, "Browsers invoke it synchronously, and load a page again themselves."
    ),
    Acknowledged("Serverless-LambdaTracing", _CONSOLE, "It calls no service, so a trace would show one segment."),
    Acknowledged("AwsSolutions-L1", _FUNCTIONS, _RUNTIME),
    Acknowledged("Serverless-LambdaLatestVersion", _FUNCTIONS, _RUNTIME),
    Acknowledged(
        "Serverless-LambdaDLQ",
        _FUNCTIONS,
        "Functions that process events have a failure destination, which also stores the error. The other three are "
        "invoked synchronously: by a queue with a dead-letter queue, by users and by node agents, which try again.",
    ),
    Acknowledged(
        "Serverless-LambdaEventSourceMappingDestination",
        "GpuRecovery/Functions/Scheduler/Function/SqsEventSource:*/Resource",
        "Lambda has no failure destination for an SQS source; the redrive policy of the queue takes its place.",
    ),
    Acknowledged(_POLICY, _RAY_ROLE, "Only the indexes of the table are under this ARN.", "TablesJobs/index/[*]"),
    Acknowledged(
        _POLICY,
        _RAY_ROLE,
        "Lambda itself creates and deletes the network interfaces of the function, under generated names.",
        "[*]",
    ),
    Acknowledged(
        "Serverless-LambdaTracing",
        "GpuRecovery/Ray/Function/Resource",
        "Its traces would need another endpoint in the VPC; its log holds each decision with its id.",
    ),
    Acknowledged(
        "Serverless-LambdaDLQ",
        "GpuRecovery/Ray/Function/Resource",
        "It is invoked synchronously: by a queue with a dead-letter queue, and by the job API to read a log.",
    ),
    Acknowledged(
        "Serverless-LambdaEventSourceMappingDestination",
        "GpuRecovery/Ray/Function/SqsEventSource:*/Resource",
        "Lambda has no failure destination for an SQS source; the redrive policy of the queue takes its place.",
    ),
    Acknowledged(
        "Serverless-SQSRedrivePolicy",
        "GpuRecovery/Queues/RayDeadLetters/Resource",
        "It is itself a dead-letter queue, and an alarm reports every message in it.",
    ),
)
"""The acknowledged findings. A finding matches a row by rule, construct path, resource and profile."""
