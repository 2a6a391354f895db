"""Route of the timeline of a job: attempts over ranks."""

from __future__ import annotations

from gpu_recovery.core.event_history.recorded_event import RecordedEvent
from gpu_recovery.core.event_history.repairs import BEFORE, repairs_between
from gpu_recovery.core.event_history.streams import instance_stream, job_stream
from gpu_recovery.core.event_history.timeline import attempt_phases, blamed_instances, moments_of, rank_rows
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.history_queries import events_of
from gpu_recovery.job_api.request import Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.job_api.routes.jobs import job_of_path
from gpu_recovery.wire.event_history import attempt_timeline_view, phase_views
from gpu_recovery.wire.json_body import time_text

ATTEMPTS_MAX = 20
"""Attempts of a timeline at most, the latest ones. The plan and the progress of each are read."""
EVENTS_MAX = 12_000
"""Events that are read at most, the latest ones. An attempt of 3,000 ranks whose instances are checked has 6,000."""

REPAIR_EVENTS_MAX = 200
"""Events that are read at most of a faulty instance, from the first attempt on that names it as faulty."""


def read_timeline(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the phases of each attempt of a job, and its ranks grouped by equal course.

    Raises:
        ApiError: 404, there is no such job.
    """
    job, now = job_of_path(dependencies, request), dependencies.recovery.clock()
    events = events_of(dependencies.history, job_stream(job.job_id), EVENTS_MAX, newest_first=True)
    phases = attempt_phases(moments_of((event for event in events if not event.is_about_instance), job.history))
    numbers = range(max(1, job.attempt - ATTEMPTS_MAX + 1), job.attempt + 1)
    stored = dependencies.attempts.of(job.job_id, numbers) if numbers else {}
    views, repairs = [], dict[str, list[RecordedEvent]]()
    for number in numbers:
        plan, progress = stored.get(number, (None, None))
        instances = plan.instances if plan else job.instances if number == job.attempt else ()
        failure = progress.failure if progress is not None else None
        if failure is None and number == job.attempt:
            failure = job.failure
        about = [event for event in events if event.is_about_instance and event.attempt == number]
        course = phases.get(number, ())
        if course:
            named = blamed_instances((event for event in events if event.attempt == number), failure)
            for name in named:
                if name not in repairs:
                    after = utc_text(course[0].since - BEFORE)
                    stream = instance_stream(name)
                    repairs[name] = events_of(dependencies.history, stream, REPAIR_EVENTS_MAX, after=after)
                about += repairs_between(repairs[name], course[0].since, course[-1].until or now)
        rows = rank_rows(instances, about, None if failure is None else failure.rank)
        views.append(attempt_timeline_view(job.job_id, number, course, failure, rows))
    return ApiResponse(
        200,
        {
            "job_id": job.job_id,
            "status": job.status.value,
            "as_of": time_text(now),
            "before_first_attempt": phase_views(phases.get(0, ())),
            "attempts": views,
            "earlier_attempts": max(0, job.attempt - ATTEMPTS_MAX),
            "is_complete": len(events) < EVENTS_MAX,
        },
    )


ROUTES = (
    Route(
        "GET",
        "/api/v2/jobs/<job_id>/timeline",
        read_timeline,
        "Read the timeline of a job",
        {200: "Timeline"},
    ),
)
