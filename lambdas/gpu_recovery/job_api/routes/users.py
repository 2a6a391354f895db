"""Route of the users: the names that tokens were issued to, with the roles and ends of their tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import TokenList
from gpu_recovery.job_api.dependencies import Dependencies
from gpu_recovery.job_api.pagination import PAGING, page_of
from gpu_recovery.job_api.request import TEXT, Parameter, Request, Route
from gpu_recovery.job_api.response import ApiResponse
from gpu_recovery.wire.json_body import time_text

PURPOSE = "users"
"""Name of the list, which its cursors belong to."""
USERS_PAGE_MAX = 100
"""Upper bound of the users of a page. Their tokens are read in one call."""


def list_users(dependencies: Dependencies, request: Request) -> ApiResponse:
    """Return a page of the users that tokens were issued to, in the order of their names.

    A user whose tokens are all older than this directory appears with the next token.

    Raises:
        ApiError: 400, the limit is malformed.
        CursorInvalid: the cursor was issued for another list, or was not issued at all.
    """
    prefix = request.query.get("q", "")
    names = [name for name in dependencies.user_directory.user_names() if name.startswith(prefix)]
    page, cursor = page_of(
        dependencies, request, f"{PURPOSE}\n{prefix}", names, lambda name: name, lambda name: (name,), USERS_PAGE_MAX
    )
    lists = dependencies.user_directory.load_token_lists(page)
    now = dependencies.recovery.clock()
    return ApiResponse(
        200, {"users": [_view(lists[name], now) for name in page if name in lists], "next_cursor": cursor}
    )


def _view(listed: TokenList, now: datetime) -> dict[str, Any]:
    valid = [token for token in listed.tokens if token.is_valid(now)]
    return {
        "user": listed.holder,
        "roles": [role.value for role in Role if any(token.role is role for token in valid)],
        "live_tokens": len(valid),
        "next_end": time_text(min((token.expires_at for token in valid), default=None)),
        "last_issued_at": time_text(max((token.issued_at for token in listed.tokens), default=None)),
    }


ROUTES = (
    Route(
        "GET",
        "/api/v2/users",
        list_users,
        "List the users with tokens",
        {200: "Users"},
        Role.OPERATOR,
        query=(Parameter("q", "Only users whose name begins with this text.", TEXT), *PAGING),
    ),
)
