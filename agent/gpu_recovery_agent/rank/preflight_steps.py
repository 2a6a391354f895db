"""The steps of the preflight that read the state of the GPUs and of the network devices.

`nvidia-smi -q -x` is asked once for three steps. A step whose program is absent, or whose answer says nothing, was
not run: a step that was not run never counts as passed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional
from xml.etree import ElementTree

from .files import whole
from .preflight_program import Answer, Programs, found_in_path
from .recovery_action import RecoveryAction, action_in

PASSED, FAILED, NOT_RUN, INCONCLUSIVE = "passed", "failed", "not_run", "inconclusive"
GPU_COUNT, RECOVERY_ACTION = "gpu_count", "recovery_action"
RDMA_DEVICES, NVLINK_FABRIC = "rdma_devices", "nvlink_fabric"
NCCL_LOOPBACK, DCGM_LEVEL_1 = "nccl_loopback", "dcgm_level_1"
PROOFS = frozenset({GPU_COUNT, RECOVERY_ACTION, NCCL_LOOPBACK})
"""Steps whose failure proves a fault of the hardware: the training is not started. The server has the same set."""
QUERY_WITHIN_S = 15.0
"""Seconds that `nvidia-smi -q -x` may take. Eight GPUs take about 4 s while the driver is kept loaded."""
OFF_THE_BUS = 15
"""Exit status of nvidia-smi for a GPU that "has fallen off the bus or has otherwise become inaccessible" (manual)."""
EXPECTED_RDMA = "GPU_RECOVERY_RDMA_DEVICES"
"""Variable with the number of RDMA devices (EFA, InfiniBand) that an instance of the job must have."""
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
"""Variable in which ECS names the GPUs that it gave the container."""
SYS = Path("/sys")
DEVICES_MAX, GPUS_MAX = 256, 256
_LOST = re.compile(r"Unable to determine the device handle for (?:GPU|gpu)[^\n]{0,120}|GPU is lost[^\n]{0,80}")


class Finding(NamedTuple):
    """Result of a step.

    sentence: what was seen, in words of this program.
    detail: text of another program that the sentence rests on; "" for none.
    value: a number that the server compares with those of the other ranks; None for none.
    """

    result: str
    sentence: str
    detail: str = ""
    value: Optional[float] = None  # noqa: UP045 - evaluated, and Python 3.9 has no `float | None`


@dataclass(frozen=True)
class Gpu:
    """One GPU in the answer of nvidia-smi. `fabric` is the state and the status of its NVLink fabric; "" if none."""

    uuid: str
    action: RecoveryAction
    fabric: str = ""


@dataclass(frozen=True)
class NvidiaSmiAnswer:
    """The answer of nvidia-smi.

    absent: the container has no nvidia-smi.
    answer: how nvidia-smi ended.
    gpus: the GPUs that answered; () without a readable answer.
    lost: lines about GPUs that the driver knows and cannot reach.
    """

    absent: bool = False
    answer: Answer = field(default_factory=Answer)
    gpus: Sequence[Gpu] = ()
    lost: Sequence[str] = ()
    is_read: bool = False

    @property
    def unanswered(self) -> Finding | None:
        """Return the result of every step that needs an answer, if there is none; None if there is an answer."""
        if self.absent:
            return Finding(NOT_RUN, "the container has no nvidia-smi")
        if self.is_read:
            return None
        if self.answer.late:
            return Finding(INCONCLUSIVE, "nvidia-smi did not answer in time")
        return Finding(INCONCLUSIVE, f"nvidia-smi ended with {self.answer.code}", self.answer.last_line)


def ask_nvidia_smi(programs: Programs, environment: Mapping[str, str]) -> NvidiaSmiAnswer:
    """Return the answer of nvidia-smi. Raises as `Programs.answer`."""
    path = found_in_path(["nvidia-smi"], environment)
    return parsed(programs.answer([path, "-q", "-x"], QUERY_WITHIN_S)) if path else NvidiaSmiAnswer(absent=True)


def parsed(answer: Answer) -> NvidiaSmiAnswer:
    """Return what an answer of `nvidia-smi -q -x` says. Pure; never raises."""
    text = answer.text
    lost = tuple(dict.fromkeys(match[0].strip() for match in _LOST.finditer(text)))[:GPUS_MAX]
    begin, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    if answer.late or begin < 0 or end < begin:
        return NvidiaSmiAnswer(answer=answer, lost=lost)
    try:
        root = ElementTree.fromstring(text[begin : end + len("</nvidia_smi_log>")])
    except (ElementTree.ParseError, ValueError):
        return NvidiaSmiAnswer(answer=answer, lost=lost)
    return NvidiaSmiAnswer(False, answer, tuple(_gpu(node) for node in root.findall("gpu")[:GPUS_MAX]), lost, True)


def _gpu(node: ElementTree.Element) -> Gpu:
    fabric = " ".join(filter(None, (_text(node, "fabric/state"), _text(node, "fabric/status"))))
    return Gpu(_text(node, "uuid"), action_in(_text(node, "gpu_recovery_action")), fabric)


def _text(node: ElementTree.Element, path: str) -> str:
    return " ".join((node.findtext(path) or "")[:256].split())[:64]


def gpu_count(smi: NvidiaSmiAnswer, environment: Mapping[str, str]) -> Finding:
    """Compare the GPUs that the driver shows with those that the job reserved and that ECS gave the container."""
    wanted = whole(environment.get("GPUS_PER_NODE"), least=1, most=GPUS_MAX)
    if smi.absent:
        return Finding(NOT_RUN, "the container has no nvidia-smi")
    if smi.lost:
        return Finding(FAILED, f"the driver cannot reach {len(smi.lost)} GPU(s)", smi.lost[0])
    if smi.answer.code == OFF_THE_BUS:
        return Finding(FAILED, "nvidia-smi says that a GPU is off the bus", smi.answer.last_line)
    if smi.unanswered is not None:
        return smi.unanswered
    if wanted is None:
        return Finding(NOT_RUN, "GPUS_PER_NODE does not say how many GPUs the job reserved")
    given = given_gpus(environment)
    if given is not None and len(given) < wanted:
        return Finding(INCONCLUSIVE, f"ECS gave the container {len(given)} of {wanted} GPUs")
    missing = [name for name in given or () if name.startswith("GPU-") and name not in {g.uuid for g in smi.gpus}]
    if missing:
        return Finding(FAILED, f"the driver does not show {len(missing)} GPU(s) of the container", missing[0])
    seen = len(smi.gpus)
    return Finding(PASSED if seen >= wanted else FAILED, f"the driver shows {seen} of {wanted} GPUs")


def given_gpus(environment: Mapping[str, str]) -> list[str] | None:
    """Return the names of the GPUs that ECS gave the container; None if it did not name them."""
    text = environment.get(VISIBLE, "").strip()
    if text in ("", "all"):
        return None
    return [] if text in ("void", "none") else [name.strip() for name in text.split(",") if name.strip()]


def recovery_action(smi: NvidiaSmiAnswer, environment: Mapping[str, str]) -> Finding:
    """Read the recovery action of each GPU of the container, by the table of the node agent and the health check."""
    if smi.unanswered is not None:
        return smi.unanswered
    given = {name for name in given_gpus(environment) or () if name.startswith("GPU-")}
    gpus = [gpu for gpu in smi.gpus if not given or gpu.uuid in given]
    asked = [gpu for gpu in gpus if gpu.action.asks]
    faulty = [gpu for gpu in asked if gpu.action.needs_reboot]
    if faulty:
        return Finding(FAILED, f"the driver asks for {faulty[0].action} of GPU {faulty[0].uuid or '?'}")
    if asked:
        return Finding(INCONCLUSIVE, f"the driver asks for {asked[0].action} of GPU {asked[0].uuid or '?'}")
    known = sum(gpu.action is RecoveryAction.NONE for gpu in gpus)
    if known == len(gpus) > 0:
        return Finding(PASSED, f"the driver asks for no action on {known} GPU(s)")
    return Finding(NOT_RUN, f"this driver names the recovery action of {known} of {len(gpus)} GPU(s)")


def nvlink_fabric(smi: NvidiaSmiAnswer) -> Finding:
    """Read the state of the NVLink fabric of each GPU. GPUs without a fabric have none."""
    if smi.unanswered is not None:
        return smi.unanswered
    known = [gpu.fabric for gpu in smi.gpus if gpu.fabric and not gpu.fabric.startswith("N/A")]
    if not known:
        return Finding(NOT_RUN, "the driver names no NVLink fabric")
    other = [text for text in known if text not in ("Completed Success", "Completed")]
    if not other:
        return Finding(PASSED, f"the NVLink fabric of {len(known)} GPU(s) is complete")
    waits = all(text.startswith(("In Progress", "Not Started")) for text in other)
    return Finding(
        INCONCLUSIVE if waits else FAILED, f"the NVLink fabric of {len(other)} GPU(s) is not complete", other[0]
    )


def rdma_devices(environment: Mapping[str, str], sys: Path = SYS) -> Finding:
    """Count the RDMA devices with an active port. Without an expected number the server compares the ranks."""
    active = 0
    with suppress(OSError):
        for device in sorted((sys / "class" / "infiniband").iterdir())[:DEVICES_MAX]:
            active += _is_active(device)
    expected = whole(environment.get(EXPECTED_RDMA), most=DEVICES_MAX)
    if expected is None:
        return Finding(NOT_RUN, f"{active} active RDMA device(s), and no expected number", value=float(active))
    result = PASSED if active >= expected else FAILED
    return Finding(result, f"{active} of {expected} RDMA device(s) are active", value=float(active))


def _is_active(device: Path) -> bool:
    """Return whether a port of the device is active, such as `4: ACTIVE`."""
    for state in (device / "ports").glob("*/state"):
        with suppress(OSError, ValueError):
            if "ACTIVE" in state.read_text(encoding="ascii").upper():
                return True
    return False
