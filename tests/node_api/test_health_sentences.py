"""The sentence about the GPUs: from the report of an agent to the answer of the job API."""

from __future__ import annotations

from collections import Counter

import pytest
from gpu_recovery.wire.json_body import time_text

from tests.aws.records import A, later
from tests.lambdas.api_gateway import Api
from tests.node_api.test_report_to_tables import agent
from tests.node_api.test_router import BEAT, REPORTS, Agent

__all__ = ["agent"]
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_the_sentence_of_an_unchanged_health_is_the_newest_and_costs_no_write_of_its_own(agent: Agent) -> None:
    """The first reading of NVML ends after the first report. The time stays that of the change of the status."""
    functions = agent.functions

    def say(sequence: int, status: str, sentence: str) -> Counter[str]:
        functions.now = later(sequence * 15)
        health = {"status": status, "sentence": sentence}
        body = BEAT | {"sequence": sequence, "uptime_s": 600 + sequence * 15, "health": health}
        assert agent.call(REPORTS, body).status == 200
        return functions.aws.operations("dynamodb")

    def shown() -> tuple[str, str, str]:
        report = Api(functions).get(f"/instances/{A}").body["health"]["NODE_AGENT"]
        return report["status"], report["since"], report["sentence"]

    def word(sequence: int) -> str:
        return time_text(later(sequence * 15)) or ""

    say(1, "unknown", "NVML has not been read yet")
    assert shown() == ("INSUFFICIENT_DATA", word(1), "NVML has not been read yet")
    assert [say(sequence, "unknown", f"NVML Shared Library Not Found, try {sequence}") for sequence in (2, 3)] == [
        Counter(UpdateItem=1)
    ] * 2
    assert shown() == ("INSUFFICIENT_DATA", word(1), "NVML Shared Library Not Found, try 3")
    say(4, "ok", "the kernel log cannot be read")
    assert shown() == ("OK", word(4), "the kernel log cannot be read")
    assert say(5, "ok", "")["UpdateItem"] == 1
    assert shown() == ("OK", word(4), "")
    say(6, "impaired", "GPU 3: it is lost")
    say(7, "impaired", "GPU 3: it is lost; GPU 5: it is lost")
    assert shown() == ("IMPAIRED", word(6), "GPU 3: it is lost")  # the evidence of the check that it led to
    beat = Api(functions).get(f"/instances/{A}").body["heartbeat"]
    assert beat["sentence"] == "GPU 3: it is lost; GPU 5: it is lost"
