"""Taking a job in: its specification checked, its task definition looked up, its record made.

Whoever submits with a key may do so again and again: the same key and the same specification are the same job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from gpu_recovery.core.errors import RecoveryError, SpecInvalid
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend, JobSpec, parse_spec
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits, never_runs
from gpu_recovery.core.ray.submission import local_path_field
from gpu_recovery.core.state_machine import Decision
from gpu_recovery.ports.store import Store
from gpu_recovery.recovery import Recovery
from gpu_recovery.wire import jobs

JOB_ID_ATTEMPTS_MAX = 5
ACTIVE = "ACTIVE"
"""ECS still describes a revision that was deregistered, but runs no task of it."""
STOP_TIMEOUT_S = 30
"""The `stopTimeout` of a container that names none, on instances that say nothing else."""
IDEMPOTENCY_KEY_TTL = timedelta(hours=48)
"""How long a key is remembered: a day is promised."""


class KeyReused(RecoveryError):
    """The key was used for another specification. `job_id` is the job that it belongs to."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"this Idempotency-Key was used for {job_id}, which has another specification")
        self.job_id = job_id


@dataclass(frozen=True, slots=True)
class Submission:
    """What is kept of a submission with a key: `name` is the key's, `digest` that of the specification."""

    name: str
    digest: str
    job_id: str
    kept_until: datetime


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """What is read before a job is taken in.

    before:   what was submitted with the key and is remembered.
    is_empty: the reconciler has counted no instance with GPUs.
    """

    limits: QuotaLimits = field(default_factory=QuotaLimits)
    before: Submission | None = None
    is_empty: bool = False


class Submissions(Protocol):
    """Where submitted jobs are kept, and the keys they came with."""

    def read(self, name: str, now: datetime, must_read_key: bool = False) -> SubmissionFacts:
        """Read the facts with at most one call; the key only if `must_read_key` or if that needs no more calls.

        A key that was not read is not lost: `keep` finds it taken.
        """

    def save(self, record: Job, submitted: str, submission: Submission | None, now: datetime) -> bool:
        """Keep the job, its text and its key, or none of them: False if the id or the key is taken."""


def key_name(who: str, key: str) -> str:
    """Under which name a caller's key is kept: two callers may choose the same one."""
    return hashlib.sha256(json.dumps([who, key]).encode()).hexdigest()


