"""An agent that is started with the environment file of GPUTasker's agent says which variables are meant."""

from __future__ import annotations

import re

import pytest
from gpu_recovery_agent.gputasker_variables import VARIABLES, unread_variables

from tests.agent.api import WITHIN_S, Api
from tests.agent.node import ROOT, TOKEN, Node

OF_THE_SAMPLE = {
    "GPUTASKER_SERVER_URL": "http://10.0.0.1:8888/api/v1/report_gpu/",
    "GPUTASKER_AGENT_TOKEN": TOKEN,
    "GPUTASKER_REPORT_INTERVAL": "30",
    "GPUTASKER_REQUEST_TIMEOUT": "5",
    "GPUTASKER_EXIT_AFTER_CONSECUTIVE_FAILURES": "0",
    "GPUTASKER_AGENT_LOGLEVEL": "INFO",
}
"""The variables that agent.env.sample of GPUTasker sets, with an address and a token filled in."""


@pytest.mark.slow
def test_an_agent_with_the_old_environment_names_the_variables_to_set(api: Api, node: Node) -> None:
    """It ends, because no address is known, and does not show the token."""
    agent = node.agent(**OF_THE_SAMPLE, GPU_RECOVERY_API_URL="", GPU_RECOVERY_TOKEN="")
    assert agent.wait(WITHIN_S) == 78
    said = node.said()
    assert "GPUTASKER_SERVER_URL is not read: GPU_RECOVERY_API_URL is meant" in said
    assert "GPUTASKER_AGENT_TOKEN is not read: GPU_RECOVERY_TOKEN_FILE is meant" in said
    assert "GPUTASKER_REQUEST_TIMEOUT is not read: no other variable is meant" in said
    assert said.count("is not read") == len(OF_THE_SAMPLE) and TOKEN not in said
    assert api.heard == []


@pytest.mark.slow
def test_an_agent_with_both_environments_reports(api: Api, node: Node) -> None:
    """Its own variables count."""
    node.agent(**OF_THE_SAMPLE)
    api.count(1)
    assert node.said().count("is not read") == len(OF_THE_SAMPLE)


def test_the_shared_variable_is_read() -> None:
    """Both agents and the wrapper have the same folder of ranks."""
    assert unread_variables({"GPUTASKER_RUNNING_TASKS_DIR": "/x"}) == []


def test_the_page_has_every_variable() -> None:
    """With the same one of this agent."""
    page = (ROOT / "agent/README.md").read_text()
    rows = dict(re.findall(r"^\| `(GPUTASKER_\w+)` \| ([^|]+?) \|", page, re.MULTILINE))
    shared = rows.pop("GPUTASKER_RUNNING_TASKS_DIR")
    assert shared == "`GPUTASKER_RUNNING_TASKS_DIR`"
    assert {name: (re.findall(r"`(\w+)`", text) or [""])[0] for name, text in rows.items()} == VARIABLES
