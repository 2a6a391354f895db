"""The agent's own page names what the agent reads and writes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from gpu_recovery_agent.rank.paths import OUTPUT_SUFFIX
from gpu_recovery_agent.settings import AgentSettings

PAGE = (Path(__file__).parents[2] / "agent/README.md").read_text(encoding="utf-8")
READS = PAGE.partition("## What it reads, and with which rights")[2].partition("\n## ")[0]
VARIABLES = {
    "token_file": "GPU_RECOVERY_TOKEN_FILE",
    "running_folder": "GPUTASKER_RUNNING_TASKS_DIR",
    "state_folder": "GPU_RECOVERY_STATE_DIR",
    "socket": "GPU_RECOVERY_SOCKET",
    "alive_file": "GPU_RECOVERY_ALIVE_FILE",
}
"""Paths that each deployment chooses, and the variable of each."""
DEFAULTS = AgentSettings.from_environment({"GPU_RECOVERY_API_URL": "https://api.test", "GPU_RECOVERY_TOKEN": "t"})


@pytest.mark.parametrize("name", [field.name for field in fields(AgentSettings) if "Path" in str(field.type)])
def test_every_path_of_the_settings_is_in_the_list_of_what_the_agent_reads(name: str) -> None:
    """A path with a usual place is there by that place, and any other by its variable."""
    assert f"`{VARIABLES[name]}`" in READS if name in VARIABLES else f"`{getattr(DEFAULTS, name)}" in READS


@pytest.mark.parametrize("source", ["GPU Operational Events", f"`{OUTPUT_SUFFIX}` file", "power, energy"])
def test_sources_without_a_path_of_the_settings_are_in_it(source: str) -> None:
    """What NVML gives, and the file that says when a rank has written a line."""
    assert source in READS
