"""Lambda handler that serves the files of the web console. The function has no permission except for its log.

The files in `static/` are read and compressed at the cold start. Everything else is 404, so no path of a request
reaches the file system. docs/console.md describes the headers.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
PAGE = "index.html"
"""The file that the routes `GET /` and `GET /console` answer with."""
FOLDER = "console/"
"""Folder of all other files. The route `GET /console/{proxy+}` serves them by their path below the folder."""
HASHED = f"{FOLDER}assets/"
"""Folder of the files whose names contain a hash of their content."""
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
"""Media types by suffix. A file with another suffix fails the cold start."""
POLICY = "; ".join(
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
)
"""Content Security Policy. The `data:` images are the icons of form fields in the style sheet."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Strict-Transport-Security": "max-age=31536000",  # browsers ignore it on plain HTTP, such as in the sandbox
}
"""Headers of every answer."""
REVALIDATE, KEEP = "no-cache", "public, max-age=31536000, immutable"
"""Cache rules of files that keep their names, such as the page, and of the files in `HASHED`."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of the console: media type, entity tag, cache rule, and its content in base64, as it is and compressed."""

    kind: str
    tag: str
    cache: str
    plain: str
    zipped: str


def load(folder: Path = STATIC) -> dict[str, File]:
    """Return all files below `folder` by their paths below `FOLDER`.

    Raises:
        KeyError: a file has a suffix without a media type.
    """
    files = {}
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content, name = path.read_bytes(), path.relative_to(folder).as_posix()
        file = File(
            kind=TYPES[path.suffix],
            tag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
            cache=KEEP if name.startswith(HASHED) else REVALIDATE,
            plain=base64.b64encode(content).decode(),
            # Without a time stamp, so that the same file is the same answer after each cold start.
            zipped=base64.b64encode(gzip.compress(content, 9, mtime=0)).decode(),
        )
        files[name.removeprefix(FOLDER)] = file
    return files


FILES = load()


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Answer one HTTP request (payload format 2.0).

    The route names the file. The path of the request also contains the base path of a custom domain.
    """
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    file = FILES.get((event.get("pathParameters") or {}).get("proxy", PAGE))
    if file is None:
        return _answer(404, {"Cache-Control": "no-store", "Content-Type": TYPES[".txt"]})
    of_file = {"Cache-Control": file.cache, "ETag": file.tag, "Vary": "Accept-Encoding", "Content-Type": file.kind}
    if file.tag in (tag.strip().removeprefix("W/") for tag in headers.get("if-none-match", "").split(",")):
        return _answer(304, of_file)
    if _takes_gzip(headers.get("accept-encoding", "")):
        return _answer(200, {**of_file, "Content-Encoding": "gzip"}, file.zipped)
    return _answer(200, of_file, file.plain)


def _takes_gzip(accepted: str) -> bool:
    """Return whether the header `Accept-Encoding` accepts gzip. A weight of 0 forbids an encoding."""
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _answer(status: int, headers: Mapping[str, str], body: str = "") -> dict[str, Any]:
    return {"statusCode": status, "headers": {**HEADERS, **headers}, "body": body, "isBase64Encoded": bool(body)}
