"""The roles of callers of the job API."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a caller may do. Each role includes the roles before it."""

    VIEWER = "viewer"  # read
    USER = "user"  # submit jobs; cancel, suspend and resume own jobs
    OPERATOR = "operator"  # everything

    def covers(self, needed: Role) -> bool:
        """Return whether this role includes `needed`."""
        roles = list(Role)
        return roles.index(self) >= roles.index(needed)
