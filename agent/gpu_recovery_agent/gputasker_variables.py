"""Variables of GPUTasker's agent, which this agent does not read, and the variables that are meant here.

An instance that had GPUTasker's agent may have its environment file still. `GPUTASKER_RUNNING_TASKS_DIR` is not here,
because both agents read it. agent/README.md has the same table.
"""

from __future__ import annotations

from collections.abc import Mapping

VARIABLES = {
    "GPUTASKER_SERVER_URL": "GPU_RECOVERY_API_URL",
    "GPUTASKER_TASKS_API_URL": "GPU_RECOVERY_API_URL",
    "GPUTASKER_AGENT_TOKEN": "GPU_RECOVERY_TOKEN_FILE",
    "GPUTASKER_REPORT_INTERVAL": "GPU_RECOVERY_INTERVAL_MS",
    "GPUTASKER_REQUEST_TIMEOUT": "",
    "GPUTASKER_REPORT_TASKS": "",
    "GPUTASKER_EXIT_AFTER_CONSECUTIVE_FAILURES": "",
    "GPUTASKER_AGENT_LOGLEVEL": "",
}
"""The variable of this agent by the variable of GPUTasker's; "" where this agent has none."""


def unread_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable of GPUTasker's agent that is set. Values are not shown."""
    set_here = ((name, meant) for name, meant in VARIABLES.items() if environment.get(name))
    return [f"{name} is not read: {meant or 'no other variable'} is meant" for name, meant in set_here]
