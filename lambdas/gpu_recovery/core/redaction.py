"""Redaction of secrets in log lines, so that no e-mail and no table contains them."""

from __future__ import annotations

import re

SECRET = re.compile(
    r"(?i)((?:token|key|secret|password|signature|credential)s?[\"']?\s*[=:]\s*)[^\s&,;]+|(//[^/\s:@]+:)[^@\s]+@"
)
"""Pattern of text that looks like a secret: `name=value` with a name such as `token`, or a password in a URL."""


def masked(line: str) -> str:
    """Return the line with three stars in place of each secret."""
    return SECRET.sub(lambda secret: f"{secret[1] or secret[2]}***" + ("@" if secret[2] else ""), line)
