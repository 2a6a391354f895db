"""Swagger UI of the job API at `/api/v2/docs`. Its files come with Powertools, so every layer has them.

Powertools' own page has its script in the page, which the Content Security Policy of this API does not allow. So this
page names its files by their paths.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import aws_lambda_powertools
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from gpu_recovery.aws.http_response import UNCHANGED, is_known
from gpu_recovery.core.lazy_dataclass import frozen_dataclass
from gpu_recovery.job_api.response import ApiError

PATH = "/api/v2/docs"
"""Path of the page. The description that it shows is `/api/v2/openapi.json`."""
HEADERS = {
    "Content-Security-Policy": "; ".join(
        [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' data:",
            "connect-src 'self'",
            "font-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
        ]
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Strict-Transport-Security": "max-age=31536000",
}
"""Headers of the page and its files: those of the web console (`console/served/served.py`)."""
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>gpu-recovery API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body><div id="swagger-ui"></div></body>
</html>
"""
START = """const withoutTags = (text) => (text || "").replace(/<[^>]*>/g, "");
const plainText = (system) => ({
  components: { Markdown: ({ source }) => system.React.createElement("p", null, withoutTags(source)) }
});
const start = (spec) => SwaggerUIBundle({
  spec: { ...spec, servers: [{ url: location.pathname.replace("/api/v2/docs", "") || "/" }] },
  dom_id: "#swagger-ui",
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  plugins: [plainText],
  validatorUrl: null
});
fetch("openapi.json").then((answer) => answer.json()).then(start);
"""
"""Script that starts Swagger UI. A token that the reader enters is not stored.

Swagger UI writes descriptions as HTML, which the policy forbids (`require-trusted-types-for`). So they are shown as
text. The server is the address of the page, so that a base path before `/api/v2` is kept.
"""
FOLDER = Path(aws_lambda_powertools.__file__).parent / "event_handler" / "openapi" / "swagger_ui"
"""Folder of Swagger UI in Powertools."""
FILES = {
    "swagger-ui.js": ("swagger-ui-bundle.min.js", "text/javascript; charset=utf-8"),
    "swagger-ui.css": ("swagger-ui.min.css", "text/css; charset=utf-8"),
}
"""Files of Swagger UI by their names here: name in Powertools, and media type."""


@frozen_dataclass()
class File:
    """A file: content, media type and entity tag."""

    text: str
    kind: str
    tag: str


@cache
def file_of(name: str) -> File | None:
    """Return a file of the page; None if there is no such file."""
    if name == "":
        text, kind = PAGE, "text/html; charset=utf-8"
    elif name == "start.js":
        text, kind = START, "text/javascript; charset=utf-8"
    elif name in FILES:
        source, kind = FILES[name]
        text = (FOLDER / source).read_text(encoding="utf-8")
    else:
        return None
    return File(text, kind, f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"')


def add_swagger_ui(app: APIGatewayHttpResolver) -> None:
    """Add the routes of the page and its files to `app`. They need no token: they have no data of the deployment."""

    @app.get(PATH)
    def page() -> Response[str]:
        return _answer(app, "")

    @app.get(f"{PATH}/<name>")
    def file(name: str) -> Response[str]:
        return _answer(app, name)


def _answer(app: APIGatewayHttpResolver, name: str) -> Response[str]:
    file = file_of(name)
    if file is None:
        answer = ApiError(404, "no_such_route", "Not found", "Swagger UI has no such file").response()
        return Response(answer.status, answer.kind, answer.text, headers={**HEADERS, "Cache-Control": "no-store"})
    headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": file.tag, "Vary": "Accept-Encoding"}
    if is_known(file.tag, app.current_event.headers.get("if-none-match", "")):
        return Response(UNCHANGED, file.kind, "", headers=headers)
    return Response(200, file.kind, file.text, headers=headers, compress=True)
