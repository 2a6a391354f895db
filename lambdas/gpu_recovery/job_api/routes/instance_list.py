"""Route that lists instances: by id page by page, or filtered and in another order."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from gpu_recovery.core.instance.fault_history import percent
from gpu_recovery.core.instance.record import PRESENT, InstanceStatus, ListedInstance
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import PAGING, asked_page, page_of, signed_cursor
from gpu_recovery.job_api.request import FLAG, TEXT, Parameter, Request, Route, one_of
from gpu_recovery.job_api.response import ApiError, ApiResponse
from gpu_recovery.wire.instances import instance_summary, node_agent_view

PURPOSE = "instances"
"""Name of the list, which its cursors belong to."""
FILTERED_PAGE_MAX = 100
"""Upper bound of the instances of a page of a filtered or sorted list. A web page shows no more at once."""
PREFIX = re.compile(r"[0-9a-z-]{0,32}")
"""Form of the first characters of an instance id."""
ID, SINCE, LEMON = "id", "since", "lemon"
ORDERS = (ID, SINCE, LEMON)


@frozen_dataclass()
class InstanceFilter:
    """What a list of instances shows, and in which order.

    statuses: statuses of the instances; empty: every status of a present instance.
    job:      only instances that the job claims, has reserved or waits for; "" for all.
    prefix:   first characters of the ids.
    order:    ID; SINCE, the latest change of status first; or LEMON, the highest lemon score first.
    """

    statuses: tuple[InstanceStatus, ...] = ()
    job: str = ""
    prefix: str = ""
    order: str = ID

    @property
    def reads_the_fleet(self) -> bool:
        """Whether the list needs every instance of the fleet. Otherwise the index gives a page at a time."""
        return bool(self.statuses or self.job) or self.order != ID

    @property
    def purpose(self) -> str:
        """Name of the list for its cursors. The plain list has the name that it has always had."""
        names = (",".join(self.statuses), self.job, self.prefix, self.order)
        return PURPOSE if self == InstanceFilter() else "\n".join((PURPOSE, *names))

    def shows(self, instance: ListedInstance) -> bool:
        """Return whether the list shows an instance that is present."""
        waits = {instance.need.job_id} if instance.need is not None else set()
        jobs = {*instance.claims, instance.reserved_for, *waits}
        if self.statuses and instance.status not in self.statuses:
            return False
        return instance.instance_id.startswith(self.prefix) and (not self.job or self.job in jobs)


def list_instances(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a page of the instances that have not left the cluster, without their history.

    Without a filter they are sorted by id. A list with `status`, `job` or another `order` needs the index of the whole
    fleet, which holds no histories. It is read once for all pages, and at most every five seconds; the pages are
    shorter. The heartbeats of the page are read too, unless `node_agent` is 0: one call for a hundred instances, and
    half a read unit for each.

    Raises:
        ApiError: 400, a parameter is malformed.
        CursorInvalid: the cursor was issued for another list, or was not issued at all.
    """
    wanted, failures = _filter(request), list[Exception]()
    read = _sorted_page if wanted.reads_the_fleet else _page_by_id
    instances, cursor = read(dependencies, request, wanted, failures)
    now, policy = dependencies.recovery.clock(), dependencies.recovery.policy
    names = [instance.instance_id for instance in instances]
    views = [instance_summary(instance, now) for instance in instances]
    if request.choice("node_agent", "1") == "1":
        beats = dependencies.recovery.store.load_heartbeats(names, failures, may_lag=True)
        for name, view in zip(names, views, strict=True):
            view["node_agent"] = node_agent_view(beats.get(name), policy, now)
    return ApiResponse(
        200, {"instances": views, "next_cursor": cursor, "unreadable": [str(error) for error in failures]}
    )


_Page = tuple[list[ListedInstance], str | None]


def _page_by_id(
    dependencies: Dependencies, request: Request, wanted: InstanceFilter, failures: list[Exception]
) -> _Page:
    limit, after = asked_page(dependencies, request, wanted.purpose)
    page = dependencies.recovery.store.list_instances(limit, after, failures, wanted.prefix)
    cursor = None if page.cursor is None else signed_cursor(dependencies.cursor_key(), wanted.purpose, page.cursor)
    return list(page.instances), cursor


def _sorted_page(
    dependencies: Dependencies, request: Request, wanted: InstanceFilter, failures: list[Exception]
) -> _Page:
    now = dependencies.recovery.clock()
    orders: dict[str, Callable[[ListedInstance], tuple[Any, ...]]] = {
        ID: lambda instance: (instance.instance_id,),
        SINCE: lambda instance: (-instance.status_at.timestamp(), instance.instance_id),
        LEMON: lambda instance: (-percent(instance.past, now), instance.instance_id),
    }
    listing = dependencies.instance_listings.read(dependencies.recovery, "cursor" not in request.query)
    failures += listing.unreadable
    shown = [instance for instance in listing.instances if wanted.shows(instance)]
    return page_of(
        dependencies,
        request,
        wanted.purpose,
        shown,
        lambda instance: instance.instance_id,
        orders[wanted.order],
        FILTERED_PAGE_MAX,
    )


def _filter(request: Request) -> InstanceFilter:
    names = [name for name in request.query.get("status", "").upper().split(",") if name]
    if not set(names) <= set(PRESENT):
        detail = f"must be one or more of {', '.join(PRESENT)}, with commas"
        raise ApiError(400, "bad_query", "Bad status", detail, "status")
    prefix = request.query.get("q", "")
    if not PREFIX.fullmatch(prefix):
        detail = "must be the first characters of an instance id, such as i-0abc"
        raise ApiError(400, "bad_query", "Bad q", detail, "q")
    statuses = tuple(status for status in PRESENT if status in names)
    return InstanceFilter(statuses, request.query.get("job", ""), prefix, request.choice("order", ID))


_STATUSES = {"type": "string", "pattern": f"^(({'|'.join(PRESENT)})(,({'|'.join(PRESENT)}))*)?$"}
_QUERY = (
    Parameter("status", "Only instances in one of these statuses, separated by commas.", _STATUSES),
    Parameter("job", "Only instances that this job claims, has reserved or waits for.", TEXT),
    Parameter(
        "q", "Only instances whose id begins with this text.", {"type": "string", "pattern": f"^({PREFIX.pattern})$"}
    ),
    Parameter(
        "order",
        "`id`; `since`: the latest change of status first; `lemon`: the highest unreliability score first. With"
        f" `status`, `job` or another order than `id`, a page has at most {FILTERED_PAGE_MAX} instances.",
        one_of(*ORDERS),
    ),
    Parameter(
        "node_agent",
        "0: leave out `node_agent`. The list then reads no heartbeats, which cost more than the rest of it.",
        FLAG,
    ),
    *PAGING,
)
ROUTES = (Route("GET", "/api/v2/instances", list_instances, "List instances", {200: "Instances"}, query=_QUERY),)
