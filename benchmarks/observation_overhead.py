"""Benchmark of the processor time that a training spends on observations for diagnosis.

A step sends the observations of the example in docs/training.md, and those of eight calls of a controller, to the real
socket of an agent. There is no GPU. The GPU probe may use at most a hundredth of the time
(`gpu_recovery_client.diagnosis`).
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
"""Steps that are measured, and calls of a controller in each step."""
STEP_S = 1.0
"""Assumed seconds of a step. The sender has one turn in a step, because its thread has one turn a second."""


def observation_figures(steps: int = STEPS) -> dict[str, float]:
    """Measure the sending of observations.

    Returns:
        Processor time of a step in microseconds, on the thread of the training and on the thread of the sender; both as
        percent of a step of one second; observations of a step that the agent received; observations that were dropped.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "socket"
        agent_socket = TrainingSocket(path, AgentLog())
        agent_socket.poll(0.0)
        clock = count(step=STEP_S)
        now = [next(clock)]
        sender = Sender(str(path), lambda: now[0])
        set_reporter(ObservationReporter(ProcessIdentity("run-1", 1, 0, path=str(path)), sender))
        own_s, sent_s, received = 0.0, 0.0, 0
        for number in range(steps):
            now[0] = next(clock)
            began = time.thread_time()
            _step(number)
            step_ended = time.thread_time()
            sender.turn()
            own_s, sent_s = own_s + step_ended - began, sent_s + time.thread_time() - step_ended
            received += _drained(agent_socket)
        set_reporter(None)
        agent_socket.close()
    return {
        "own_thread_us_each_step": round(own_s / steps * 1e6, 1),
        "sending_us_each_step": round(sent_s / steps * 1e6, 1),
        "percent_of_a_step_of_1_s": round(100 * (own_s + sent_s) / steps / STEP_S, 3),
        "reports_heard_each_step": round(received / steps, 2),
        "dropped": sender.lost + agent_socket.lost,
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


def _drained(agent_socket: TrainingSocket) -> int:
    """Receive and acknowledge all observations as the agent does. Return their number."""
    agent_socket.poll(0.0)
    received = 0
    while batch := agent_socket.batch():
        agent_socket.acknowledge(batch, 0)
        received += len(batch)
    return received


if __name__ == "__main__":
    print(json.dumps(observation_figures(), indent=1))
