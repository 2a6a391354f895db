"""Every finding of cdk-nag that stays, with the reason for it. The tests accept no other, and none that is not found.

Nothing here reaches a deployment: the rules are run by the tests (docs/decisions/0012-cdk-nag.md).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Acknowledged:
    """One rule's finding about the constructs whose path matches `about`.

    In `about` and `resource` a `*` stands for anything and `[*]` for the star itself. `resource` is what a finding
    about a policy names, without its account: `ecs:task/name/*`, `TablesJobs/index/*`. `profile`: only there.
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
    "Python 3.13 is the newest runtime for which the Powertools layer of both partitions is known; "
    "the runtime and the layer move together."
)
_DEAD_END = (
    "It is where messages end that nobody could handle; an alarm rings when one is in it, and redrive empties it."
)

ACKNOWLEDGED = (
    Acknowledged(
        _POLICY,
        _ROLES,
        "Tasks have ids nobody knows beforehand; the cluster in the ARN is the fence.",
        "ecs:task/*/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Machines come and go, and each registration has a new id; the cluster in the ARN is the fence.",
        "ecs:container-instance/*/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Every revision of the families named in the settings, in one cluster and with the roles of the settings only.",
        "ecs:task-definition/*:[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Machines come and go; a condition on the opt-in tag refuses every one that nobody handed over.",
        "ec2:instance/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Only with the setting `replace`; a condition on the group's own opt-in tag refuses every other group.",
        "autoscaling:autoScalingGroup:[*]:autoScalingGroupName/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "Streams are named after tasks; the log groups are those of the settings.",
        "logs:log-group:*:log-stream:[*]",
    ),
    Acknowledged(
        _POLICY, _ROLES, "Both indexes of the table and nothing else are under this ARN.", "Tables*/index/[*]"
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/*/DefaultPolicy/Resource",
        "Verdicts are named after checks.",
        "VerdictsBucket/verdicts/[*]",
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/*/DefaultPolicy/Resource",
        "Records of jobs are named after jobs.",
        "VerdictsBucket/jobs/[*]",
    ),
    Acknowledged(
        _POLICY,
        _ROLES,
        "AWS has no resource level for these actions; `WITHOUT_RESOURCE_LEVEL` lists them, and no other is accepted.",
        "[*]",
    ),
    Acknowledged(
        _POLICY,
        "GpuRecovery/HealthCheck/ExecutionRole/DefaultPolicy/Resource",
        "A login to the container registry has no resource level; the pull itself is allowed for one repository.",
        "[*]",
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        "GpuRecovery/JobApi/Api/ANY--{proxy+}/Resource",
        "The function compares the operator token itself, so that it also does where no API Gateway stands in front.",
    ),
    Acknowledged(
        "AwsSolutions-APIG4",
        "GpuRecovery/JobApi/Api/ANY--api--v1--{proxy+}/Resource",
        "The function compares the nodes' tokens itself: one per instance, of which it keeps the hashes.",
    ),
    Acknowledged(
        "AwsSolutions-ECS2",
        "GpuRecovery/HealthCheck/Definition/Resource",
        "The one variable is the region, which is no secret and which ECS on EC2 does not set.",
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
        "Access logs are best effort and need a second bucket to look after; data events of CloudTrail are complete.",
    ),
    Acknowledged(
        "AwsSolutions-SMG4",
        "GpuRecoveryState/OperatorToken/Secret/Resource",
        "People hold the token, so a machine cannot rotate it without locking them out; the manual says how they do.",
    ),
    Acknowledged("AwsSolutions-SQS3", "GpuRecovery/Queues/Undelivered/Resource", _DEAD_END),
    Acknowledged("AwsSolutions-SQS3", "GpuRecovery/Queues/Failed/Resource", _DEAD_END),
    Acknowledged("Serverless-SQSRedrivePolicy", "GpuRecovery/Queues/SchedulerDeadLetters/Resource", _DEAD_END),
    Acknowledged("Serverless-SQSRedrivePolicy", "GpuRecovery/Queues/Undelivered/Resource", _DEAD_END),
    Acknowledged("Serverless-SQSRedrivePolicy", "GpuRecovery/Queues/Failed/Resource", _DEAD_END),
    Acknowledged(
        "Serverless-SNSRedrivePolicy",
        "GpuRecoveryState/Operators/Topic/*@*/Resource",
        "The alarm on such a queue would be a mail to the same address; what needs a person is told again every day.",
    ),
    Acknowledged("AwsSolutions-L1", _FUNCTIONS, _RUNTIME),
    Acknowledged("Serverless-LambdaLatestVersion", _FUNCTIONS, _RUNTIME),
    Acknowledged(
        "Serverless-LambdaDLQ",
        _FUNCTIONS,
        "Functions that take events have a failure destination, which keeps the error too; the other three are called "
        "synchronously, by a queue with a dead-letter queue, by people and by nodes, who ask again.",
    ),
    Acknowledged(
        "Serverless-LambdaEventSourceMappingDestination",
        "GpuRecovery/Functions/Scheduler/Function/SqsEventSource:*/Resource",
        "Lambda has no failure destination for an SQS source; the queue's own redrive policy is what there is.",
    ),
    Acknowledged(
        _POLICY, _RAY_ROLE, "Both indexes of the table and nothing else are under this ARN.", "TablesJobs/index/[*]"
    ),
    Acknowledged(
        _POLICY,
        _RAY_ROLE,
        "The interfaces that bring the function into the VPC are made and deleted by Lambda, under names of its own.",
        "[*]",
    ),
    Acknowledged(
        "Serverless-LambdaTracing",
        "GpuRecovery/Ray/Function/Resource",
        "Its traces would need one more endpoint in the VPC; what it does is in its log, with each decision's id.",
    ),
    Acknowledged(
        "Serverless-LambdaDLQ",
        "GpuRecovery/Ray/Function/Resource",
        "It is called synchronously, by a queue with a dead-letter queue and by whoever reads a log.",
    ),
    Acknowledged(
        "Serverless-LambdaEventSourceMappingDestination",
        "GpuRecovery/Ray/Function/SqsEventSource:*/Resource",
        "Lambda has no failure destination for an SQS source; the queue's own redrive policy is what there is.",
    ),
    Acknowledged(
        "Serverless-SQSRedrivePolicy",
        "GpuRecovery/Queues/RayDeadLetters/Resource",
        "It is where messages end that nobody could handle; an alarm rings when one is in it.",
    ),
)
