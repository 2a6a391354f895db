"""Routes of the quotas."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
LIMITS = {"instances": {"ana/HIGH/h100": 4, "*/*/*": 16}, "max_running_jobs": 20, "max_running_jobs_per_user": None}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API."""
    return Api(functions)


def put(api: Api, revision: str | None, limits: Any = LIMITS, **more: Any) -> Any:
    """PUT /quotas."""
    headers = {} if revision is None else {"if-match": revision}
    return api.call("PUT", "/api/v2/quotas", {"limits": limits, **more}, headers=headers)


def test_limits_are_written_by_revision(api: Api) -> None:
    """The writer names the revision that it read. It is in the body and in the ETag, with or without quotes."""
    assert api.get("/quotas").body == {"limits": {**LIMITS, "instances": {}, "max_running_jobs": None}, "revision": 0}
    first = put(api, "0")
    assert (first.status, first.body["revision"], first.headers["etag"]) == (200, 1, '"1"')
    assert put(api, '"1"', {"instances": {"*/*/*": 2}}).body["revision"] == 2
    assert api.get("/quotas").body["limits"]["instances"] == {"*/*/*": 2}


def test_limits_that_others_changed_are_not_written_over(api: Api) -> None:
    """412; without a revision 428: two operators never lose each other's change."""
    put(api, "0")
    refused(put(api, "0"), 412, "If-Match")
    refused(put(api, None), 428, "If-Match")
    refused(put(api, "latest"), 400, "If-Match")
    assert api.get("/quotas").body["revision"] == 1


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"instances": {"ana/URGENT/": 1}}, "instances.ana/URGENT/"),
        ({"instances": {"ana": 1}}, "instances.ana"),
        ({"instances": {"ana/*/*": -1}}, "instances.ana/*/*"),
        ({"max_running_jobs": 0}, "max_running_jobs"),
        ({"gpus": 4}, "gpus"),
        ([], "limits"),
        ({"instances": []}, "instances"),
    ],
)
def test_limits_that_cannot_be_are_named(api: Api, limits: Any, field: str) -> None:
    """422 with the entry; nothing is stored."""
    refused(put(api, "0", limits), 422, field)
    assert api.get("/quotas").body["revision"] == 0


@pytest.mark.parametrize(("body", "field"), [({}, "limits"), ({"limits": {}, "who": "me"}, "who"), ([], "body")])
def test_limits_are_sent_in_their_own_field(api: Api, body: Any, field: str) -> None:
    """The answer of GET is a valid body of PUT."""
    refused(api.call("PUT", "/api/v2/quotas", body, headers={"if-match": "0"}), 422, field)


def test_what_is_read_can_be_sent_back(api: Api) -> None:
    """Revision and all."""
    put(api, "0")
    found = api.get("/quotas").body
    assert api.call("PUT", "/api/v2/quotas", found, headers={"if-match": "1"}).body["limits"] == found["limits"]
