"""The function that serves the console's files: what it answers, and what it never serves."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SERVED = Path(__file__).parents[2] / "console" / "served"


@pytest.fixture(scope="module")
def served() -> ModuleType:
    """The handler's module, loaded from its file: it is no package."""
    spec = importlib.util.spec_from_file_location("served", SERVED / "served.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["served"] = module  # a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def call(served: ModuleType, proxy: str | None = None, **headers: str) -> dict[str, Any]:
    """The answer to a request of the route `GET /console`, or of `GET /console/{proxy+}` with this rest of the path."""
    event: dict[str, Any] = {"headers": {name.replace("_", "-"): value for name, value in headers.items()}}
    if proxy is not None:
        event["pathParameters"] = {"proxy": proxy}
    answer: dict[str, Any] = served.handler(event, None)
    return answer


def content(answer: dict[str, Any]) -> bytes:
    """The body as a browser decodes it."""
    raw = base64.b64decode(answer["body"])
    return gzip.decompress(raw) if answer["headers"].get("Content-Encoding") == "gzip" else raw


def test_every_file_is_served_as_it_is_and_compressed(served: ModuleType) -> None:
    """The same content and type, whatever the browser accepts."""
    names = [path for path in (SERVED / "static").rglob("*") if path.is_file()]
    assert len(names) >= 4
    for path in names:
        name = path.relative_to(SERVED / "static").as_posix()
        proxy = None if name == "index.html" else name.removeprefix("console/")
        plain, zipped = call(served, proxy), call(served, proxy, Accept_Encoding="br, gzip;q=0.8")
        assert content(plain) == content(zipped) == path.read_bytes()
        assert [one["statusCode"] for one in (plain, zipped)] == [200, 200]
        assert "Content-Encoding" not in plain["headers"] and zipped["headers"]["Content-Encoding"] == "gzip"
        assert plain["headers"]["Content-Type"] == served.TYPES[path.suffix]


@pytest.mark.parametrize("refusal", ["gzip;q=0", "gzip; q=0.0", "identity", ""])
def test_a_client_that_refuses_gzip_gets_none(served: ModuleType, refusal: str) -> None:
    """A weight of zero is a refusal."""
    assert "Content-Encoding" not in call(served, Accept_Encoding=refusal)["headers"]


def test_the_page_is_checked_again_and_its_assets_are_kept(served: ModuleType) -> None:
    """A deployment is seen at once; a file whose name has the hash of its content never changes."""
    assert call(served)["headers"]["Cache-Control"] == "no-cache"
    assert call(served, "licences.txt")["headers"]["Cache-Control"] == "no-cache"
    kept = [name for name in served.FILES if "immutable" in call(served, name)["headers"]["Cache-Control"]]
    assert len(kept) == len(served.FILES) - 2
    assert all(re.fullmatch(r"assets/[\w-]+-[\w-]{8}\.\w+", name) for name in kept), "names have a hash"


def test_an_unchanged_file_is_not_sent_again(served: ModuleType) -> None:
    """304 without a body, with the tag; another tag gets the file."""
    tag = call(served)["headers"]["ETag"]
    unchanged = call(served, If_None_Match=f'"another", W/{tag}')
    assert (unchanged["statusCode"], unchanged["body"], unchanged["headers"]["ETag"]) == (304, "", tag)
    assert call(served, If_None_Match='"another"')["statusCode"] == 200


@pytest.mark.parametrize(
    "proxy",
    [
        "",
        "assets/",
        "assets/index-of-an-older-build.js",
        "../served.py",
        "assets/../../served.py",
        "..%2fserved.py",
        "%2e%2e/served.py",
        "/etc/passwd",
        "served.py",
        "console/assets",
    ],
)
def test_nothing_else_is_served(served: ModuleType, proxy: str) -> None:
    """404 with every header, and no body."""
    answer = call(served, proxy)
    assert (answer["statusCode"], answer["body"]) == (404, "")
    assert answer["headers"].items() >= served.HEADERS.items()


def test_every_answer_has_the_security_headers(served: ModuleType) -> None:
    """No inline script, no frame, no third party, no cookie."""
    for answer in (
        call(served),
        call(served, "no such file"),
        call(served, If_None_Match=call(served)["headers"]["ETag"]),
    ):
        headers = answer["headers"]
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == policy["style-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert not any(name.lower().startswith(("set-cookie", "access-control")) for name in headers)


def test_a_range_is_ignored(served: ModuleType) -> None:
    """The whole file is a right answer to a request for a part."""
    answer = call(served, Range="bytes=0-1")
    assert answer["statusCode"] == 200 and content(answer).startswith(b"<!doctype html>")


def test_a_file_of_an_unknown_type_fails_the_start(served: ModuleType, tmp_path: Path) -> None:
    """It is never sent with a guessed type."""
    (tmp_path / "secret.env").write_text("x")
    with pytest.raises(KeyError):
        served.load(tmp_path)


def test_the_page_has_no_inline_script_or_style(served: ModuleType) -> None:
    """The policy would refuse both, and the page would stay blank."""
    page = (SERVED / "static" / "index.html").read_text(encoding="utf-8")
    assert "<style" not in page and "style=" not in page
    assert page.count("<script") == page.count('src="./console/assets/')
