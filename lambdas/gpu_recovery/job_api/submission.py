"""Submission of jobs, with an idempotency key: check the specification, create the record.

A submission with an idempotency key may be repeated. The same key and the same specification give the same job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from gpu_recovery.core.errors import RecoveryError, SpecInvalid
from gpu_recovery.core.job import state_machine
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.job.spec import Backend, JobSpec
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.queue.quota import QuotaKey, QuotaLimits, never_runs
from gpu_recovery.core.ray.submission import refused_field
from gpu_recovery.core.state_machine import Decision
from gpu_recovery.job_api.job_spec import parse_spec
from gpu_recovery.job_api.task_definition import TaskDefinitionRules, with_container
from gpu_recovery.ports.store import Store
from gpu_recovery.recovery import Recovery
from gpu_recovery.wire import jobs

JOB_ID_ATTEMPTS_MAX = 5
"""Job ids that are tried for a new job. Each has other random digits."""
IDEMPOTENCY_KEY_TTL = timedelta(hours=48)
"""Time for which an idempotency key is stored. The API promises one day."""


class KeyReused(RecoveryError):
    """The idempotency key was used for another specification. `job_id` is the job of that specification."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"this Idempotency-Key was used for {job_id}, which has another specification")
        self.job_id = job_id


@frozen_dataclass()
class Submission:
    """A stored submission with an idempotency key.

    name:       name under which the key is stored, see `key_name`.
    digest:     digest of the specification, see `digest_of`.
    job_id:     the job that was created.
    kept_until: time until which the key is valid.
    """

    name: str
    digest: str
    job_id: str
    kept_until: datetime


@frozen_dataclass()
class SubmissionFacts:
    """Stored facts that a submission is checked against.

    limits:   quotas.
    before:   earlier submission with the same key; None if there is none or the key was not read.
    is_empty: whether the reconciler last counted no instance with GPUs.
    """

    limits: QuotaLimits = field(default_factory=QuotaLimits)
    before: Submission | None = None
    is_empty: bool = False


class Submissions(Protocol):
    """Store of submitted jobs and their idempotency keys."""

    def read(self, name: str, now: datetime, must_read_key: bool = False) -> SubmissionFacts:
        """Read the facts with at most one call of the database.

        A key that was not read is still safe: `save` finds that the key is used.

        Args:
            name: name of the key, "" for a submission without a key.
            now: time of the submission. A key that expired before this time is ignored.
            must_read_key: whether the key must be read. Otherwise it is read only if this needs no further call.
        """

    def save(self, record: Job, submitted: str, submission: Submission | None, now: datetime) -> bool:
        """Store the job, its submitted text and its key, or nothing if the job id or the key is in use.

        Args:
            record: the new job.
            submitted: the submitted text.
            submission: the key and its job; None for a submission without a key.
            now: time of the submission.

        Returns:
            Whether the job was stored.
        """


def key_name(caller: str, key: str) -> str:
    """Return the name under which a caller's key is stored. Two callers may choose the same key."""
    return hashlib.sha256(json.dumps([caller, key]).encode()).hexdigest()


