"""Logs that are sent for a diagnosis: judged by line, and not stored."""

from __future__ import annotations

import pytest

from tests.lambdas.api_gateway import Api, refused

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


def test_a_log_is_answered_with_its_findings_and_stored_nowhere(api: Api) -> None:
    """As `gpu-recovery diagnose --log --json` prints them. A viewer may ask."""
    body = api.post("/diagnoses", {"log": f"step 1\n{LOST}\nstep 2\n", "name": "dmesg.txt"}).body
    (finding,) = body["findings"]
    assert finding == {"number": 2, "line": LOST, "kind": "hardware_gpu_lost", "role": "root"}
    assert (body["name"], body["verdict"], body["cause"]["class"]) == (
        "dmesg.txt",
        "hardware_gpu_lost",
        "hardware or node",
    )
    assert body["cause"]["policy"]
    assert api.functions.aws.count("dynamodb") == 0
    assert LOST not in api.functions.log.getvalue()


def test_a_log_without_a_fault_has_no_cause(api: Api) -> None:
    """Neither is an empty log an error."""
    for log in ("", "step 1 loss 0.5"):
        body = api.post("/diagnoses", {"log": log}).body
        assert (body["findings"], body["verdict"], body["cause"], body["name"]) == ([], "benign", None, "")


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"log": 1}, "log"),
        ({"log": None}, "log"),
        ({"log": "", "name": 1}, "name"),
        ({"log": "", "name": "a\nb"}, "name"),
        ({"log": "", "name": "n" * 256}, "name"),
        ({"log": "", "reports": []}, "reports"),
    ],
)
def test_what_is_no_log_is_refused(api: Api, asked: dict[str, object], field: str) -> None:
    """400, with the field."""
    refused(api.post("/diagnoses", asked), 400, field)


def test_a_log_that_is_too_large_is_refused(api: Api) -> None:
    """413: the page sends the end of a large log."""
    refused(api.post("/diagnoses", {"log": "x" * 300_000}), 413, "body")
