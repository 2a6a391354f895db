"""S3 bucket for the verdicts of health checks, for job records and for console snapshots.

The functions read a verdict within minutes of its check; operators may read it for a month. Job records are only for
users and operators, who compare runs, and are stored for a year. Console snapshots are replaced every minute.
"""

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.removal import removal_policy
from infra.settings import DeploymentSettings

PREFIX = "verdicts/"
"""Prefix of the keys of verdicts."""
RECORDS = "jobs/"
"""Prefix of the keys of job records."""
SNAPSHOTS = "console/"
"""Prefix of the keys of console snapshots."""
VERDICT_DAYS, RECORD_DAYS, SNAPSHOT_DAYS = 30, 365, 7
"""Days after which verdicts, job records and console snapshots expire."""


class VerdictBucket(Construct):
    """The bucket, with a lifecycle rule for each prefix."""

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            removal_policy=removal_policy(settings),
            lifecycle_rules=[
                s3.LifecycleRule(
                    prefix=prefix,
                    expiration=Duration.days(days),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
                for prefix, days in ((PREFIX, VERDICT_DAYS), (RECORDS, RECORD_DAYS), (SNAPSHOTS, SNAPSHOT_DAYS))
            ],
        )

    @property
    def verdicts_arn(self) -> str:
        """ARN pattern of all verdicts."""
        return self.bucket.arn_for_objects(f"{PREFIX}*")

    @property
    def records_arn(self) -> str:
        """ARN pattern of all job records."""
        return self.bucket.arn_for_objects(f"{RECORDS}*")

    @property
    def snapshots_arn(self) -> str:
        """ARN pattern of all console snapshots."""
        return self.bucket.arn_for_objects(f"{SNAPSHOTS}*")
