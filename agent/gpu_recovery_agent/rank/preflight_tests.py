"""The steps of the preflight that use the GPUs: an all-reduce over the GPUs of the container, and `dcgmi diag -r 1`.

Both need a program that the image may not have. Then the step was not run.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .files import whole
from .preflight_program import Answer, Programs, found_in_path
from .preflight_steps import FAILED, GPUS_MAX, INCONCLUSIVE, NOT_RUN, PASSED, Finding

LOOPBACK_WITHIN_S, DCGM_WITHIN_S = 35.0, 15.0
"""Seconds that a step may take. The import of PyTorch alone takes 5 to 20 s from a cold disk."""
SCRIPT = Path(__file__).with_name("nccl_loopback.py")
HARDWARE = ("uncorrectable ecc", "uncorrectable nvlink", "gpu is lost", "fallen off the bus", "eccuncorrectable")
"""Texts of errors that name the hardware, in lower case (CUDA runtime API, `cudaError`; `nvidia-smi`)."""
_BANDWIDTH = re.compile(r"Avg bus bandwidth\s*:\s*([0-9.]{1,12})")
_WRONG = re.compile(r"Out of bounds values\s*:\s*([0-9]{1,12})")
_NO_ENGINE = ("unable to connect", "unable to establish", "connection", "host engine")


def nccl_loopback(programs: Programs, environment: Mapping[str, str]) -> Finding:
    """Run an all-reduce over the GPUs of the container. Raises as `Programs.answer`."""
    count = whole(environment.get("GPUS_PER_NODE"), least=1, most=GPUS_MAX) or 0
    more = {} if "NCCL_DEBUG" in environment else {"NCCL_DEBUG": "WARN"}
    path = found_in_path(["all_reduce_perf"], environment)
    if path and count:
        command = [path, "-b", "64M", "-e", "64M", "-g", str(count), "-w", "1", "-n", "5", "-c", "1"]
        return of_all_reduce_perf(programs.answer(command, LOOPBACK_WITHIN_S, more))
    python = found_in_path(["python3", "python"], environment) or sys.executable
    return of_script(programs.answer([python, str(SCRIPT), str(count)], LOOPBACK_WITHIN_S, more))


def of_all_reduce_perf(answer: Answer) -> Finding:
    """Return the result of an answer of `all_reduce_perf` of nccl-tests. Pure.

    With wrong values the program ends with 1 (src/common.cu of NVIDIA/nccl-tests), so the code is read after them.
    """
    bandwidth, wrong = _BANDWIDTH.search(answer.text), _WRONG.search(answer.text)
    if not answer.late and wrong is not None and int(wrong[1]):
        return Finding(FAILED, f"{wrong[1]} values of an all-reduce are wrong")
    if answer.late or answer.code != 0 or bandwidth is None or wrong is None:
        return _of_error(answer, "all_reduce_perf", answer.text)
    return Finding(PASSED, f"an all-reduce has {bandwidth[1]} GB/s", value=_number(bandwidth[1]))


def of_script(answer: Answer) -> Finding:
    """Return the result of an answer of `nccl_loopback.py`. Pure."""
    result = _object(answer.last_line)
    if answer.late or not result:
        return _of_error(answer, "the all-reduce of PyTorch", answer.text)
    if "absent" in result:
        return Finding(NOT_RUN, "there is no program for an all-reduce", str(result["absent"])[:200])
    if "wrong" in result:
        return Finding(FAILED, f"the sum of an all-reduce is wrong on GPU {result['wrong']}")
    speed = _number(result.get("gb_s"))
    if "error" in result or speed is None:
        return _of_error(answer, "the all-reduce of PyTorch", f"{answer.text} {result.get('error', '')}")
    return Finding(PASSED, f"an all-reduce over {result.get('gpus')} GPU(s) has {speed:g} GB/s", value=speed)


def _of_error(answer: Answer, what: str, text: str) -> Finding:
    """Return the result of a test that has no result of its own. Only an error that names the hardware is a proof."""
    named = next((line.strip() for line in text.splitlines() if any(one in line.lower() for one in HARDWARE)), "")
    if named:
        return Finding(FAILED, f"{what} ended with an error of the hardware", named[:200])
    if answer.late:
        return Finding(INCONCLUSIVE, f"{what} did not end in time")
    return Finding(INCONCLUSIVE, f"{what} ended with {answer.code}", answer.last_line[:200])


def dcgm_level_1(programs: Programs, environment: Mapping[str, str]) -> Finding:
    """Run `dcgmi diag -r 1`, if the image has it. Raises as `Programs.answer`."""
    path = found_in_path(["dcgmi"], environment)
    if not path:
        return Finding(NOT_RUN, "the container has no dcgmi")
    return of_dcgmi(programs.answer([path, "diag", "-r", "1", "-j"], DCGM_WITHIN_S))


def of_dcgmi(answer: Answer) -> Finding:
    """Return the result of an answer of `dcgmi diag -r 1 -j`. Pure."""
    if answer.late:
        return Finding(INCONCLUSIVE, "dcgmi did not end in time")
    begin, end = answer.text.find("{"), answer.text.rfind("}")
    results = [text.lower() for text in _statuses(_object(answer.text[begin : end + 1]))] if begin >= 0 else []
    if "fail" in results:
        return Finding(FAILED, f"{results.count('fail')} test(s) of level 1 failed")
    if "warn" in results:
        return Finding(INCONCLUSIVE, f"{results.count('warn')} test(s) of level 1 gave a warning")
    if "pass" in results and answer.code == 0:
        return Finding(PASSED, f"{results.count('pass')} test(s) of level 1 passed")
    if not results and any(text in answer.text.lower() for text in _NO_ENGINE):
        return Finding(NOT_RUN, "dcgmi found no host engine", answer.last_line[:200])
    return Finding(INCONCLUSIVE, f"dcgmi ended with {answer.code} and no result", answer.last_line[:200])


def _statuses(value: Any) -> list[str]:
    """Return every `status` in a document of dcgmi, at any depth."""
    if isinstance(value, list):
        return [text for entry in value for text in _statuses(entry)]
    if not isinstance(value, dict):
        return []
    own = [value["status"]] if isinstance(value.get("status"), str) else []
    return own + [text for entry in value.values() for text in _statuses(entry)]


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> Any:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 0 <= number < 1e9 else None
