"""Whether the GPU computes, and computes right: one product of matrices of whole numbers, waited for and compared.

Seed 002's probe multiplies random numbers and does not wait, so it passes on a context that is dead. Here the factors
are whole numbers from -8 to 7: every product and sum is exact in float32, with or without TF32 and in whatever order
it is added up, so that the sum over the result is known beforehand and the same on every GPU. About 0.1 ms on a GPU of
today (2 GFLOP), 12 MB of its memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from gpu_recovery_client.diagnosis.reporter import sentence

SIDE, LEAST, BELOW, SEED = 1_000, -8, 8, 2_026


@dataclass(frozen=True)
class Probed:
    """How a probe ended. matches: whether the result was the known one, None if there is none."""

    passed: bool
    matches: bool | None = None
    error: str = ""


class ComputeProbe:
    """Probes the current device of torch; keeps its factors there."""

    def __init__(self) -> None:
        self._factors: dict[int, tuple[Any, Any, int]] = {}

    def run(self) -> Probed | None:
        """Compute and wait. None where there is nothing to probe: no torch, no context yet, no memory left."""
        torch = torch_in_use()
        if torch is None or torch.cuda.is_current_stream_capturing():
            return None
        try:
            with torch.no_grad(), torch.autocast("cuda", enabled=False):
                one, other, known = self._on(torch, int(torch.cuda.current_device()))
                found = (one @ other).double().sum()
                torch.cuda.synchronize()
                matches = int(found.item()) == known
        except (RuntimeError, ValueError, OverflowError) as error:  # torch's errors are RuntimeErrors
            if type(error).__name__ == "OutOfMemoryError":
                return None  # the program has all of it, which is no fault of the GPU
            return Probed(False, None, sentence(error))
        return Probed(matches, matches, "" if matches else "the probe's result is not the known one")

    def _on(self, torch: Any, device: int) -> tuple[Any, Any, int]:
        if device not in self._factors:
            numbers = torch.Generator()
            numbers.manual_seed(SEED)
            one, other = (torch.randint(LEAST, BELOW, (SIDE, SIDE), generator=numbers) for _ in range(2))
            known = int((one.sum(0) * other.sum(1)).sum().item())  # on the CPU, in whole numbers
            self._factors[device] = (one.float().to(f"cuda:{device}"), other.float().to(f"cuda:{device}"), known)
        return self._factors[device]


def torch_in_use() -> Any:
    """The torch that the program has imported and uses a GPU with; None else. It is never imported from here."""
    torch: Any = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_initialized() and torch.cuda.is_available() else None
    except (AttributeError, RuntimeError):
        return None  # it is being imported at this moment, or has no CUDA


def memory_of_torch() -> tuple[float, float] | None:
    """(allocated, reserved) gigabytes of this process on the current GPU; None without. Asks only the allocator."""
    torch = torch_in_use()
    try:
        if torch is not None:
            return float(torch.cuda.memory_allocated()) / 1e9, float(torch.cuda.memory_reserved()) / 1e9
    except (AttributeError, RuntimeError, ValueError):
        return None
    return None


def uuid_of_torch() -> str:
    """The UUID of the current GPU as NVML writes it; "" where torch does not tell."""
    torch = torch_in_use()
    try:
        if torch is not None:
            text = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
            return text if text.startswith("GPU-") else f"GPU-{text}"
    except (AttributeError, RuntimeError, AssertionError):
        return ""
    return ""
