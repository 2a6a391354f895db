"""Which verdict documents of the real health check ask for no more than a reset of GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gpu_recovery.aws.actions import parse_verdict

import health_check
from health_check.driver import DriverReport, parse
from health_check.examine import judge
from health_check.kernel_log import KernelLog
from health_check.remedies import DEADLINE_PASSED
from tests.health_check.examinations import (
    ADDRESSES,
    action_changed,
    answer,
    document_of,
    evidence_of,
    examination,
    gpu_xml,
    log,
    xid,
)

SCHEMA = json.loads((Path(health_check.__file__).parent / "verdict.schema.json").read_text(encoding="utf-8"))
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


def passive(*lines: str, said: DriverReport | None = None) -> bool:
    """The same of a passive check, which has no GPUs and so no driver."""
    seen, said = log(*lines), said or parse("", "nvidia-smi is not installed", 127)
    of = examination(level=0, seen=seen, said=said, evidence=evidence_of(seen, said, level=0))
    document = document_of(judge(of, level=0, expected_gpus=8), of, level=0)
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    verdict = parse_verdict(json.dumps(document).encode(), document["check_id"])
    assert verdict is not None
    return verdict.reset


def test_a_passive_check_knows_the_request_from_the_kernel_log() -> None:
    """The driver logs each change of its recovery action as XID 154. The last change on a GPU counts."""
    reset = "0x1 (GPU Reset Required)"
    assert passive(xid(119, 1), action_changed(reset, 1))
    assert passive(xid(119, 1), action_changed(reset, 1), xid(119, 2), action_changed(reset, 2))
    assert not passive(xid(119, 1))
    assert not passive(action_changed(reset, 1).replace(ADDRESSES[1], "****:**:**"))
    assert not passive(xid(119, 1), action_changed(reset, 1), action_changed("0x2 (Node Reboot Required)", 1))
    assert not passive(xid(119, 1), action_changed(reset, 1), xid(79, 2))
    assert not passive(xid(119, 1), action_changed(reset, 1), "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 24007, Fatal")


def test_a_driver_that_hangs_asks_for_no_reset() -> None:
    """A reset waits for the same driver."""
    assert not passive(xid(119, 1), action_changed("0x1 (GPU Reset Required)", 1), said=parse("", "", DEADLINE_PASSED))


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
