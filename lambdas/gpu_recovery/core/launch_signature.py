"""Launch signature: a message authentication code (HMAC) that shows that our RunTask started a task.

Anyone with `ecs:RunTask` chooses `startedBy` and the environment of a task. The signature cannot be guessed, because it
is computed with the launch key. The key is an item of the job table, so each principal that may read the table can
compute signatures. Each principal that may describe tasks can copy the signature of a running task. So a signature
counts only until the id of the task is recorded, and only together with the instance and the family of the task
definition.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from gpu_recovery.core.identifiers import family_of
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.task import TaskFact

CHARACTERS = 32
"""Length of a launch signature in hexadecimal digits: 128 bits."""


@frozen_dataclass()
class ExpectedTask:
    """What the records say about one task that we started.

    task_id:         the ECS task id; "" if the answer of RunTask is not recorded.
    instance_id:     the EC2 instance on which the task was started.
    task_definition: the task definition: family, family:revision or ARN.
    signature:       the launch signature; "" if an older release started the task without a signature.
    """

    task_id: str
    instance_id: str
    task_definition: str
    signature: str


def launch_signature(key: str, started_by: str, rank: int | None = None) -> str:
    """Return the launch signature of a health check, or of a rank of an attempt.

    Args:
        key: the launch key of the deployment.
        started_by: the check id or the attempt id.
        rank: the rank; None for a health check.
    """
    return _code(key, started_by if rank is None else f"{started_by}/{rank}")


def verdict_name(key: str, check_id: str) -> str:
    """Return the name of a check's verdict document in S3, which only the functions and the check itself know.

    The name does not show the launch signature: a key of S3 appears in access logs.
    """
    return _code(key, f"verdict:{check_id}")


def has_signature(fact: TaskFact, signature: str) -> bool:
    """Return whether the task carries this launch signature. "" stands for no signature."""
    return hmac.compare_digest(fact.launch_signature.encode(), signature.encode())


def is_of_family(fact: TaskFact, task_definition: str) -> bool:
    """Return whether the task runs a revision of the same family."""
    return family_of(fact.task_definition) == family_of(task_definition)


def _code(key: str, name: str) -> str:
    return hmac.new(key.encode(), name.encode(), sha256).hexdigest()[:CHARACTERS]
