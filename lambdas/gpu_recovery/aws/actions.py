"""Implementation of `ports.Actions` on AWS: calls to ECS, EC2, S3, SNS, EventBridge and SQS."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws import notification_requests
from gpu_recovery.aws.clients import THROTTLES, client
from gpu_recovery.aws.cluster_actions import ClusterActions
from gpu_recovery.aws.container_logs import AwsJobLogs
from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.aws.ecs import Ecs, task_definition
from gpu_recovery.aws.ecs_events import time_of
from gpu_recovery.aws.ecs_requests import CheckTask, token
from gpu_recovery.aws.parallel_calls import ECS_BURST, CallRate
from gpu_recovery.aws.settings import LambdaSettings
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import Channel, NotifyOperator, PublishEvent
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.health_check import CheckOutcome, Verdict, is_cured_by_reset
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.log_location import place_of
from gpu_recovery.ports.errors import TryAgainSoon, VerdictUnreadable


class EventRefused(RecoveryError):
    """EventBridge accepted the request but refused the event in it."""


class AwsActions(ClusterActions):
    """The actions that the functions use; see `ports.Actions` for the contract of each method.

    Each client is created at its first use. So an event that changes nothing costs only the creation of the DynamoDB
    client.
    """

    def __init__(self, settings: LambdaSettings, clock: Callable[[], datetime]) -> None:
        self.settings = settings
        self.ecs = Ecs(settings.cluster, clock, CallRate(ECS_BURST, settings.policy.ecs_calls_per_s))
        self.ec2 = Ec2(settings.managed_tag, clock)
        self.check_task = CheckTask(
            settings.check_task_definition,
            settings.verdict_bucket,
            settings.check_level,
            settings.check_reserves_gpus,
            min(settings.policy.check_timeout_s, settings.policy.verify_timeout_s),
        )

    @cached_property
    def _sns(self) -> Any:
        return client("sns")

    @cached_property
    def _events(self) -> Any:
        return client("events")

    @cached_property
    def _sqs(self) -> Any:
        return client("sqs")

    @cached_property
    def _s3(self) -> Any:
        return client("s3")

    def load_verdict(self, check_id: str, key: str) -> Verdict | None:
        """Read the verdict document of a health check from S3.

        Args:
            check_id: the check.
            key: the S3 key that the task of the check was given; "" if ECS shows none.

        Returns:
            The verdict; None if no document is stored, or if the document belongs to another check.

        Raises:
            VerdictUnreadable: the document is malformed.
        """
        if not key:
            return None
        try:
            answer = self._s3.get_object(Bucket=self.settings.verdict_bucket, Key=key)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        return parse_verdict(answer["Body"].read(), check_id)

    def task_definition(self, name: str) -> Mapping[str, Any] | None:
        """Return the ECS task definition `name`; None if ECS does not know it."""
        return task_definition(name)

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        """Return the last `most` log lines of the job's container in the task, or the reason why there are none."""
        definition = task_definition(job.spec.task_definition)
        if definition is None:
            return f"ECS knows no active task definition {job.spec.task_definition}"
        place = place_of(definition, job.spec.container, task_id)
        if isinstance(place, str):
            return place
        page = AwsJobLogs().read(place.group, place.stream, place.region, most, None)
        return page if isinstance(page, str) else tuple(text for _, text in page.lines)

    def notify(self, message: NotifyOperator) -> None:
        """Publish a notification on the SNS topic of its channel: e-mail, or chat if there is a chat topic."""
        cluster, console = self.settings.cluster, self.settings.console_url
        if message.channel is Channel.CHAT:
            # Pending chat notifications may outlive the chat topic of the deployment. They are dropped then.
            if self.settings.chat_topic_arn:
                topic = self.settings.chat_topic_arn
                self._sns.publish(**notification_requests.chat_request(message, topic, cluster, console))
            return
        self._sns.publish(**notification_requests.mail_request(message, self.settings.topic_arn, cluster, console))

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        """Put the event on the deployment's event bus.

        Args:
            event: the event.
            causation_id: the decision that ordered the event, as `<record>/<version>`.

        Raises:
            TryAgainSoon: EventBridge throttled the event.
            EventRefused: EventBridge refused the event for another reason.
        """
        answer = self._events.put_events(
            Entries=[notification_requests.event_entry(event, causation_id, self.settings.bus_name)]
        )
        if answer["FailedEntryCount"]:
            refused = answer["Entries"][0]
            if refused.get("ErrorCode") in THROTTLES:
                raise TryAgainSoon(f"events PutEvents: {refused['ErrorCode']}")
            raise EventRefused(f"{event.detail_type}: {refused.get('ErrorCode')} {refused.get('ErrorMessage')}")

    def poke_scheduler(self, key: str, hops: int = 1) -> None:
        """Send a message to the scheduler's FIFO queue. SQS drops a message with the same key within 5 minutes."""
        self._sqs.send_message(
            QueueUrl=self.settings.scheduler_queue_url,
            MessageBody=json.dumps({"key": key, "hops": hops}),
            MessageGroupId="scheduler",
            MessageDeduplicationId=token(key),
        )

    def record_submitted(self, job: Job, submitted: str) -> None:
        """Write the job's submitted text to the job archive in S3."""
        from gpu_recovery.aws.job_archive import submitted_request  # noqa: PLC0415 - few deployments keep an archive

        self._s3.put_object(**submitted_request(self.settings.verdict_bucket, job.job_id, submitted))

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        """Write one attempt, with the request of its first rank, to the job archive in S3."""
        from gpu_recovery.aws.job_archive import attempt_request  # noqa: PLC0415 - few deployments keep an archive

        settings = self.settings
        request = attempt_request(settings.verdict_bucket, settings.cluster, job, plan, view)
        self._s3.put_object(**request)


