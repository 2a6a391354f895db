"""Orders carried to AWS: the implementation of `ports.Actions` that the functions use."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from botocore.exceptions import ClientError

from gpu_recovery.aws import ecs_requests, job_archive, notification_requests
from gpu_recovery.aws.clients import THROTTLES, client
from gpu_recovery.aws.container_logs import AwsJobLogs
from gpu_recovery.aws.ec2 import Ec2
from gpu_recovery.aws.ecs import Ecs, task_definition
from gpu_recovery.aws.ecs_events import time_of
from gpu_recovery.aws.settings import Settings
from gpu_recovery.core.attempt import Plan
from gpu_recovery.core.commands import Channel, NotifyOperator, PublishEvent
from gpu_recovery.core.errors import RecoveryError
from gpu_recovery.core.events import InstanceObserved
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.instance.record import EcsStatus, Instance
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.log_location import place_of
from gpu_recovery.core.task import TaskFact
from gpu_recovery.ports.store import Machine, MachineStatus, Refusal, TryAgainSoon, VerdictUnreadable


class EventRefused(RecoveryError):
    """EventBridge took the request but not the event."""


class AwsActions:
    """Every client is made when it is first needed: an event that changes nothing pays for none but DynamoDB's."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime]) -> None:
        self.settings, self.clock = settings, clock

    @cached_property
    def ecs(self) -> Ecs:
        return Ecs(client("ecs"), self.settings.cluster, self.clock)

    @cached_property
    def ec2(self) -> Ec2:
        return Ec2(self.settings.managed_tag, self.clock)

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

    # -- tasks and instances -------------------------------------------------------------------------------------------

    def run_ranks(self, job: Job, plan: Plan) -> tuple[str | Refusal, ...]:
        return self.ecs.run_ranks(job, plan, self.ec2.private_ip(plan.instances[0]))

    def run_check(self, instance: Instance, check_id: str, refusals: int) -> str | Refusal:
        settings = self.settings
        limit_s = min(settings.policy.check_timeout_s, settings.policy.verify_timeout_s)
        check = ecs_requests.CheckTask(
            settings.check_task_definition,
            settings.verdict_bucket,
            settings.check_level,
            settings.check_reserves_gpus,
            limit_s,
        )
        return self.ecs.run(ecs_requests.check_request(settings.cluster, check, instance, check_id, refusals))

    def stop_tasks(self, task_ids: Sequence[str], reason: str) -> None:
        self.ecs.stop_tasks(task_ids, reason)

    def stop_task(self, task_id: str, reason: str) -> bool:
        return self.ecs.stop_task(task_id, reason)

    def tasks_started_by(self, started_by: str) -> tuple[str, ...]:
        return self.ecs.tasks_started_by(started_by)

    def describe_tasks(self, task_ids: Sequence[str]) -> tuple[TaskFact, ...]:
        return self.ecs.describe_tasks(task_ids) if task_ids else ()

    def running_tasks(
        self, unreadable: list[Exception] | None = None, known: Collection[str] = ()
    ) -> Iterable[TaskFact]:
        return self.ecs.running_tasks(unreadable, known)

    def tasks_on(self, instance: Instance) -> tuple[TaskFact, ...]:
        return self.ecs.tasks_on(instance)

    def machines(self, instance_ids: Sequence[str]) -> Mapping[str, Machine]:
        return self.ec2.machines(instance_ids)

    def machine_statuses(self, instance_ids: Sequence[str]) -> Mapping[str, MachineStatus]:
        return self.ec2.machine_statuses(instance_ids)

    def container_instances(self, unreadable: list[Exception] | None = None) -> Iterable[tuple[str, InstanceObserved]]:
        return self.ecs.container_instances(unreadable)

    def describe_instance(self, container_instance_id: str) -> tuple[str, InstanceObserved] | None:
        return self.ecs.describe_instance(container_instance_id)

    def drain(self, instance: Instance) -> None:
        self.ecs.set_status(instance, EcsStatus.DRAINING)

    def activate(self, instance: Instance) -> None:
        self.ecs.set_status(instance, EcsStatus.ACTIVE)

    def reboot(self, instance_id: str) -> Refusal | None:
        return self.ec2.reboot(instance_id)

    def replace(self, instance_id: str, group: str) -> Refusal | None:
        return self.ec2.replace(instance_id, group)

    def start(self, instance_id: str) -> Refusal | None:
        return self.ec2.start(instance_id)

    def deregister(self, container_instance_id: str) -> None:
        self.ecs.deregister(container_instance_id)

    # -- words out, words in -------------------------------------------------------------------------------------------

    def verdict(self, check_id: str) -> Verdict | None:
        key = ecs_requests.verdict_key(check_id)
        try:
            answer = self._s3.get_object(Bucket=self.settings.verdict_bucket, Key=key)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        return parse_verdict(answer["Body"].read(), check_id)

    def log_tail(self, job: Job, task_id: str, most: int) -> tuple[str, ...] | str:
        definition = task_definition(job.spec.task_definition)
        if definition is None:
            return f"ECS knows no active task definition {job.spec.task_definition}"
        place = place_of(definition, job.spec.container, task_id)
        if isinstance(place, str):
            return place
        found = AwsJobLogs().read(place.group, place.stream, place.region, most, None)
        return found if isinstance(found, str) else tuple(text for _, text in found.lines)

    def notify(self, message: NotifyOperator) -> None:
        cluster = self.settings.cluster
        if message.channel is Channel.CHAT:
            # A deployment that has given up its second topic has nobody left to tell there.
            if self.settings.chat_topic_arn:
                self._sns.publish(**notification_requests.chat_request(message, self.settings.chat_topic_arn, cluster))
            return
        self._sns.publish(**notification_requests.mail_request(message, self.settings.topic_arn, cluster))

    def publish(self, event: PublishEvent, causation_id: str) -> None:
        answer = self._events.put_events(
            Entries=[notification_requests.event_entry(event, causation_id, self.settings.bus_name)]
        )
        if answer["FailedEntryCount"]:
            refused = answer["Entries"][0]
            if refused.get("ErrorCode") in THROTTLES:
                raise TryAgainSoon(f"events PutEvents: {refused['ErrorCode']}")
            raise EventRefused(f"{event.detail_type}: {refused.get('ErrorCode')} {refused.get('ErrorMessage')}")

    def poke_scheduler(self, key: str) -> None:
        self._sqs.send_message(
            QueueUrl=self.settings.scheduler_queue_url,
            MessageBody=json.dumps({"key": key}),
            MessageGroupId="scheduler",
            MessageDeduplicationId=ecs_requests.token(key),
        )

    def record_submitted(self, job: Job, submitted: str) -> None:
        self._s3.put_object(**job_archive.submitted_request(self.settings.verdict_bucket, job.job_id, submitted))

    def record_attempt(self, job: Job, plan: Plan, view: Mapping[str, Any]) -> None:
        settings = self.settings
        request = job_archive.attempt_request(settings.verdict_bucket, settings.cluster, job, plan, view)
        self._s3.put_object(**request)


def parse_verdict(body: bytes, check_id: str) -> Verdict | None:
    """The verdict in a document; None if it is another check's. VerdictUnreadable if it is no verdict at all."""
    try:
        document: Mapping[str, Any] = json.loads(body)
        if document.get("check_id") != check_id:
            return None
        return Verdict(
            CheckOutcome(document["outcome"]),
            str(document.get("summary", "")),
            document.get("boot_id"),
            time_of(document.get("booted_at")),
        )
    except (ValueError, KeyError, AttributeError) as error:
        raise VerdictUnreadable(f"the document of {check_id} is no verdict: {error}") from error
