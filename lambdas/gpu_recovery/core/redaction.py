"""What looks like a secret in a line that somebody wrote: it goes into no mail and into no table."""

from __future__ import annotations

import re

SECRET = re.compile(
    r"(?i)((?:token|key|secret|password|signature|credential)s?[\"']?\s*[=:]\s*)[^\s&,;]+|(//[^/\s:@]+:)[^@\s]+@"
)


def masked(line: str) -> str:
    """The line with three stars in the place of each secret."""
    return SECRET.sub(lambda found: f"{found[1] or found[2]}***" + ("@" if found[2] else ""), line)
