"""All models of responses by their names, as the table of routes has them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, RootModel

from gpu_recovery.job_api.models import access, diagnoses, fleet, history, instances, jobs, queue
from gpu_recovery.job_api.models.base import ResponseModel, Time
from gpu_recovery.job_api.redrive import DeadLetterQueue


class DeadLetter(ResponseModel):
    """A dead letter: its source and account, the target of a redrive, and why the letter stays."""

    queue: DeadLetterQueue
    message_id: str
    source: str | None
    account: str | None
    target: Annotated[str | None, Field(alias="for")]
    kept_because: str | None


class DeadLetterDepth(ResponseModel):
    """A dead-letter queue: its approximate depth, and its first dead letters."""

    queue: DeadLetterQueue
    letters: int
    shown: list[DeadLetter]


class DeadLetters(ResponseModel):
    """The dead-letter queues."""

    queues: list[DeadLetterDepth]


class Redriven(ResponseModel):
    """The result of a redrive for each dead letter, and the number of dead letters that are left."""

    letters: list[DeadLetter]
    left: dict[str, int]
    stopped_because: str | None


class Lock(ResponseModel):
    """A lock of a job with its present owner."""

    job_id: str
    name: str
    owner: str | None
    token: int
    instance_id: str | None
    acquired_at: Time | None
    expires_at: Time | None
    has_ended: bool


class OpenApi(RootModel[dict[str, Any]]):
    """An OpenAPI document."""


_MODULES = (access, diagnoses, fleet, history, instances, jobs, queue)
RESPONSES: dict[str, type[BaseModel]] = {
    model.__name__: model
    for module in _MODULES
    for model in vars(module).values()
    if isinstance(model, type) and issubclass(model, BaseModel) and not model.__name__.startswith("_")
} | {model.__name__: model for model in (DeadLetters, Redriven, Lock, OpenApi)}
"""Models of responses by their names."""
