"""Event delivery rules: undelivered events between the train and the rollout phase of a training, and OOMs after them.

Rows 41-46 of the fault catalogue, docs/diagnosis.md.

The progress of an event is the furthest of its states. A failure hides that state, so `last_state` is stored and read
(row 43). The POST may take 600 s, an acknowledgement 10 s, a query of the state 5 s, and the whole
`Thresholds.ack_s` (rows 42, 44). Only an acknowledged event is a success (row 45).

An OOM has nothing to do with the batch size in two cases (row 46): the event that hands over the GPU was not
acknowledged, or the other role still holds the GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_recovery.core.diagnosis.case import Case
from gpu_recovery.core.diagnosis.event_delivery import (
    EVENTS,
    EventProgress,
    claimed_event,
    event_progress,
    is_confirmed,
    target,
)
from gpu_recovery.core.diagnosis.misleading_oom import explained_ooms, ooms
from gpu_recovery.core.diagnosis.observations import Delivery, EventReport, LogFinding, StageReport
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, Weight


def _match_parts(case: Case, course: EventProgress) -> tuple[Scope, tuple[str, ...], dict[str, str]]:
    return target(case, course.last), course.evidence, {"event": course.last.event, "error": course.error}


def is_over(case: Case, course: EventProgress) -> bool:
    """Whether the event needs no more waiting: it failed, or its time is up."""
    return course.has_failed or case.at_s - course.reports[0].at_s >= case.thresholds.ack_s


def _stuck(case: Case, reached: Delivery, hidden: bool) -> Iterator[EventProgress]:
    """Events that got no further than `reached`, and are over.

    Args:
        hidden: True for events that failed, where the failure alone would hide the state; False for the others.
    """
    for course in case.computed_once(event_progress).values():
        if course.reached is reached and course.has_failed is hidden and is_over(case, course):
            yield course


def _undelivered(case: Case, hidden: bool) -> Iterator[Match]:
    for course in _stuck(case, Delivery.SENT, hidden):
        scope, evidence, values = _match_parts(case, course)
        yield Match(Cause.EVENT_UNDELIVERED, scope, Weight.FAIR, evidence, values)
        yield Match(Cause.NETWORK, scope, Weight.HINT, evidence, values)
        yield Match(Cause.WORKER_CRASH, scope, Weight.HINT, evidence, values)


def _unprocessed(case: Case, hidden: bool) -> Iterator[Match]:
    for course in _stuck(case, Delivery.DELIVERED, hidden):
        scope, evidence, values = _match_parts(case, course)
        yield Match(Cause.EVENT_UNPROCESSED, scope, Weight.FAIR, evidence, values)
        yield Match(Cause.WORKER_HANG, scope, Weight.HINT, evidence, values)


def _not_delivered(case: Case) -> Iterator[Match]:
    yield from _undelivered(case, hidden=False)


def _not_delivered_and_failed(case: Case) -> Iterator[Match]:
    yield from _undelivered(case, hidden=True)


def _not_acknowledged(case: Case) -> Iterator[Match]:
    yield from _unprocessed(case, hidden=False)


def _not_acknowledged_and_failed(case: Case) -> Iterator[Match]:
    yield from _unprocessed(case, hidden=True)


def _busy(case: Case) -> Iterator[Match]:
    for course in case.computed_once(event_progress).values():
        if is_confirmed(course) and course.gpu_state == "busy":
            scope, evidence, values = _match_parts(case, course)
            yield Match(Cause.GPU_NOT_RELEASED, scope, Weight.FAIR, evidence, values)


def _confirmed(case: Case) -> Iterator[Match]:
    for course in case.computed_once(event_progress).values():
        if is_confirmed(course) and course.gpu_state == "ready":
            scope, evidence, values = _match_parts(case, course)
            yield Match(None, scope, 0.0, evidence, values)


def _still_busy(case: Case) -> Iterator[Match]:
    for course in case.computed_once(event_progress).values():
        if course.gpu_state == "busy":
            scope, evidence, values = _match_parts(case, course)
            yield Match(None, scope, 0.0, evidence, values)


def _switch_failed(case: Case) -> Iterator[Match]:
    for course in case.computed_once(event_progress).values():
        if course.gpu_state == "error":
            scope, evidence, values = _match_parts(case, course)
            yield Match(Cause.EVENT_UNPROCESSED, scope, Weight.FAIR, evidence, values)
            yield Match(Cause.GPU_NOT_RELEASED, scope, Weight.HINT, evidence, values)


def _ack_timeout(case: Case) -> Iterator[Match]:
    for course in case.computed_once(event_progress).values():
        waited = case.at_s - course.reports[0].at_s
        if not is_confirmed(course) and waited >= case.thresholds.ack_s:
            scope, evidence, values = _match_parts(case, course)
            yield Match(None, scope, 0.0, evidence, values)


def _invalid(case: Case) -> Iterator[Match]:
    """An event that the protocol does not define. If it failed, the cause is the program's own error."""
    for course in case.computed_once(event_progress).values():
        if course.last.event not in EVENTS and not is_confirmed(course):
            _, evidence, values = _match_parts(case, course)
            cause = Cause.APPLICATION if course.has_failed else None
            yield Match(cause, JOB, Weight.FAIR if cause else 0.0, evidence, values)


def _no_train_end(case: Case) -> Iterator[Match]:
    """Row 41's root cause, for a rollout without the GPU: no event asked train to release the GPU."""
    if any(event.event == "train_end" for event in case.all(EventReport)):
        return
    busy = [progress for progress in case.computed_once(event_progress).values() if progress.gpu_state == "busy"]
    for course in [
        *busy,
        *(explained.course for explained in case.computed_once(explained_ooms).values() if explained.course),
    ]:
        if course.last.event == "rollout_start":
            scope, evidence, values = _match_parts(case, course)
            yield Match(Cause.GPU_NOT_RELEASED, scope, Weight.HINT, evidence, values)


