"""Starts from snapshots (Lambda SnapStart): what a first request needs is loaded before the snapshot is taken.

Lambda restores one snapshot as many times as it needs environments. So nothing unique and no open connection may be
made before the snapshot. Ids come from the operating system at each request. A client of boto3 connects at its first
call, and renews its credentials when they have expired.
"""

from __future__ import annotations

import os
from collections.abc import Callable

INITIALIZATION_TYPE = "AWS_LAMBDA_INITIALIZATION_TYPE"
"""Variable of Lambda with the kind of the initialization: `on-demand`, `snap-start` or others."""


def before_snapshot(*loads: Callable[[], object]) -> None:
    """Call each of `loads` if Lambda takes a snapshot after the initialization.

    Without a snapshot they are not called: each request loads only what it needs.
    """
    if os.environ.get(INITIALIZATION_TYPE) == "snap-start":
        for load in loads:
            load()
