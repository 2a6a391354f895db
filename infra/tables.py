"""DynamoDB tables of jobs, of instances and of the event history, with their indexes.

The first two have the index `due` (records with a deadline or a poll). The table of jobs also has the indexes
`by_status` and `line`, the queue. The table of instances also has the index `listing`, the fleet without histories. All
reads are by key or index, so no table is scanned. The event history is for readers alone, and has no index: its key is
a stream (`stream`, such as the events of a day) and a position in it (`at`).

`listing` replaces the index `by_status` of instances, which has one hot partition key. CloudFormation adds or removes
one index of a table in an update, so a deployment that upgrades from release 0.1 keeps `by_status` until the next one.
"""

from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.removal import removal_policy
from infra.settings import DeploymentSettings

_NUMBER, _STRING = dynamodb.AttributeType.NUMBER, dynamodb.AttributeType.STRING
_TTL = "expires_s"
"""The attribute by which DynamoDB deletes items: submissions' idempotency keys, observations, unused GPU locks and old
events."""
_JOB_LIST = ["attempt", "version", "spec", "instances", "repairing", "reason", "status_at", "origin"]
"""Attributes of a job that lists of jobs show."""
_LISTING = ["listed", "claims", "reserved_for", "past", "check", "schema", "complete_at"]
"""Attributes of an instance that lists of the fleet read (`aws/instance_index.py`). An index has at most 20."""


class Tables(Construct):
    """The tables `jobs` (key `job_id_rank`), `instances` (key `container_inst_id`) and `event_history` (key `stream`).

    Existing deployments have these keys, so the keys do not change.
    """

    def __init__(self, scope: Construct, construct_id: str, settings: DeploymentSettings) -> None:
        super().__init__(scope, construct_id)
        self._settings = settings
        self.jobs = self._table("Jobs", settings.job_table_name, "job_id_rank", ttl=_TTL)
        self.jobs.add_global_secondary_index(
            index_name="by_status",
            partition_key=_key("status", _STRING),
            sort_key=_key("queued_at", _STRING),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=_JOB_LIST,
        )
        # Sparse index: only queued and placed jobs have the attribute `line`. The scheduler reads `line_entry`.
        self.jobs.add_global_secondary_index(
            index_name="line",
            partition_key=_key("line", _STRING),
            sort_key=_key("line_at", _STRING),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=["line_entry"],
        )
        self.instances = self._table("Instances", settings.instance_table_name, "container_inst_id")
        if settings.keeps_index_of_whole_records:
            self.instances.add_global_secondary_index(
                index_name="by_status",
                partition_key=_key("status", _STRING),
                sort_key=_key("container_inst_id", _STRING),
                projection_type=dynamodb.ProjectionType.ALL,
            )
        # Sparse index: an instance that is gone has no `listing`. The partition key is a number of the instance.
        self.instances.add_global_secondary_index(
            index_name="listing",
            partition_key=_key("listing", _NUMBER),
            sort_key=_key("container_inst_id", _STRING),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=_LISTING,
        )
        self.event_history = self._plain_table(
            "EventHistory", settings.event_history_table_name, "stream", sort="at", ttl=_TTL
        )

    def _table(self, construct_id: str, name: str, key: str, ttl: str | None = None) -> dynamodb.Table:
        table = self._plain_table(construct_id, name, key, ttl=ttl)
        # Sparse index: only a record that waits for a deadline or a poll has `due_at`. The reconciler reads only these.
        table.add_global_secondary_index(
            index_name="due",
            partition_key=_key("shard", _NUMBER),
            sort_key=_key("due_at", _STRING),
            projection_type=dynamodb.ProjectionType.KEYS_ONLY,
        )
        return table

    def _plain_table(
        self, construct_id: str, name: str, key: str, *, sort: str = "", ttl: str | None = None
    ) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            construct_id,
            table_name=name,
            partition_key=_key(key, _STRING),
            sort_key=_key(sort, _STRING) if sort else None,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption=dynamodb.TableEncryption.AWS_MANAGED,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=self._settings.is_prod
            ),
            deletion_protection=self._settings.is_prod,
            removal_policy=removal_policy(self._settings),
            time_to_live_attribute=ttl,
        )


def _key(name: str, kind: dynamodb.AttributeType) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=kind)
