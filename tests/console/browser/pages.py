"""The addresses of every page of the console, with content."""

from __future__ import annotations

from tests.console.browser.healing import Healed

JOB_TABS = ("timeline", "why", "log", "attempts", "diagnosis", "spec")
INSTANCE_TABS = ("history", "gpus", "checks", "jobs", "tokens")
LISTS = (
    "#/",
    "#/jobs",
    "#/queue",
    "#/submit",
    "#/instances",
    "#/incidents",
    "#/fleet",
    "#/users",
    "#/users/ana",
    "#/diagnose",
)


def places(healed: Healed) -> tuple[str, ...]:
    """Return the address of every page and of each of its views, with the job and the incident of the recovery."""
    return (
        *LISTS,
        f"#/incidents/{healed.incident_id}",
        *(f"#/jobs/{healed.job_id}?tab={name}" for name in JOB_TABS),
        *(f"#/instances/{healed.sick}?tab={name}" for name in INSTANCE_TABS),
    )