def digest_of(document: Any) -> str:
    """Return the digest of a specification. The order of fields and the notation make no difference."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@frozen_dataclass()
class SubmissionHandler:
    """Checks specifications and creates jobs.

    describe: returns an ECS task definition by its name, None if there is none.
    check:    raises SpecInvalid for a job that the cluster can never run. The last argument says whether the
              reconciler last counted no instance with GPUs.
    random:   returns four hexadecimal digits.
    prefix:   first characters of each job id.
    rules:    what the deployment demands of a task definition; None for nothing, in simulations.
    priority_max: highest priority that a user may ask for without a quota of this priority. Operators may ask for any.
    """

    recovery: Recovery
    submissions: Submissions
    describe: Callable[[str], Mapping[str, Any] | None]
    check: Callable[[JobSpec, datetime, bool], None]
    random: Callable[[], str]
    prefix: str
    rules: TaskDefinitionRules | None = None
    priority_max: Priority = Priority.EXTREME_HIGH

    def submit(self, document: Any, submitted: str, user: str | None, name: str = "") -> tuple[Job, bool]:
        """Submit a job and return it, and whether it is new.

        A submission that raises an error leaves no record.

        Args:
            document: the decoded specification.
            submitted: the text of the specification.
            user: the user that the job must have; None if the specification may name any user.
            name: name of the idempotency key, "" for a submission without a key.

        Raises:
            SpecInvalid: the specification is malformed, the job can never run, or each of the JOB_ID_ATTEMPTS_MAX job
                ids that were tried is taken.
            ForeignUser: the specification names another user than `user`.
            PriorityTooHigh: a user asks for a higher priority than users may have.
            KeyReused: the key was used for another specification.
        """
        spec = parsed(document, user)
        now = self.recovery.clock()
        facts = self.submissions.read(name, now)
        if facts.before is not None:
            return self._submitted_before(facts.before, document), False
        try:
            spec = self._checked_spec(spec, facts, now, user is None)
        except SpecInvalid:
            before = self.submissions.read(name, now, must_read_key=True).before if name else None
            if before is None:
                raise
            return self._submitted_before(before, document), False  # the specification was valid the first time
        for _ in range(JOB_ID_ATTEMPTS_MAX):
            decision = self._created(spec)
            key = (
                Submission(name, digest_of(document), decision.record.job_id, now + IDEMPOTENCY_KEY_TTL)
                if name
                else None
            )
            if self.submissions.save(decision.record, submitted, key, now):
                self.recovery.begin_job(decision, submitted)
                return decision.record, True
            before = self.submissions.read(name, now, must_read_key=True).before if name else None
            if before is not None:  # another request with the same key was faster
                return self._submitted_before(before, document), False
        raise SpecInvalid("workload", "every id that was tried for this job is taken; submit the job again")

    def dry_run(self, document: Any, user: str | None) -> Job:
        """Return the job that `submit` would create, without storing the job.

        Raises:
            SpecInvalid: the specification is malformed, or the job can never run.
            ForeignUser: the specification names another user than `user`.
            PriorityTooHigh: a user asks for a higher priority than users may have.
        """
        spec = parsed(document, user)
        now = self.recovery.clock()
        return self._created(self._checked_spec(spec, self.submissions.read("", now), now, user is None)).record

    def _checked_spec(self, spec: JobSpec, facts: SubmissionFacts, now: datetime, by_operator: bool) -> JobSpec:
        """Return `spec` as it is stored, after the checks that its job can run on this deployment.

        Raises:
            PriorityTooHigh: a user asks for a higher priority than users may have.
            SpecInvalid: the job can never run on this deployment.
        """
        key = QuotaKey(spec.user, spec.priority, spec.group)
        if spec.priority > self.priority_max and not by_operator and not facts.limits.allows_priority(key):
            raise PriorityTooHigh(spec, self.priority_max)
        gpus, least = spec.width_min * spec.gpus_per_node, self.recovery.policy.min_gpus
        if gpus < least:
            detail = f"the job has {gpus} GPU(s) in all, and a job of this deployment must have at least {least}"
            raise SpecInvalid("n_gpus_per_node", detail)
        never = never_runs(facts.limits, key, spec.width_min)
        if spec.backend is Backend.RAY:
            if self.recovery.ray is None:
                raise SpecInvalid("backend", "this deployment has no Ray cluster")
            if never is not None:
                raise SpecInvalid("nnodes", never)
            if (refused := refused_field(json.loads(spec.runtime_env or "{}"))) is not None:
                raise SpecInvalid(f"runtime_env.{refused.name}", refused.detail)
            self.check(spec, now, facts.is_empty)
            return spec
        if self.rules is not None:
            self.rules.check_family(spec)
        definition = self.describe(spec.task_definition)
        spec = with_container(spec, definition, self.recovery.policy)
        if self.rules is not None and definition is not None:
            self.rules.check(spec, definition)
        if never is not None:
            raise SpecInvalid("nnodes", never)
        self.check(spec, now, facts.is_empty)
        return spec

    def _created(self, spec: JobSpec) -> Decision[Job]:
        now = self.recovery.clock()
        job_id = jobs.job_id(spec.workload, self.prefix, now, self.random())
        return state_machine.created(job_id, spec, self.recovery.policy, now)

    def _submitted_before(self, before: Submission, document: Any) -> Job:
        job = self.recovery.store.load_job(before.job_id) if before.digest == digest_of(document) else None
        if job is None:
            raise KeyReused(before.job_id)
        return job


@frozen_dataclass()
class WithoutKeys:
    """`Submissions` in the store of the loop, without idempotency keys and quotas. For simulations and tests."""

    store: Store

    def read(self, name: str, now: datetime, must_read_key: bool = False) -> SubmissionFacts:
        """Return facts without limits and without an earlier submission."""
        return SubmissionFacts()

    def save(self, record: Job, submitted: str, submission: Submission | None, now: datetime) -> bool:
        """Store the job with `Store.create_job`."""
        return self.store.create_job(record, submitted)


def submit(
    recovery: Recovery,
    document: Any,
    submitted: str,
    prefix: str,
    describe: Callable[[str], Mapping[str, Any] | None],
    random: Callable[[], str],
) -> Job:
    """Create a job without an idempotency key, quotas and capacity check.

    Args:
        recovery: the loop.
        document: the decoded specification.
        submitted: the text of the specification.
        prefix: first characters of the job id.
        describe: returns an ECS task definition by its name, None if there is none.
        random: returns four hexadecimal digits.

    Raises:
        SpecInvalid: the specification is malformed, or its task definition does not suit a gang.
    """
    handler = SubmissionHandler(
        recovery, WithoutKeys(recovery.store), describe, lambda spec, now, is_empty: None, random, prefix
    )
    return handler.submit(document, submitted, None)[0]


class ForeignUser(SpecInvalid):
    """A user submits a job of another user."""


class PriorityTooHigh(SpecInvalid):
    """A user submits a job with a higher priority than the deployment gives to users."""

    def __init__(self, spec: JobSpec, most: Priority) -> None:
        detail = (
            f"{spec.user} may submit with {most.name} at most, not with {spec.priority.name}: "
            f"ask an operator for a quota of {spec.user}/{spec.priority.name}, or to submit the job"
        )
        super().__init__("priority", detail)


def parsed(document: Any, user: str | None) -> JobSpec:
    """Return the specification of a decoded `document`, with `user` as its user if `user` is not None.

    Raises:
        SpecInvalid: the specification is malformed.
        ForeignUser: the specification names another user than `user`.
    """
    spec = parse_spec(document)
    if user is None or spec.user == user:
        return spec
    if spec.user:
        raise ForeignUser("user", f"your token submits jobs of {user} only, not of {spec.user}")
    return replace(spec, user=user)
