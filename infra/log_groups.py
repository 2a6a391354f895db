"""Log groups with a retention period. A development stack deletes them with itself."""

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.removal import removal_policy
from infra.settings import DeploymentSettings

_RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
}
"""The CDK's constant for each number of days that the setting accepts."""


def log_group(scope: Construct, construct_id: str, settings: DeploymentSettings, name: str = "") -> logs.LogGroup:
    """Create a log group with the retention of the settings.

    Without `name` the group has a generated name, so that a group that an earlier deployment retained does not block
    the next deployment. A given name must also be new with each deployment of the stack.
    """
    return logs.LogGroup(
        scope,
        construct_id,
        log_group_name=name or None,
        retention=_RETENTION[settings.retention_days],
        removal_policy=removal_policy(settings),
    )
