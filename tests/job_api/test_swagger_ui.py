"""Swagger UI at /api/v2/docs: the page, its files and their headers. tests/console/browser shows that it works."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import re
import sys
from typing import Any

import pytest
from gpu_recovery.aws.swagger_ui import HEADERS

from tests.lambdas.api_gateway import Api
from tests.markdown import ROOT

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
PAGE = "/api/v2/docs"


def answer_to(api: Api, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Any:
    """The answer to a request without a token."""
    event = {
        "version": "2.0",
        "routeKey": "ANY /{proxy+}",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers or {},
        "isBase64Encoded": False,
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default", "requestId": "r-1"},
    }
    return api.functions.call("job_api", event)


def test_the_page_names_files_that_are_served(api: Api) -> None:
    """Without a token, and without a call of AWS."""
    page = answer_to(api, PAGE)
    assert page["statusCode"] == 200 and page["headers"]["Content-Type"].startswith("text/html")
    names = re.findall(r'"docs/([\w.-]+)"', page["body"])
    assert len(names) == 3
    for name in names:
        file = answer_to(api, f"{PAGE}/{name}", {"accept-encoding": "gzip"})
        text = gzip.decompress(base64.b64decode(file["body"])).decode()
        assert file["statusCode"] == 200 and len(text) > 100 and file["headers"]["Content-Encoding"] == "gzip"
        assert answer_to(api, f"{PAGE}/{name}", {"if-none-match": file["headers"]["ETag"]})["statusCode"] == 304
    assert api.functions.aws.calls == []


def test_the_page_has_the_headers_of_the_console(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above all its Content Security Policy: no script in the page, and none of another address."""
    location = ROOT / "console/served/served.py"
    spec = importlib.util.spec_from_file_location("served", location)
    assert spec is not None and spec.loader is not None
    served = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "served", served)  # a dataclass looks its module up
    spec.loader.exec_module(served)
    assert served.HEADERS == HEADERS
    for path in (PAGE, f"{PAGE}/start.js", f"{PAGE}/swagger-ui.css", f"{PAGE}/nothing.js"):
        assert answer_to(api, path)["headers"].items() >= HEADERS.items()
    assert "<script>" not in answer_to(api, PAGE)["body"]


@pytest.mark.parametrize("name", ["nothing.js", "..", "oauth2.py", "swagger-ui-bundle.min.js"])
def test_no_other_file_is_served(api: Api, name: str) -> None:
    """A name is looked up in a table, never in a folder."""
    assert answer_to(api, f"{PAGE}/{name}")["statusCode"] == 404


def test_a_method_that_a_path_does_not_have_is_named(api: Api) -> None:
    """405 with those that it has; a path that no route has stays 404."""
    wrong = api.call("TRACE", "/api/v2/quotas")
    assert (wrong.status, wrong.headers["allow"], wrong.kind) == (405, "GET, PUT", "application/problem+json")
    assert api.call("PUT", "/api/v2/nothing").status == 404
