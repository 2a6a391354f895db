"""What it costs a training to tell what a diagnosis needs: processor time on its own thread, and of the whole process.

A step tells as much as docs/training.md's example, and eight calls of a controller besides, to an agent's real socket.
There is no GPU: its probe is bounded by what it is allowed, a hundredth of the time (`gpu_recovery_client.diagnosis`).
"""

from __future__ import annotations

import json
import tempfile
import time
from itertools import count
from pathlib import Path

from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.sensors.training_socket import TrainingSocket
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis.reporter import ObservationReporter, ProcessIdentity, set_reporter
from gpu_recovery_client.diagnosis.sender import Sender

STEPS, CALLS = 2_000, 8
STEP_S = 1.0
"""How long a step is taken to last: the sender's own turn comes once in it, as its thread has one a second."""


def telling_figures(steps: int = STEPS) -> dict[str, float]:
    """Microseconds a step, and percent of a step of a second; reports that the agent had and that were dropped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        ear = TrainingSocket(path, AgentLog())
        ear.poll(0.0)
        clock = count(step=STEP_S)
        now = [next(clock)]
        sender = Sender(str(path), lambda: now[0])
        set_reporter(ObservationReporter(ProcessIdentity("run-1", 1, 0, path=str(path)), sender))
        own_s, sent_s, heard = 0.0, 0.0, 0
        for number in range(steps):
            now[0] = next(clock)
            began = time.thread_time()
            _step(number)
            told = time.thread_time()
            sender.turn()
            own_s, sent_s = own_s + told - began, sent_s + time.thread_time() - told
            heard += _drained(ear)
        set_reporter(None)
        ear.close()
    return {
        "own_thread_us_each_step": round(own_s / steps * 1e6, 1),
        "sending_us_each_step": round(sent_s / steps * 1e6, 1),
        "percent_of_a_step_of_1_s": round(100 * (own_s + sent_s) / steps / STEP_S, 3),
        "reports_heard_each_step": round(heard / steps, 2),
        "dropped": sender.lost + ear.lost,
    }


def _step(number: int) -> None:
    stage = diagnosis.stage("weights_update", step=number)
    with stage, diagnosis.weight_sync_timing(number) as sync, sync.part("upload"):
        pass
    with diagnosis.stage("rollout", step=number):
        for worker in range(CALLS):
            with diagnosis.rpc_timing(f"rollout-{worker}", "generate") as call, call.phase("connect"):
                pass
    diagnosis.progress(number)


def _drained(ear: TrainingSocket) -> int:
    """Take what has come, as the agent does; how many reports."""
    ear.poll(0.0)
    heard = 0
    while told := ear.batch():
        ear.acknowledge(told, 0)
        heard += len(told)
    return heard


if __name__ == "__main__":
    print(json.dumps(telling_figures(), indent=1))