def _is_cured_by_reset(outcome: CheckOutcome, document: Mapping[str, Any]) -> bool:
    """Return whether the verdict document asks for no more than a reset of GPUs.

    A passive check has no GPUs, so its driver gives no answer. Then the driver's entries in the kernel log count.
    """
    driver, findings = document.get("driver") or {}, document.get("findings") or ()
    actions = {gpu["index"]: str(gpu.get("recovery_action")) for gpu in driver.get("gpus") or ()}
    faulty = [finding.get("gpu_index") for finding in findings if finding.get("remedy") == "REBOOT_INSTANCE"]
    if driver.get("silent"):
        return document.get("level") == 0 and _is_cured_by_reset_in_log(outcome, document)
    return is_cured_by_reset(outcome, actions, faulty)


def _is_cured_by_reset_in_log(outcome: CheckOutcome, document: Mapping[str, Any]) -> bool:
    """Return whether the kernel log asks for no more than a reset of GPUs. A driver that hangs can reset none."""
    findings, xids = document.get("findings") or (), document.get("xids") or ()
    named = [xid for xid in xids if xid.get("recovery_action") and xid["pci_bus_id"]]
    actions = {xid["pci_bus_id"]: xid["recovery_action"] for xid in named}
    faulty = {xid["pci_bus_id"] for xid in xids if xid["class"] == CheckOutcome.REBOOT}
    others = [one for one in findings if one["remedy"] == "REBOOT_INSTANCE" and not one["code"].startswith("XID_")]
    hangs = any(one["code"] == "DRIVER_HUNG" for one in findings)
    return not others and not hangs and is_cured_by_reset(outcome, actions, faulty)


def parse_verdict(body: bytes, check_id: str) -> Verdict | None:
    """Parse the verdict document of a health check.

    Args:
        body: the document, JSON text.
        check_id: the expected check.

    Returns:
        The verdict; None if the document belongs to another check.

    Raises:
        VerdictUnreadable: the document is no JSON object, or has no known outcome.
    """
    try:
        document: Mapping[str, Any] = json.loads(body)
        if document.get("check_id") != check_id:
            return None
        outcome = CheckOutcome(document["outcome"])
        return Verdict(
            outcome,
            str(document.get("summary", "")),
            document.get("boot_id"),
            time_of(document.get("booted_at")),
            _is_cured_by_reset(outcome, document),
        )
    except (ValueError, KeyError, AttributeError) as error:
        raise VerdictUnreadable(f"the document of {check_id} is no verdict: {error}") from error