def digest_of(document: Any) -> str:
    """What makes two specifications the same, however they are written."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class SubmissionHandler:
    """Takes jobs in.

    describe: an ECS task definition by its name, None if there is none.
    check:    raises SpecInvalid for a job that the cluster can never run; it is told if that is thought to be empty.
    random:   four hexadecimal digits.
    reserved: the ECS family of the health check: its role and its rights are nobody else's.
    """

    recovery: Recovery
    submissions: Submissions
    describe: Callable[[str], Mapping[str, Any] | None]
    check: Callable[[JobSpec, datetime, bool], None]
    random: Callable[[], str]
    prefix: str
    reserved: str = ""

    def submit(self, document: Any, submitted: str, user: str | None, name: str = "") -> tuple[Job, bool]:
        """(the job of a decoded `document`, whether it is new); its text was `submitted`.

        user: whose job it must be; None if the specification may name anybody.
        name: that of the key it came with, "" for none.
        Raises SpecInvalid, ForeignUser and KeyReused; then nothing is kept.
        """
        spec = parsed(document, user)
        now = self.recovery.clock()
        known = self.submissions.read(name, now)
        if known.before is not None:
            return self._again(known.before, document), False
        try:
            spec = self._acceptable(spec, known, now)
        except SpecInvalid:
            before = self.submissions.read(name, now, must_read_key=True).before if name else None
            if before is None:
                raise
            return self._again(before, document), False  # it was acceptable the first time
        for _ in range(JOB_ID_ATTEMPTS_MAX):
            decision = self._new(spec)
            key = (
                Submission(name, digest_of(document), decision.record.job_id, now + IDEMPOTENCY_KEY_TTL)
                if name
                else None
            )
            if self.submissions.save(decision.record, submitted, key, now):
                self.recovery.begin_job(decision, submitted)
                return decision.record, True
            before = self.submissions.read(name, now, must_read_key=True).before if name else None
            if before is not None:  # somebody else came first with the same key
                return self._again(before, document), False
        raise SpecInvalid("workload", "every name tried for this job is taken; submit it again")

    def dry_run(self, document: Any, user: str | None) -> Job:
        """The job as it would be submitted; nothing is kept. Raises as `submit`."""
        spec = parsed(document, user)
        now = self.recovery.clock()
        return self._new(self._acceptable(spec, self.submissions.read("", now), now)).record

    def _acceptable(self, spec: JobSpec, known: SubmissionFacts, now: datetime) -> JobSpec:
        """`spec` as it is kept, once it is known that it can run some day."""
        if spec.backend is Backend.RAY:
            if self.recovery.ray is None:
                raise SpecInvalid("backend", "this deployment has no Ray cluster")
            if (where := local_path_field(json.loads(spec.runtime_env or "{}"))) != "":
                raise SpecInvalid(f"runtime_env.{where}", "must name what the cluster itself can fetch, by its URI")
            self.check(spec, now, known.is_empty)
            return spec
        definition = self.describe(spec.task_definition)
        family = str((definition or {}).get("family", "")) or spec.task_definition.partition(":")[0]
        if self.reserved and self.reserved in (family, spec.task_definition.partition(":")[0]):
            raise SpecInvalid(
                "task_definition", f"{self.reserved} is the health check's: no job may run with its rights"
            )
        spec = with_container(spec, definition)
        never = never_runs(known.limits, QuotaKey(spec.user, spec.priority, spec.group), spec.nnodes)
        if never is not None:
            raise SpecInvalid("nnodes", never)
        self.check(spec, now, known.is_empty)
        return spec

    def _new(self, spec: JobSpec) -> Decision[Job]:
        now = self.recovery.clock()
        job_id = jobs.job_id(spec.workload, self.prefix, now, self.random())
        return state_machine.created(job_id, spec, self.recovery.policy, now)

    def _again(self, before: Submission, document: Any) -> Job:
        found = self.recovery.store.load_job(before.job_id) if before.digest == digest_of(document) else None
        if found is None:
            raise KeyReused(before.job_id)
        return found


@dataclass(frozen=True, slots=True)
class WithoutKeys:
    """`Submissions` in the store of the loop, for a world in which nobody sends keys and nobody is limited."""

    store: Store

    def read(self, name: str, now: datetime, must_read_key: bool = False) -> SubmissionFacts:
        """Nothing is remembered."""
        return SubmissionFacts()

    def save(self, record: Job, submitted: str, submission: Submission | None, now: datetime) -> bool:
        """As `Store.create_job`."""
        return self.store.create_job(record, submitted)


def submit(
    recovery: Recovery,
    document: Any,
    submitted: str,
    prefix: str,
    describe: Callable[[str], Mapping[str, Any] | None],
    random: Callable[[], str],
) -> Job:
    """Create the job of a decoded `document` without an idempotency key; raises as `SubmissionHandler.submit`."""
    intake = SubmissionHandler(
        recovery, WithoutKeys(recovery.store), describe, lambda spec, now, is_empty: None, random, prefix
    )
    return intake.submit(document, submitted, None)[0]


class ForeignUser(SpecInvalid):
    """A user submits in the name of another."""


def parsed(document: Any, user: str | None) -> JobSpec:
    """The specification of a decoded `document`, as a job of `user` if that is not None."""
    spec = parse_spec(document)
    if user is None or spec.user == user:
        return spec
    if spec.user:
        raise ForeignUser("user", f"your token submits jobs of {user} only, not of {spec.user}")
    return replace(spec, user=user)


def with_container(spec: JobSpec, definition: Mapping[str, Any] | None) -> JobSpec:
    """`spec` with its container, once the task definition is known to suit a gang. SpecInvalid says what does not."""
    if definition is None or definition.get("status", ACTIVE) != ACTIVE:
        raise SpecInvalid("task_definition", f"ECS knows no active task definition {spec.task_definition}")
    if definition.get("networkMode") != "host":
        raise SpecInvalid("task_definition", "its network mode must be host: ranks find each other by instance address")
    containers = [one for one in definition["containerDefinitions"] if one.get("essential", True)]
    names = [one["name"] for one in containers]
    if spec.container and spec.container not in names:
        raise SpecInvalid("container", f"the essential containers of the task definition are {', '.join(names)}")
    chosen = next(one for one in containers if spec.container in ("", one["name"]))
    stops_within = chosen.get("stopTimeout", STOP_TIMEOUT_S)
    if spec.suspend_grace_s > stops_within:
        detail = f"must be at most {stops_within}: the stopTimeout of container {chosen['name']} ends it after that"
        raise SpecInvalid("suspend_grace_s", detail)
    spec = with_image(spec, definition, str(chosen.get("image", "")))
    return replace(spec, container=chosen["name"], stop_timeout_s=int(stops_within))


def with_image(spec: JobSpec, definition: Mapping[str, Any], image: str) -> JobSpec:
    """`spec`, if the image it names is its container's; then of this revision for good: the next may have another."""
    if not spec.image:
        return spec
    family, revision = definition.get("family", spec.task_definition.partition(":")[0]), definition.get("revision")
    if spec.image != image:
        named = f"{family}:{revision}" if revision else family
        detail = f"is {image} in {named}: register a revision of {family} with this image, and submit again"
        raise SpecInvalid("image", detail)
    return replace(spec, task_definition=f"{family}:{revision}") if revision else spec
