"""Who may call the job API: the operator token is required on every route, and is never logged."""

from __future__ import annotations

import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.aws.records import JOB, A
from tests.job_api.submissions import ASKED
from tests.lambdas.api_gateway import TOKEN, Api, refused

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ROUTES = [
    ("POST", "/api/v2/jobs"),
    ("GET", "/api/v2/jobs"),
    ("GET", f"/api/v2/jobs/{JOB}"),
    ("POST", f"/api/v2/jobs/{JOB}/cancel"),
    ("GET", "/api/v2/instances"),
    ("GET", f"/api/v2/instances/{A}"),
    ("POST", f"/api/v2/instances/{A}/release"),
    ("POST", f"/api/v2/instances/{A}/quarantine"),
    ("GET", "/api/v2/fleet"),
    ("POST", "/api/v2/fleet/pause"),
    ("POST", "/api/v2/fleet/unpause"),
    ("POST", "/api/v2/fleet/reset-breaker"),
    ("GET", "/api/v2/dead-letters"),
    ("POST", "/api/v2/dead-letters/redrive"),
]
WRONG = [
    None,
    "",
    "Bearer ",
    "Bearer wrong",
    TOKEN,
    f"Basic {TOKEN}",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    "Bearer ü",
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("token", [None, "Bearer wrong"])
def test_every_route_needs_the_token(api: Api, method: str, path: str, token: str | None) -> None:
    """401 before anything is read or written."""
    refused(api.call(method, path, ASKED, token=token), 401)
    assert api.functions.aws.count("dynamodb") == 0


@pytest.mark.parametrize("token", WRONG)
def test_only_the_whole_token_will_do(api: Api, token: str | None) -> None:
    """Not a part of it, not another scheme, not more."""
    refused(api.call("GET", "/api/v2/jobs", token=token), 401)
    assert api.get("/jobs").status == 200


def test_no_token_is_ever_logged(api: Api) -> None:
    """Neither the right one nor one that was tried."""
    api.get("/jobs")
    api.post("/jobs", ASKED)
    api.call("GET", "/api/v2/jobs", token="Bearer guessed-by-somebody")
    logged = api.functions.log.getvalue()
    assert TOKEN not in logged and "guessed" not in logged
    assert api.functions.logged("job_decided") == [] and JOB not in logged


def test_the_token_is_read_once_for_many_requests(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets Manager is not asked each time, but again after five minutes. The token may have been rotated."""
    for second, read in ((300.0, True), (599.0, False), (600.0, True), (899.0, False)):
        monkeypatch.setattr(time, "monotonic", lambda now_s=second: now_s)
        api.get("/jobs")
        assert api.functions.aws.asked("GetSecretValue") == [{"SecretId": "operator-token"}] * read, second


def test_a_secret_that_cannot_be_read_opens_nothing(api: Api) -> None:
    """The request fails; it is not let in."""

    def denied(asked: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetSecretValue")

    api.functions.aws.answers["GetSecretValue"] = denied
    refused(api.get("/jobs"), 500)
