"""Which verdict documents of the real health check ask for no more than a reset of GPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_recovery.aws.actions import parse_verdict

from health_check.examine import judge
from health_check.kernel_log import KernelLog
from tests.health_check.examinations import answer, document_of, evidence_of, examination, gpu_xml, log, xid

RESET, REBOOT, NONE = "GPU Reset", "Node Reboot", "None"


def asks_for_reset(*actions: str, seen: KernelLog | None = None, expected_gpus: int | None = None, **tags: Any) -> bool:
    """Examine GPUs with these recovery actions, and return what the function reads from the document."""
    seen = seen or log()
    said = answer(*(gpu_xml(index, action, **tags) for index, action in enumerate(actions)))
    count = expected_gpus or len(actions)
    of = examination(seen=seen, said=said, evidence=evidence_of(seen, said, expected_gpus=count))
    document = document_of(judge(of, level=2, expected_gpus=count), of)
    verdict = parse_verdict(json.dumps(document).encode(), document["check_id"])
    assert verdict is not None
    return verdict.reset


def test_a_request_of_the_driver_to_reset_one_gpu_asks_for_a_reset() -> None:
    """Alone, with another kind of reset, and beside the XID that led to it."""
    assert asks_for_reset(NONE, RESET)
    assert asks_for_reset(RESET, "Drain and Reset")
    assert asks_for_reset(NONE, RESET, seen=log(xid(119, 1)))


@pytest.mark.parametrize(
    ("actions", "more"),
    [
        ((NONE, NONE), {}),
        ((RESET, REBOOT), {}),
        ((RESET, "Drain P2P"), {}),
        ((RESET, "Something New"), {}),
        ((NONE, RESET), {"expected_gpus": 8}),
        (("N/A", RESET), {"seen": log(xid(79, 0))}),
        ((NONE, RESET), {"failure": "Yes"}),
    ],
    ids=["nothing", "a reboot too", "a drain too", "unknown action", "a GPU is missing", "another GPU", "replacement"],
)
def test_nothing_else_asks_for_a_reset(actions: tuple[str, ...], more: dict[str, Any]) -> None:
    """A further request of the driver, or a fault beside it, needs more than a reset."""
    assert not asks_for_reset(*actions, **more)
