"""Route of the GPU history of an instance, thinned for charts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from gpu_recovery.core.gpu_history import ATTRIBUTE, GAUGES, KEPT, Bucket, Sample, sample_in, stream_of, thinned
from gpu_recovery.core.published_events import utc_text
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.request import TIME, Parameter, Request, Route, between
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.job_api.routes.instances import no_instance
from gpu_recovery.wire.json_body import time_text

SPAN = timedelta(hours=24)
"""Time span of an answer by default."""
POINTS_DEFAULT, POINTS_MAX = 300, 600
"""Buckets of an answer: default and upper bound."""
SAMPLES_MAX = 4_000
"""Samples that are read at most, the latest ones. An inventory every 5 minutes gives 2,016 in a week."""


def read_gauges(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return the gauges of each GPU over time: the least and the largest value of each bucket.

    Raises:
        ApiError: 400, a parameter is malformed; 404, there is no such instance.
    """
    instance_id, now = request.named["instance_id"], dependencies.recovery.clock()
    if dependencies.recovery.store.load_instance(instance_id) is None:
        raise no_instance(instance_id)
    until = request.time("to") or now
    since = request.time("from") or until - SPAN
    if not timedelta() < until - since <= KEPT:
        raise ApiError(400, "bad_query", "Bad from", f"from must be before to, by {KEPT.days} days at most", "from")
    points = request.number("points", POINTS_DEFAULT)
    after = utc_text(since - timedelta(microseconds=1))  # the begin is part of the span, and the end is not
    items = dependencies.history.read(
        stream_of(instance_id), SAMPLES_MAX, after=after, before=utc_text(until), newest_first=True
    )
    samples = (_sample(item.position, item.attributes.get(ATTRIBUTE, "")) for item in items)
    buckets = thinned((sample for sample in samples if sample is not None), since, until, points)
    return ApiResponse(
        200,
        {
            "instance_id": instance_id,
            "from": time_text(since),
            "to": time_text(until),
            "at": [time_text(bucket.at) for bucket in buckets],
            "gpus": _columns(buckets),
        },
    )


def _sample(position: str, text: str) -> Sample | None:
    """Return a stored sample; None if a release that we do not know wrote it in another form."""
    try:
        return sample_in(datetime.fromisoformat(position), text)
    except ValueError:
        return None


def _columns(buckets: list[Bucket]) -> list[dict[str, Any]]:
    count = max((len(bucket.least) for bucket in buckets), default=0)

    def column(gpu: int, gauge: int, *, most: bool) -> list[int | None]:
        rows = [bucket.most if most else bucket.least for bucket in buckets]
        return [row[gpu][gauge] if gpu < len(row) else None for row in rows]

    return [
        {
            "gpu": gpu,
            **{
                name: {"min": column(gpu, number, most=False), "max": column(gpu, number, most=True)}
                for number, name in enumerate(GAUGES)
            },
        }
        for gpu in range(count)
    ]


ROUTES = (
    Route(
        "GET",
        "/api/v2/instances/<instance_id>/gauges",
        read_gauges,
        "Read the gauges of an instance's GPUs",
        {200: "Gauges"},
        query=(
            Parameter("from", "Begin of the time span. The default is a day before its end.", TIME),
            Parameter("to", "End of the time span. The default is now.", TIME),
            Parameter("points", "Upper bound of the points in time.", between(1, POINTS_MAX)),
        ),
    ),
)