def _false_success(case: Case) -> Iterator[Match]:
    """A log line that claims success for an event that was not acknowledged (row 45)."""
    by_name: dict[str, EventProgress] = {course.last.event: course for course in _in_order(case)}
    for line in case.all(LogFinding):
        course = by_name.get(claimed_event(line.line))
        if course is not None and not is_confirmed(course):
            values = {"event": course.last.event, "state": str(course.reached)}
            yield Match(None, case.scope_of(line), 0.0, (line.report_id, *course.evidence), values)


def _in_order(case: Case) -> list[EventProgress]:
    return sorted(
        case.computed_once(event_progress).values(),
        key=lambda progress: (progress.reports[0].at_s, progress.last.request_id),
    )


# -- row 46 ------------------------------------------------------------------------------------------------------------


def _misleading(case: Case) -> Iterator[Match]:
    for explained in case.computed_once(explained_ooms).values():
        if explained.course is None:
            continue
        course = explained.course
        cause = Cause.EVENT_UNPROCESSED if course.reached is Delivery.DELIVERED else Cause.EVENT_UNDELIVERED
        values = {"event": course.last.event, "state": str(course.reached)}
        yield Match(cause, target(case, course.last), Weight.PROOF, (explained.oom.report_id, *course.evidence), values)


def _held_while_oom(case: Case) -> Iterator[Match]:
    """If an event was not acknowledged, the memory that the other role holds is a consequence of that."""
    for explained in case.computed_once(explained_ooms).values():
        if explained.held is None:
            continue
        held, follows = explained.held, explained.course is not None
        values = {"owners": held.owners, "mb": held.memory_mb, "pids": held.pids, "turn": held.role}
        weight = Weight.FAIR if follows else Weight.PROOF
        evidence = (explained.oom.report_id, held.report.report_id)
        yield Match(Cause.GPU_NOT_RELEASED, case.scope_of(held.report), weight, evidence, values, follows)


def _unexplained(case: Case) -> Iterator[Match]:
    """An unexplained OOM of a stage. OOMs in logs belong to the log line rules."""
    explained = case.computed_once(explained_ooms)
    for oom in ooms(case):
        if isinstance(oom, StageReport) and oom.report_id not in explained:
            values = {"stage": oom.stage, "error": oom.error}
            yield Match(Cause.GPU_MEMORY, JOB, Weight.STRONG, (oom.report_id,), values)


_NOT_DELIVERED = (
    "Event not delivered: network timeout or worker down ({event})",
    "Event未送达 → 网络超时或worker down",
)
_NOT_PROCESSED = (
    "Event delivered but not ACKed: the worker received it but failed to process it ({event})",
    "Event已送达但未ACK → worker收到但处理失败",
)
RULES: tuple[Rule, ...] = (
    Rule(
        "41",
        "No train_end was ever sent: train was not told to release the GPU before {event}",
        "从未发送train_end：{event}之前没有通知train释放GPU",
        (EventReport,),
        _no_train_end,
    ),
    Rule("43", *_NOT_DELIVERED, (EventReport,), _not_delivered),
    Rule("43+", *_NOT_DELIVERED, (EventReport,), _not_delivered_and_failed),
    Rule("43a", *_NOT_PROCESSED, (EventReport,), _not_acknowledged),
    Rule("43a+", *_NOT_PROCESSED, (EventReport,), _not_acknowledged_and_failed),
    Rule(
        "43b",
        "GPU still occupied: train did not release or rollout could not acquire",
        "GPU仍被占用 → train未释放或rollout未能获取",
        (EventReport,),
        _busy,
    ),
    Rule("44", "Event {event} confirmed, GPU ready", "Event {event}已确认，GPU就绪", (EventReport,), _confirmed),
    Rule("44a", "GPU still busy, waiting... ({event})", "GPU仍被占用，等待中…（{event}）", (EventReport,), _still_busy),
    Rule("44b", "GPU switch failed: {error}", "GPU切换失败：{error}", (EventReport,), _switch_failed),
    Rule("44c", "Event {event} ACK timeout", "Event {event} ACK超时", (EventReport,), _ack_timeout),
    Rule("44d", "Invalid event type: {event}", "无效的event类型：{event}", (EventReport,), _invalid),
    Rule(
        "45",
        "The log claims success for {event}, but it is only {state}: no success without an acknowledgement",
        "日志声称{event}成功，但状态仅为{state}：未确认不算成功",
        (LogFinding, EventReport),
        _false_success,
    ),
    Rule(
        "46",
        "The OOM is misleading: {event} was not acknowledged ({state}), so the GPU was not released; "
        "the batch size is not the cause",
        "OOM具有误导性：{event} event未确认（{state}），GPU未交接；与batch大小无关",
        (StageReport, LogFinding),
        _misleading,
    ),
    Rule(
        "46a",
        "The OOM is misleading: {owners} still held {mb:.0f} MB of the GPU in {turn}'s turn (processes {pids}); "
        "the batch size is not the cause",
        "OOM具有误导性：轮到{turn}时{owners}未释放GPU，仍占用{mb:.0f} MB（进程{pids}）；与batch大小无关",
        (StageReport, LogFinding),
        _held_while_oom,
    ),
    Rule("46b", "[{stage}] {error}", "[{stage}] GPU内存不足：{error}", (StageReport,), _unexplained),
)
