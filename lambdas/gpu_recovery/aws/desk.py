"""Puts together what the job side of the API reaches, once per cold start."""

from __future__ import annotations

import secrets
from datetime import datetime
from functools import cache
from importlib import import_module

from .. import scheduling
from ..capacity import Capacity
from ..core.instance.record import Instance
from ..core.policy import RecoveryPolicy
from ..core.queue.snapshot import Placement, Snapshot
from ..door import Entrance
from ..routes.desk import Desk
from ..user_tokens import USER_TOKEN
from .api_sources import operator_token, task_definition
from .attempt_history import DynamoAttemptHistory
from .dead_letters import AwsDeadLetters
from .job_logs import AwsJobLogs
from .limits_store import DynamoLimits
from .submission_store import DynamoSubmissions
from .token_store import DynamoUserTokenStore
from .wiring import dynamodb, logger, recovery, settings, tokens


class SchedulersView:
    """`routes.desk.Queue`: what the scheduler reads, and what it would answer."""

    def read(self) -> Snapshot:
        found: Snapshot = getattr(scheduling, "read_snapshot")(recovery())  # noqa: B009
        return found

    def place(self, snapshot: Snapshot, policy: RecoveryPolicy, now: datetime) -> Placement:
        found: Placement = import_module("gpu_recovery.core.queue.place").place(snapshot, policy, now)
        return found


def group_of(instance: Instance) -> str:
    """The group whose jobs the instance runs, "" for none."""
    return str(getattr(instance, "group", ""))


@cache
def desk() -> Desk:
    """Everything that routes may use, on DynamoDB and AWS."""
    told, loop, client = settings(), recovery(), dynamodb()
    users = DynamoUserTokenStore(client, told.job_table)
    return Desk(
        recovery=loop, submissions=DynamoSubmissions(client, told.job_table),
        limits=DynamoLimits(client, told.job_table), attempts=DynamoAttemptHistory(client, told.job_table),
        capacity=Capacity(lambda statuses: loop.store.instances_in(statuses, []), group_of), queue=SchedulersView(),
        logs=AwsJobLogs(), node_tokens=tokens(), user_tokens=users,
        users=Entrance(users, loop.clock, USER_TOKEN), letters=lambda: AwsDeadLetters(told),
        operator_token=lambda: operator_token(told.operator_token_secret), describe=task_definition,
        random=lambda: secrets.token_hex(2), job_id_prefix=told.job_id_prefix, log=logger,
    )  # fmt: skip
