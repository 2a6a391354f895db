"""Orders carried to AWS: the implementation of `ports.Actions` that the functions use."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from ..core.attempt import Plan
from ..core.check import CheckOutcome, Verdict
from ..core.commands import NotifyOperator, PublishEvent
from ..core.errors import RecoveryError
from ..core.events import InstanceObserved
from ..core.instance.record import EcsStatus, Instance
from ..core.job.record import Job
from ..core.task import TaskFact
from ..ports import OutcomeUnknown, Refusal, VerdictUnreadable
from . import requests
from .ecs import Ecs
from .items import encode
from .settings import Settings
from .task_facts import time_of

SOURCE = "gpu.recovery"
SCHEMA_VERSION = 1
FILTER_VALUES_MAX = 200
PATIENT = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=5, read_timeout=20)
ONCE = Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=20)
"""For the one call that must not be made twice behind our back: RebootInstances has no client token."""


ASKED_TOO_OFTEN = ("RequestLimitExceeded", "Throttling", "ThrottlingException", "Unavailable", "InternalError")


class EventRefused(RecoveryError):
    """EventBridge took the request but not the event."""


class AwsActions:
    """Every client is made when it is first needed: an event that changes nothing pays for none but DynamoDB's."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime]) -> None:
        self.settings, self.clock = settings, clock

    @cached_property
    def ecs(self) -> Ecs:
        return Ecs(boto3.client("ecs", config=PATIENT), self.settings.cluster, self.clock)

    @cached_property
    def _ec2(self) -> Any:
        return boto3.client("ec2", config=ONCE)

    @cached_property
    def _ec2_reads(self) -> Any:
        return boto3.client("ec2", config=PATIENT)

    @cached_property
    def _sns(self) -> Any:
        return boto3.client("sns", config=PATIENT)

    @cached_property
    def _events(self) -> Any:
        return boto3.client("events", config=PATIENT)

    @cached_property
    def _sqs(self) -> Any:
        return boto3.client("sqs", config=PATIENT)

    @cached_property
    def _s3(self) -> Any:
        return boto3.client("s3", config=PATIENT)

    # -- tasks and instances -------------------------------------------------------------------------------------------

    def run_ranks(self, job: Job, plan: Plan) -> tuple[str | Refusal, ...]:
        return self.ecs.run_ranks(job, plan, self._private_ip(plan.instances[0]))

    def _private_ip(self, instance_id: str) -> str:
        answer = self._ec2_reads.describe_instances(InstanceIds=[instance_id])
        return str(answer["Reservations"][0]["Instances"][0]["PrivateIpAddress"])

    def run_check(self, instance: Instance, check_id: str, refusals: int) -> str | Refusal:
        settings = self.settings
        limit_s = min(settings.policy.check_timeout_s, settings.policy.verify_timeout_s)
        check = requests.CheckTask(
            settings.check_task_definition, settings.verdict_bucket, settings.check_level, settings.check_reserves_gpus,
            limit_s,
        )  # fmt: skip
        return self.ecs.run(requests.check_request(settings.cluster, check, instance, check_id, refusals))

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        self.ecs.stop_tasks(task_ids, reason)

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        return self.ecs.tasks_started_by(started_by)

    def describe_tasks(self, task_ids: Sequence[str]) -> tuple[TaskFact, ...]:
        return self.ecs.describe_tasks(task_ids) if task_ids else ()

    def running_tasks(self) -> Iterable[TaskFact]:
        return self.ecs.running_tasks()

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        return self.ecs.tasks_on(instance)

    def ended_instances(self, instance_ids: Sequence[str]) -> tuple[str, ...]:
        ended: list[str] = []
        for start in range(0, len(instance_ids), FILTER_VALUES_MAX):
            some = list(instance_ids[start : start + FILTER_VALUES_MAX])
            # By filter, not by id: one instance that EC2 has forgotten would make the whole question fail.
            filters = [
                {"Name": "instance-id", "Values": some},
                {"Name": "instance-state-name", "Values": ["stopped", "terminated"]},
            ]
            pages = self._ec2_reads.get_paginator("describe_instances").paginate(Filters=filters)
            found = [one for page in pages for group in page["Reservations"] for one in group["Instances"]]
            ended += [str(one["InstanceId"]) for one in found]
        return tuple(ended)

    def container_instances(self) -> Iterable[tuple[str, InstanceObserved]]:
        return self.ecs.container_instances()

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        return self.ecs.describe_instance(container_instance_id)

    def drain(self, instance: Instance) -> None:
        self.ecs.set_status(instance, EcsStatus.DRAINING)

    def activate(self, instance: Instance) -> None:
        self.ecs.set_status(instance, EcsStatus.ACTIVE)

    def reboot(self, instance_id: str) -> Refusal | None:
        try:
            self._ec2.reboot_instances(InstanceIds=[instance_id])
        except (ConnectionError, HTTPClientError) as error:
            raise OutcomeUnknown(f"RebootInstances of {instance_id} was not answered: {error}") from error
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in ASKED_TOO_OFTEN:
                raise
            return Refusal(
                f"EC2 will not reboot it: {code}: {error.response['Error'].get('Message', '')}", lasting=True
            )
        return None

    # -- words out, words in -------------------------------------------------------------------------------------------

    def verdict(self, check_id: str) -> Verdict | None:
        key = requests.verdict_key(check_id)
        try:
            answer = self._s3.get_object(Bucket=self.settings.verdict_bucket, Key=key)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        return parse_verdict(answer["Body"].read(), check_id)

    def notify(self, message: NotifyOperator) -> None:
        attributes = {
            "incident_id": message.incident_id,
            "severity": message.severity,
            "cluster": self.settings.cluster,
        }
        self._sns.publish(
            TopicArn=self.settings.topic_arn, Subject=message.subject, Message=message.body,
            MessageAttributes={k: {"DataType": "String", "StringValue": v} for k, v in attributes.items()},
        )  # fmt: skip

    def publish(self, event: PublishEvent) -> None:
        detail = {"metadata": {"schema_version": SCHEMA_VERSION}, "data": encode(event.data)}
        entry = {
            "EventBusName": self.settings.bus_name, "Source": SOURCE, "DetailType": event.detail_type,
            "Detail": json.dumps(detail),
        }  # fmt: skip
        answer = self._events.put_events(Entries=[entry])
        if answer["FailedEntryCount"]:
            refused = answer["Entries"][0]
            raise EventRefused(f"{event.detail_type}: {refused.get('ErrorCode')} {refused.get('ErrorMessage')}")

    def poke_scheduler(self, key: str) -> None:
        self._sqs.send_message(
            QueueUrl=self.settings.scheduler_queue_url, MessageBody=json.dumps({"key": key}),
            MessageGroupId="scheduler", MessageDeduplicationId=requests.token(key),
        )  # fmt: skip


def parse_verdict(body: bytes, check_id: str) -> Verdict | None:
    """The verdict in a document; None if it is another check's. VerdictUnreadable if it is no verdict at all."""
    try:
        document: Mapping[str, Any] = json.loads(body)
        if document.get("check_id") != check_id:
            return None
        return Verdict(
            CheckOutcome(document["outcome"]), str(document.get("summary", "")), document.get("boot_id"),
            time_of(document.get("booted_at")),
        )  # fmt: skip
    except (ValueError, KeyError, AttributeError) as error:
        raise VerdictUnreadable(f"the document of {check_id} is no verdict: {error}") from error
