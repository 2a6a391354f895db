"""Variables and options that hold a timeout of a training program: their names, their units, and how they are read.

`gpu-recovery-run` reads the same variables in the containers of the ranks. So the agent has a copy of this module, for
Python 3.9: `core/job/timeout_variables.py` here is `agent/gpu_recovery_agent/rank/timeout_variables.py` there. The
sources of names, units and defaults are in docs/decisions/0072-timeouts-that-fit-each-other.md.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

HEARTBEAT, DUMP = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
NONBLOCKING = "TORCH_NCCL_NONBLOCKING_TIMEOUT"
MONITORING, ERROR_HANDLING = "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"
FT_TIMEOUT, FT_QUORUM = "TORCHFT_TIMEOUT_SEC", "TORCHFT_QUORUM_TIMEOUT_SEC"
INIT_TIMEOUT, FT_GROUP = "--comm.init_timeout_seconds", "--fault_tolerance.process_group_timeout_ms"
STOP_TIMEOUT, GRACE = "GPU_RECOVERY_STOP_TIMEOUT_S", "SUSPEND_GRACE_S"
SET_AT_LAUNCH = (STOP_TIMEOUT, GRACE)
"""Variables that gpu-recovery sets on the ranks of its own jobs, so those of a task definition do not apply."""
UNREAD = ("NCCL_TIMEOUT", "TORCH_DISTRIBUTED_DEFAULT_TIMEOUT")
"""Variables that many scripts set and that neither NCCL nor PyTorch reads."""
GROUP_TIMEOUTS: Mapping[str, float] = {
    "--comm.train_timeout_seconds": 1.0,
    "--distributed-timeout-minutes": 60.0,
    "--ddp_timeout": 1.0,
    "DEEPSPEED_TIMEOUT": 60.0,
}
"""What sets the timeout of the default process group, with the seconds of its unit: torchtitan, Megatron-LM, the
Trainer of Hugging Face, and DeepSpeed. The first that is known counts."""
UNITS_S: Mapping[str, float] = {
    **GROUP_TIMEOUTS,
    INIT_TIMEOUT: 1.0,
    FT_GROUP: 0.001,
    FT_TIMEOUT: 1.0,
    FT_QUORUM: 1.0,
    HEARTBEAT: 1.0,
    DUMP: 0.001,
    NONBLOCKING: 1.0,
    STOP_TIMEOUT: 1.0,
    GRACE: 1.0,
    **dict.fromkeys(UNREAD, 1.0),
}
"""Each known variable and option that holds a time, with the seconds of its unit."""
KNOWN = (*UNITS_S, MONITORING, ERROR_HANDLING)
"""Every variable and option that is read."""
_WHOLE = re.compile(r"[0-9]{1,9}")


def stated_timeouts(environment: Mapping[str, str], command: Iterable[str] = ()) -> dict[str, int]:
    """Return the known variables and options that hold a whole number, each in its own unit.

    Args:
        environment: the variables of a rank. Unknown variables are not looked at.
        command: the command of a rank. An argument with spaces is read as a shell would split it.
    """
    words = [word for argument in command for word in _split(argument)]
    texts = {name: environment[name].strip() for name in KNOWN if name in environment}
    for number, word in enumerate(words):
        written, equals, value = word.partition("=")
        name = _OPTIONS.get(_spelled(written))
        if name is not None:
            texts[name] = value if equals else next(iter(words[number + 1 : number + 2]), "")
    return {name: int(text) for name, text in texts.items() if _WHOLE.fullmatch(text)}


def _spelled(option: str) -> str:
    """Return an option with dashes in place of underscores. Most parsers accept both."""
    return option.replace("_", "-")


_OPTIONS = {_spelled(name): name for name in UNITS_S if name.startswith("--")}


def _split(argument: str) -> list[str]:
    """Return the words of an argument, such as the script of `bash -c`. Text that no shell reads is split at spaces."""
    if " " not in argument and "\n" not in argument:
        return [argument]
    try:
        return shlex.split(argument, comments=True)
    except ValueError:
        return argument.split()
