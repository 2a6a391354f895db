"""Entity tags, conditional requests and compression of the job API's answers."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from tests.aws.records import instance
from tests.lambdas.api_gateway import TOKEN, Api

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def raw(api: Api, path: str, query: dict[str, str] | None = None, **headers: str) -> dict[str, object]:
    """The answer as API Gateway receives it."""
    event = {
        "version": "2.0",
        "routeKey": "ANY /{proxy+}",
        "rawPath": path,
        "rawQueryString": "",
        "queryStringParameters": query or None,
        "headers": {"authorization": f"Bearer {TOKEN}"}
        | {name.replace("_", "-"): value for name, value in headers.items()},
        "isBase64Encoded": False,
        "requestContext": {"http": {"method": "GET", "path": path}, "stage": "$default", "requestId": "r-1"},
    }
    answer: dict[str, object] = api.functions.call("job_api", event)
    return answer


def test_a_long_answer_is_compressed_for_a_client_that_accepts_it(api: Api) -> None:
    """A short one never is; both say that the answer depends on the header."""
    plain = raw(api, "/api/v2/openapi.json")
    zipped = raw(api, "/api/v2/openapi.json", accept_encoding="br, gzip")
    assert plain["isBase64Encoded"] is False and zipped["isBase64Encoded"] is True
    body = gzip.decompress(base64.b64decode(str(zipped["body"])))
    assert json.loads(body) == json.loads(str(plain["body"]))
    assert raw(api, "/api/v2/me", accept_encoding="gzip")["isBase64Encoded"] is False
    for answer in (plain, zipped):
        headers = answer["headers"]
        assert isinstance(headers, dict)
        assert (headers["Vary"], headers["Cache-Control"]) == ("Accept-Encoding", "no-store")


def test_an_unchanged_answer_is_304_and_a_changed_one_is_sent(api: Api) -> None:
    """The tag is that of the content, compressed or not."""
    tag = api.get("/instances").headers["etag"]
    assert raw(api, "/api/v2/instances", accept_encoding="gzip")["headers"]["ETag"] == tag  # type: ignore[index]
    unchanged = raw(api, "/api/v2/instances", if_none_match=f'"x", {tag}')
    assert (unchanged["statusCode"], unchanged["body"]) == (304, "")
    api.functions.store.save_instance(instance())
    assert raw(api, "/api/v2/instances", if_none_match=tag)["statusCode"] == 200


def test_a_tag_is_compared_without_its_mark_of_a_weak_tag(api: Api) -> None:
    """A proxy may mark the strong tag of the quotas as weak, or remove the mark of another tag."""
    tag = api.get("/instances").headers["etag"]
    assert raw(api, "/api/v2/instances", if_none_match=tag.removeprefix("W/"))["statusCode"] == 304
    strong = api.get("/quotas").headers["etag"]
    assert raw(api, "/api/v2/quotas", if_none_match=f"W/{strong}")["statusCode"] == 304


def test_a_tag_of_a_route_stays(api: Api) -> None:
    """The quotas have their revision as a tag, which `If-Match` names."""
    answer = api.get("/quotas")
    assert answer.headers["etag"] == f'"{answer.body["revision"]}"'


def test_errors_and_orders_have_no_tag(api: Api) -> None:
    """Only a successful GET may be answered with 304."""
    assert "etag" not in api.get("/jobs/none").headers
    assert "etag" not in api.post("/sessions", {}).headers
