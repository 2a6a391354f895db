"""Route of the list of jobs: filtered, in one of three orders, page by page."""

from __future__ import annotations

from gpu_recovery.core.job.record import TERMINAL, WAITING, JobStatus, ListedJob
from gpu_recovery.core.job.spec import GROUP, JOB_NAME
from gpu_recovery.core.job.status import LISTED_STATUSES
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import signed_cursor, verified_position
from gpu_recovery.job_api.request import TEXT, TIME, Parameter, Request, Route, between, one_of
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.ports.values import JobPage, JobQuery
from gpu_recovery.wire.jobs import job_row, job_summary

PAGE_MAX, PAGE_DEFAULT = 200, 50
"""Jobs of a page: upper bound and default."""
PAGES_READ_MAX = 10
"""Pages of the store that one request reads at most, to fill its page with jobs that match the query."""
PREFIX_CHARACTERS_MAX = 255
"""Upper bound of the characters of an id's beginning."""
STATUSES = [status.value for status in JobStatus]
STATES = {
    "waiting": tuple(status for status in LISTED_STATUSES if status in WAITING),
    "running": tuple(status for status in LISTED_STATUSES if status not in TERMINAL and status not in WAITING),
    "ended": tuple(status for status in LISTED_STATUSES if status in TERMINAL),
}
"""Statuses by state. Each status has one state."""
NEWEST, OLDEST, BY_STATUS = "newest", "oldest", "status"


def list_jobs(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a page of the jobs that match the query.

    Without `order` the live jobs come first and each status begins with its oldest job, as in the first release. With
    `state`, several statuses or `q` the default is `newest`.

    A page may be short, or even empty, although more jobs follow. Only `next_cursor` shows the end of the list.
    """
    statuses = _statuses(request)
    prefix = request.query.get("q", "")
    if len(prefix) > PREFIX_CHARACTERS_MAX:
        detail = f"has at most {PREFIX_CHARACTERS_MAX} characters"
        raise ApiError(400, "bad_query", "Bad q", detail, "q")
    is_old_list = "state" not in request.query and len(statuses) in (1, len(LISTED_STATUSES)) and not prefix
    order = request.choice("order", BY_STATUS if is_old_list else NEWEST)
    if order == BY_STATUS and not is_old_list:
        detail = "must be newest or oldest with state, several statuses or q"
        raise ApiError(400, "bad_query", "Bad order", detail, "order")
    view = job_row if request.choice("fields", "all") == "list" else job_summary
    limit = request.number("limit", PAGE_DEFAULT)
    query = JobQuery(
        statuses,
        order == NEWEST,
        request.time("since"),
        prefix,
        request.query.get("user"),
        _group(request),
        _name(request),
    )
    purpose = "jobs" if order == BY_STATUS else f"jobs/{order}"
    cursor = request.query.get("cursor")
    place = None if cursor is None else verified_position(dependencies.cursor_key(), purpose, cursor)
    failures: list[Exception] = []
    if order == BY_STATUS:
        jobs, place = _by_status(dependencies, query, limit, place, failures)
    else:
        page = dependencies.recovery.store.list_jobs_by_time(query, limit, place, failures)
        jobs, place = list(page.jobs), page.cursor
    return ApiResponse(
        200,
        {
            "jobs": [view(job, dependencies.recovery.policy) for job in jobs],
            "next_cursor": None if place is None else signed_cursor(dependencies.cursor_key(), purpose, place),
            "unreadable": [str(error) for error in failures],
        },
    )


def _by_status(
    dependencies: Dependencies, query: JobQuery, limit: int, place: str | None, failures: list[Exception]
) -> tuple[list[ListedJob], str | None]:
    """Return a page of the list that is ordered by status, and the place after it."""

    def matches(job: ListedJob) -> bool:
        return (
            query.user in (None, job.spec.user)
            and query.group in (None, job.spec.group)
            and query.name in (None, job.spec.name)
            and (query.since is None or job.queued_at >= query.since)
        )

    status = query.statuses[0] if len(query.statuses) == 1 else None
    jobs: list[ListedJob] = []
    for _ in range(PAGES_READ_MAX):
        page: JobPage = dependencies.recovery.store.list_jobs(status, limit - len(jobs), place, failures)
        jobs += filter(matches, page.jobs)
        place = page.cursor
        if place is None or len(jobs) >= limit:
            break
    return jobs, place


def _statuses(request: Request) -> tuple[JobStatus, ...]:
    """Return the statuses of the list, in the order of `LISTED_STATUSES`.

    API Gateway joins repeated parameters with a comma. The case of a status does not matter.
    """
    text, state = request.query.get("status"), request.query.get("state")
    if text is not None and state is not None:
        raise ApiError(400, "bad_query", "Bad state", "send either state or status", "state")
    if state is not None:
        return STATES[request.choice("state", "")]
    if text is None:
        return LISTED_STATUSES
    names = text.upper().split(",")
    if not set(names) <= set(STATUSES):
        raise ApiError(400, "bad_query", "Bad status", f"must be one of {', '.join(STATUSES)}", "status")
    return tuple(status for status in LISTED_STATUSES if status.value in names)


def _group(request: Request) -> str | None:
    group = request.query.get("group")
    if group and not GROUP.fullmatch(group):
        detail = "must be letters, digits, dots, dashes and underscores, at most 63"
        raise ApiError(400, "bad_query", "Bad group", detail, "group")
    return group


def _name(request: Request) -> str | None:
    name = request.query.get("name")
    if name is not None and not JOB_NAME.fullmatch(name):
        detail = "must be letters, digits, dots, dashes and underscores, at most 63, first a letter or digit"
        raise ApiError(400, "bad_query", "Bad name", detail, "name")
    return name


_QUERY = (
    Parameter(
        "status",
        "Only jobs in one of these statuses, separated by commas.",
        {"type": "array", "items": one_of(*STATUSES)},
    ),
    Parameter("state", "Only jobs that wait, that hold instances, or that have ended.", one_of(*STATES)),
    Parameter(
        "order",
        "By the time of submission, or by status with the live jobs first. A job that changes its status while pages "
        "are read keeps its place in a list by time. In a list by status it may be missing or repeated.",
        one_of(NEWEST, OLDEST, BY_STATUS),
    ),
    Parameter("q", "Only jobs whose id begins with this text.", {"type": "string", "maxLength": PREFIX_CHARACTERS_MAX}),
    Parameter("fields", "`list`: only the fields that a table of jobs shows.", one_of("all", "list")),
    Parameter("name", "Only jobs with this name.", {"type": "string", "pattern": f"^({JOB_NAME.pattern})$"}),
    Parameter("user", "Only jobs of this user.", TEXT),
    Parameter("group", "Only jobs of this group.", {"type": "string", "pattern": f"^({GROUP.pattern})?$"}),
    Parameter("since", "Only jobs submitted at or after this time.", TIME),
    Parameter("limit", "Upper bound of the jobs of a page.", between(1, PAGE_MAX)),
    Parameter("cursor", "`next_cursor` of the page before.", TEXT),
)
ROUTES = (Route("GET", "/api/v2/jobs", list_jobs, "List the jobs", {200: "Jobs"}, query=_QUERY),)
