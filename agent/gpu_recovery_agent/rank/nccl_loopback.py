"""Program of the preflight: an all-reduce over the GPUs of this container, in one process, with PyTorch's NCCL.

`gpu-recovery-run` starts this file with the Python of the image, so it must not import anything of this package. It
prints one JSON object as its last line: `absent` (why it cannot run), `wrong` (a GPU with a wrong sum), `error` (an
exception), or `gb_s` (gigabytes of one GPU's input per second).
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

ELEMENTS = 2**24
"""Elements of 4 bytes on each GPU: 64 MiB, so that the transfer and not the start of the kernels takes the time."""
ROUNDS = 5
ERRORS = (RuntimeError, OSError, ValueError, TypeError, AttributeError)
"""Errors of PyTorch and of its libraries. They are a result; any other ends this program."""


def loopback(torch: Any, count: int) -> dict[str, Any]:
    """Return the result of an all-reduce over `count` GPUs.

    Args:
        torch: the module of PyTorch.
        count: number of GPUs; 0 for all that are visible.
    """
    if not (torch.version.cuda and hasattr(torch.cuda, "nccl")):
        return {"absent": "PyTorch was built without CUDA or NCCL"}
    torch.cuda.init()
    count = count or torch.cuda.device_count()
    inputs = [torch.full((ELEMENTS,), float(gpu + 1), device=f"cuda:{gpu}") for gpu in range(count)]
    if not torch.cuda.nccl.is_available(inputs):
        return {"absent": "PyTorch has no NCCL for these GPUs"}
    outputs = [torch.zeros_like(tensor) for tensor in inputs]
    torch.cuda.nccl.all_reduce(inputs, outputs)
    synchronise(torch, count)
    began = time.monotonic()
    for _ in range(ROUNDS):
        torch.cuda.nccl.all_reduce(inputs, outputs)
    synchronise(torch, count)
    seconds = time.monotonic() - began
    total = float(sum(range(1, count + 1)))
    wrong = [gpu for gpu, output in enumerate(outputs) if not bool((output == total).all())]
    if wrong:
        return {"wrong": wrong[0]}
    return {"gb_s": round(ROUNDS * 4 * ELEMENTS / max(seconds, 1e-9) / 1e9, 3), "gpus": count}


def synchronise(torch: Any, count: int) -> None:
    """Wait for every GPU: an error of a kernel appears only then."""
    for gpu in range(count):
        torch.cuda.synchronize(gpu)


def main() -> None:
    """Run the all-reduce and print its result. The first argument is the number of GPUs."""
    try:
        import torch  # noqa: PLC0415 - without PyTorch there is no result
    except (ImportError, OSError) as error:
        print(json.dumps({"absent": f"the image has no PyTorch: {error}"[:200]}))
        return
    try:
        result = loopback(torch, int(sys.argv[1]))
    except ERRORS as error:
        result = {"error": f"{type(error).__name__}: {error}"[:400]}
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this package, whose modules must not stand in for others
    main()
