"""What travels over HTTP: records as clients see them. Names follow seeds 003 and 004 where those name a field."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.core.fleet import Fleet, breaker_limit, budget
from gpu_recovery.core.heartbeat import Beat
from gpu_recovery.core.instance.fault_history import made_of, percent
from gpu_recovery.core.instance.lemons import LemonSignal, faded
from gpu_recovery.core.instance.record import Instance, InstanceStatus, Need
from gpu_recovery.core.job.diagnosis_result import Conclusion
from gpu_recovery.core.job.record import Job
from gpu_recovery.core.liveness import liveness
from gpu_recovery.core.policy import RecoveryPolicy, within
from gpu_recovery.core.queue.priority import effective
from gpu_recovery.core.state_machine import HistoryEntry

if TYPE_CHECKING:
    from gpu_recovery.auth.tokens import NodeToken
    from gpu_recovery.auth.user_tokens import UserToken
    from gpu_recovery.job_api.redrive import Fate, Grave

BECAUSE_CHARACTERS_MAX = 500


def read_json(text: str) -> Any:
    """The value that `text` spells; ValueError or RecursionError if it is none, or one that means two things.

    Stricter than `json`: no NaN, no key given twice, no half characters, which neither a table nor ECS can hold.
    """
    document = json.loads(text, object_pairs_hook=_each_once, parse_constant=_no_number)
    json.dumps(document, ensure_ascii=False).encode()
    return document


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} is given twice")
        found[key] = value
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number in JSON")


def object_of(text: str | None) -> dict[str, Any]:
    """The JSON object of a request's body, an empty one without a body. SpecInvalid if it is none."""
    try:
        document = read_json(text) if text and text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise SpecInvalid("body", f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise SpecInvalid("body", "must be a JSON object")
    return document


def because_of(text: str | None, *, required: bool = False) -> str:
    """A person's reason in a request's body, `{"because": text}`; "" without a body. SpecInvalid if it is no reason."""
    document = object_of(text)
    if set(document) - {"because"}:
        raise SpecInvalid("body", "must be a JSON object with the one field because")
    because = document.get("because") or ""
    if not isinstance(because, str) or len(because) > BECAUSE_CHARACTERS_MAX or not because.isprintable():
        raise SpecInvalid("because", f"must be a line of at most {BECAUSE_CHARACTERS_MAX} characters")
    if required and not because.strip():
        raise SpecInvalid("because", "must say why, for whoever finds it so at night")
    return because.strip()


def job_id(workload: str, prefix: str, now: datetime, random: str) -> str:
    """A new job's id: `<prefix><workload>-<yyyymmdd>-<hhmmss>-<4 hex>`."""
    return f"{prefix}{workload}-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{random}"


def records_of(job_id: str) -> str:
    """The prefix of what is recorded of a job in S3; an id of a person's may hold any character."""
    return f"jobs/{quote(job_id, safe='')}/"


def job_summary(job: Job, policy: RecoveryPolicy) -> dict[str, Any]:
    """A job in a listing."""
    return {
        "job_id": job.job_id,
        "status": job.status.value,
        "reason": job.reason,
        "attempt": job.attempt,
        "attempts_counted": job.attempts_counted,
        "attempts_max": job.attempts_max(policy),
        "workload": job.spec.workload,
        "user": job.spec.user,
        "group": job.spec.group,
        "priority": effective(job.spec.priority, job.ran_s, policy).name,
        "asked_priority": job.spec.priority.name,
        "backend": job.spec.backend.value,
        "nnodes": job.spec.nnodes,
        "n_gpus_per_node": job.spec.gpus_per_node,
        "task_definition": job.spec.task_definition,
        "origin": job.origin.value,
        "instances": list(job.instances),
        "repairing": list(job.repairing),
        "queued_at": time_text(job.queued_at),
        "status_at": time_text(job.status_at),
        "deadline_at": time_text(job.deadline_at),
        "incident_id": job.incident_id,
        "held": job.held,
        "short_of": job.short_of or None,
        "next_run_at": time_text(job.next_run_at),
    }


def conclusion_view(conclusion: Conclusion) -> dict[str, Any]:
    """What the diagnosis of an attempt came to; its confidence in percent."""
    return {
        "attempt": conclusion.attempt,
        "cause": conclusion.cause,
        "where": conclusion.where,
        "instances": list(conclusion.instances),
        "remedy": conclusion.remedy,
        "confidence": conclusion.confidence,
        "decided": conclusion.decided,
        "sentence": conclusion.sentence,
    }


def job_view(job: Job, policy: RecoveryPolicy) -> dict[str, Any]:
    """A job by itself: its summary, what failed, what it runs, and every decision with its reason."""
    failure = job.failure
    return {
        **job_summary(job, policy),
        "container": job.spec.container,
        "command": list(job.spec.command),
        "entrypoint": job.spec.entrypoint,
        "image": job.spec.image or None,
        "max_runtime_s": job.spec.max_runtime_s,
        "suspend_grace_s": job.spec.suspend_grace_s,
        "checkpoint_dir": job.spec.checkpoint_dir,
        "suspended_for": job.suspended_for or None,
        "suspended_at": time_text(job.suspended_at),
        "ran_s": job.ran_s,
        "attempts_uncounted": dict(job.attempts_uncounted),
        "diagnosis": None if job.conclusion is None else conclusion_view(job.conclusion),
        "failure": None
        if failure is None
        else {
            "rank": failure.rank,
            "instance_id": failure.instance_id,
            "at": time_text(failure.at),
            "kind": failure.ending.kind.value,
            "exit_code": failure.ending.exit_code,
            "sentence": failure.ending.sentence,
        },
        "history": [history_view(entry) for entry in job.history],
    }


def instance_summary(instance: Instance, now: datetime) -> dict[str, Any]:
    """An instance in a listing: with their histories, some 400 would be more than Lambda can answer with (6 MB)."""
    return {
        "instance_id": instance.instance_id,
        "status": instance.status.value,
        "reason": instance.reason,
        "agent_connected": instance.agent_connected,
        "ecs_status": instance.ecs_status,
        "container_instance_id": instance.container_instance_id,
        "gpus": instance.gpus,
        "claims": {job: claim.attempt for job, claim in instance.claims.items()},
        "reserved_for": instance.reserved_for or None,
        "boot_id": instance.boot_id,
        "booted_at": time_text(instance.booted_at),
        "epoch": instance.epoch,
        "status_at": time_text(instance.status_at),
        "deadline_at": time_text(instance.deadline_at),
        "incident_id": instance.incident_id or None,
        "drained": instance.drained,
        "availability_zone": instance.availability_zone,
        "silent_since": time_text(instance.silent_since),
        "suspicion": instance.suspicion or None,
        "health": {
            kind: {"status": one.status.value, "since": time_text(one.since), "sentence": one.sentence}
            for kind, one in sorted(instance.health.items())
        },
        "departure": None
        if instance.departure is None
        else {
            "kind": instance.departure.kind.value,
            "leaves_at": time_text(instance.departure.leaves_at),
            "source": instance.departure.source,
            "sentence": instance.departure.sentence,
        },
        "need": None
        if instance.need is None
        else {
            "rung": instance.need.rung.value,
            "evidence": instance.need.evidence,
            "seen_at": time_text(instance.need.seen_at),
            "job_id": _needed_by(instance.need),
        },
        "held": None
        if instance.held is None or instance.status is not InstanceStatus.QUARANTINED
        else {
            "since": time_text(instance.held.since),
            "because": instance.held.sentence,
        },
        "lemon": lemon_view(instance, now),
    }


def _needed_by(need: Need) -> str | None:
    """The job that waits for the repair, or else the one whose rank is to be ended by it."""
    ended = need.ends.job_id if need.ends is not None else ""
    return need.job_id or ended or None


def instance_view(instance: Instance, now: datetime) -> dict[str, Any]:
    """An instance by itself: its summary, and every decision with its reason."""
    return {**instance_summary(instance, now), "history": [history_view(entry) for entry in instance.history]}


def lemon_view(instance: Instance, now: datetime) -> dict[str, Any]:
    """What is remembered against an instance: its score in percent, and how often each signal counts at this time."""
    recent = [one.kind for one in instance.past if faded(one.at_s, now.timestamp())]
    return {
        "score": percent(instance.past, now),
        "made_of": made_of(instance.past, now) or None,
        "signals": {kind.value: recent.count(kind) for kind in LemonSignal if kind in recent},
    }


def heartbeat_view(
    beat: Beat | None, inventory: tuple[str, str, datetime] | None, policy: RecoveryPolicy, now: datetime
) -> dict[str, Any] | None:
    """The latest heartbeat of an instance, and the latest inventory; None for one that was never heard of."""
    if beat is None:
        return None
    return {
        "seen_at": time_text(beat.seen_at),
        "liveness": liveness(now - beat.seen_at, policy).value,
        "boot_id": beat.boot_id or None,
        "booted_at": time_text(beat.booted_at),
        "health": beat.health,
        "ranks": [
            {"job_id": one.job_id, "attempt": one.attempt, "rank": one.rank, "seen_at": time_text(one.seen_at)}
            for one in sorted(beat.ranks.values(), key=lambda one: (one.job_id, one.attempt, one.rank))
        ],
        "inventory": None if inventory is None else {"at": time_text(inventory[2]), **json.loads(inventory[1])},
    }


def fleet_view(
    fleet: Fleet, policy: RecoveryPolicy, quarantined: Iterable[Instance], unreadable: Iterable[Exception]
) -> dict[str, Any]:
    """The brakes as they stand, and the instances that wait: for the brakes, for jobs to leave, for a person.

    unreadable: what is wrong with those instances that may be among them and cannot be read.
    """
    probe_at = fleet.opened_at + within(policy.breaker_probe_s) if fleet.opened_at and not fleet.probe else None
    waiting = sorted(quarantined, key=lambda one: one.instance_id)
    return {
        "gpu_instances": fleet.gpu_instances,
        "observe_only": policy.observe_only,
        "replace": policy.replace,
        "repairing": sorted(fleet.repairing),
        "repairs_at_once_max": budget(fleet, policy),
        "breaker": {
            "state": fleet.breaker.value,
            "since": time_text(fleet.opened_at),
            "because": fleet.opened_because or None,
            "probe": fleet.probe or None,
            "probe_at": time_text(probe_at),
            "incident_id": fleet.incident_id or None,
            "blamed": {one: time_text(at) for one, at in sorted(fleet.blamed.items())},
            "opens_at": breaker_limit(fleet, policy),
        },
        "deaf": None
        if fleet.deaf is None
        else {
            "since": time_text(fleet.deaf.since),
            "because": fleet.deaf.sentence,
            "incident_id": fleet.deaf.incident_id,
        },
        "pause": None
        if fleet.pause is None
        else {
            "by": fleet.pause.by,
            "because": fleet.pause.because,
            "at": time_text(fleet.pause.at),
        },
        "held": [
            {
                "instance_id": one.instance_id,
                "since": time_text(one.held.since),
                "because": one.held.sentence,
                "rung": one.need.rung.value if one.need else None,
                "evidence": one.need.evidence if one.need else None,
            }
            for one in waiting
            if one.held is not None
        ],
        "for_a_person": [
            {"instance_id": one.instance_id, "since": time_text(one.status_at), "because": one.reason}
            for one in waiting
            if one.held is None
        ],
        "unreadable": [str(error) for error in unreadable],
    }


def grave_view(grave: Grave, depth: int, shown: Iterable[Fate]) -> dict[str, Any]:
    """A dead-letter queue: about how many letters it holds, and the first of them."""
    return {"queue": grave.value, "letters": depth, "shown": [fate_view(fate) for fate in shown]}


def fate_view(fate: Fate) -> dict[str, Any]:
    """A dead letter: whom it is for, and why it stays, None if it goes."""
    return {
        "queue": fate.letter.grave.value,
        "message_id": fate.letter.message_id,
        "for": fate.to or None,
        "kept_because": fate.why or None,
    }


def token_view(token: NodeToken, now: datetime) -> dict[str, Any]:
    """A node's token as operators see it: by its id, without what opens."""
    return {
        "token_id": token.token_id,
        "instance_id": token.instance_id,
        "live": token.lives(now),
        "issued_at": time_text(token.issued_at),
        "expires_at": time_text(token.expires_at),
        "revoked_at": time_text(token.revoked_at),
        "issued_by": token.issued_by,
        "note": token.note,
    }


def user_token_view(token: UserToken, now: datetime) -> dict[str, Any]:
    """A user's token as operators see it: by its id, without what opens."""
    return {
        "id": token.token_id,
        "user": token.user,
        "role": token.role.value,
        "live": token.lives(now),
        "issued_at": time_text(token.issued_at),
        "expires_at": time_text(token.expires_at),
        "revoked_at": time_text(token.revoked_at),
        "issued_by": token.issued_by,
        "note": token.note,
    }


def history_view(entry: HistoryEntry) -> dict[str, Any]:
    """One decision as it was taken."""
    return {
        "at": time_text(entry.at),
        "from": entry.before or None,
        "to": entry.after,
        "event": entry.event,
        "attempt": entry.attempt,
        "reason": entry.reason,
    }


def problem(status: int, title: str, detail: str, field: str | None = None) -> Mapping[str, Any]:
    """An error body as RFC 9457 has it (application/problem+json); `field` names the culprit in a request."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return body if field is None else {**body, "field": field}


def time_text(time: datetime | None) -> str | None:
    """A time as clients see it: RFC 3339, UTC, milliseconds."""
    return None if time is None else time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
