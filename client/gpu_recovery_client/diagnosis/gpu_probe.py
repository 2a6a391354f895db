"""Checks that the GPU computes correctly: one matrix product with a known result.

The probe that the fault catalogue specifies multiplies random numbers and does not wait, so it passes on a dead
context. Here the factors are integers from -8 to 7. Every product and sum is exact in float32, with or without TF32 and
in any order of addition. So the sum over the result is known beforehand and the same on every GPU. It takes about
0.1 ms on a current GPU (2 GFLOP) and 12 MB of its memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from .reporter import sentence

SIDE, LEAST, BELOW, SEED = 1_000, -8, 8, 2_026


@dataclass(frozen=True)
class Probed:
    """The result of a probe. `matches` says whether the sum was the known sum; None without a sum."""

    passed: bool
    matches: bool | None = None
    error: str = ""


class ComputeProbe:
    """Probes the current device of torch, and stores its factors there."""

    def __init__(self) -> None:
        self._factors: dict[int, tuple[Any, Any, int]] = {}

    def run(self) -> Probed | None:
        """Compute and wait. Return None if there is nothing to probe: no torch, no context yet, or no memory left."""
        torch = torch_in_use()
        if torch is None or torch.cuda.is_current_stream_capturing():
            return None
        try:
            with torch.no_grad(), torch.autocast("cuda", enabled=False):
                left, right, known = self._on(torch, int(torch.cuda.current_device()))
                total = (left @ right).double().sum()
                torch.cuda.synchronize()
                matches = int(total.item()) == known
        except (RuntimeError, ValueError, OverflowError) as error:  # errors of torch are RuntimeErrors
            if type(error).__name__ == "OutOfMemoryError":
                return None  # the program uses all memory, which is no fault of the GPU
            return Probed(False, None, sentence(error))
        return Probed(matches, matches, "" if matches else "the probe's result is not the known one")

    def _on(self, torch: Any, device: int) -> tuple[Any, Any, int]:
        if device not in self._factors:
            numbers = torch.Generator()
            numbers.manual_seed(SEED)
            left, right = (torch.randint(LEAST, BELOW, (SIDE, SIDE), generator=numbers) for _ in range(2))
            known = int((left.sum(0) * right.sum(1)).sum().item())  # on the CPU, in integers
            self._factors[device] = (left.float().to(f"cuda:{device}"), right.float().to(f"cuda:{device}"), known)
        return self._factors[device]


def torch_in_use() -> Any:
    """Return torch if the program has imported it and uses a GPU with it; None otherwise. It is never imported here."""
    torch: Any = sys.modules.get("torch")
    try:
        return torch if torch is not None and torch.cuda.is_initialized() and torch.cuda.is_available() else None
    except (AttributeError, RuntimeError):
        return None  # torch is being imported at this moment, or has no CUDA


def memory_of_torch() -> tuple[float, float] | None:
    """Return (allocated, reserved) gigabytes of this process on the current GPU; None without torch.

    Asks only the allocator.
    """
    torch = torch_in_use()
    try:
        if torch is not None:
            return float(torch.cuda.memory_allocated()) / 1e9, float(torch.cuda.memory_reserved()) / 1e9
    except (AttributeError, RuntimeError, ValueError):
        return None
    return None


def uuid_of_torch() -> str:
    """Return the UUID of the current GPU as NVML writes it; "" if torch does not know it."""
    torch = torch_in_use()
    try:
        if torch is not None:
            text = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
            return text if text.startswith("GPU-") else f"GPU-{text}"
    except (AttributeError, RuntimeError, AssertionError):
        return ""
    return ""
