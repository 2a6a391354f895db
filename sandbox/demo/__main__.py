"""`make demo`: a training job recovers from a GPU that falls off the bus, without an operator.

The demo starts a sandbox, deploys the production stacks into it, and submits a training job of two instances through
the API. Then it breaks a GPU of the job, and prints each decision with its time and reason until the job ends. The exit
code is 0 only if the job succeeded on its second attempt from a checkpoint. In every case the demo ends the sandbox.
With KEEP=1 it first leaves the sandbox open until Ctrl-C, so that the web console can be explored.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpu_recovery_client.api import RecoveryClient
from gpu_recovery_client.errors import ClientError

from sandbox import sandbox
from sandbox.demo.narration import Narration
from sandbox.processes import SandboxError

INSTANCES, GPUS = 2, 8
TOTAL_STEPS, STEP_SECONDS, CHECKPOINT_EVERY = 150, 0.08, 10
STEPS_BEFORE_THE_FAULT = 35
GIVE_UP_AFTER_S = 240.0
POLL_S = 0.15
LOG_TAIL = 3
TRAINERS = {"python": "sandbox.trainers.plain_python", "torch": "sandbox.trainers.pytorch_ddp"}


class DemoFailed(Exception):
    """The job did not recover as the demo expects. The message says why."""


def main() -> int:
    """Run the demo. Returns the exit code: 0 recovered, 1 failed, 2 wrong TRAINER, 130 interrupted."""
    trainer = os.environ.get("TRAINER", "python")
    if trainer not in TRAINERS:
        print(f"TRAINER must be one of {', '.join(TRAINERS)}, not {trainer!r}", file=sys.stderr)
        return 2
    if trainer == "torch" and importlib.util.find_spec("torch") is None:
        print("TRAINER=torch needs PyTorch in .venv: .venv/bin/python -m pip install torch", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="gpu-recovery-demo-") as folder:
        directory = Path(folder)
        try:
            show(directory, TRAINERS[trainer])
            if os.environ.get("KEEP") == "1":
                keep_open(directory)
        except (DemoFailed, SandboxError, ClientError) as failure:
            print(f"\nThe demo failed: {failure}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nInterrupted; everything that was started is being ended.", file=sys.stderr)
            return 130
        finally:
            sandbox.down(directory)
    return 0


def show(directory: Path, trainer: str) -> None:
    """Run the whole demo with the module `trainer`. Raises DemoFailed if the job does not recover."""
    story = Narration()
    story.chapter("A deployment on this machine: MiniStack for AWS, real processes for GPU tasks")
    state = sandbox.up(directory, instances=INSTANCES, gpus=GPUS, progress=lambda line: story.line("sandbox", line))
    story.line("sandbox", f"the web console is {state['console_url']}")
    with RecoveryClient(state["api_url"], state["operator_token"]) as client:
        story.chapter("A training job of two instances, submitted through the API")
        job_id = client.submit(specification(directory / "checkpoints", trainer))["job_id"]
        story.follow(client, job_id, directory)
        story.line("you", f"gpu-recovery submit ... -> {job_id}")
        wait_for(story, lambda: story.job["status"] == "RUNNING", "the job to run")
        wait_for(story, lambda: story.steps(attempt=1) >= STEPS_BEFORE_THE_FAULT, "the training to get going")

        faulty = story.job["instances"][1]
        story.chapter(f"XID 79: a GPU of {faulty} falls off the bus")
        broken_at = time.monotonic()
        fault = sandbox.fault(directory, faulty, "xid79")
        for line in story.kernel_lines(faulty):
            story.line("kernel", line)
        story.line("fault", f"GPU {fault['gpu_index']} is gone; the rank on it aborts, its peer would wait for ever")
        wait_for(story, lambda: story.job["attempt"] == 2 and story.job["status"] == "RUNNING", "attempt 2 to run")
        healed_s = time.monotonic() - broken_at
        wait_for(story, lambda: story.job["status"] in ("SUCCEEDED", "FAILED", "CANCELED"), "the job to end")

        story.chapter("What the second attempt wrote, as the API reads it")
        story.line("you", f"gpu-recovery logs {job_id} --tail {LOG_TAIL}")
        lines = [line["text"] for line in client.logs(job_id, tail=LOG_TAIL)["lines"]]
        for line in lines:
            story.line("rank 0", line)
        if not lines:
            raise DemoFailed("the API knows no line of the job's log")

        story.chapter("What operators got by e-mail")
        mails = sandbox.read_mailbox(directory)
        for mail in mails:
            story.mail(mail)
        resumed = resumed_from(story.log(attempt=2, rank=0))
        story.chapter("The end")
        check_result(story, resumed)
        story.line("demo", f"training ran again {healed_s:.1f} s after the fault, with nobody awake")
        story.line("demo", f"attempt 2 went on from step {resumed} of {TOTAL_STEPS}, not from 0; {len(mails)} e-mails")


def keep_open(directory: Path) -> None:
    """Print how to sign in to the web console, and wait for Ctrl-C."""
    state = sandbox.status(directory)["sandbox"]
    with RecoveryClient(state["api_url"], state["operator_token"]) as client:
        session = client.open_session()
    print(f"\nThe web console: {state['console_url']}")
    print(f"Paste this session there as the token: {session['session']}")
    print("The sandbox stays open until Ctrl-C.", flush=True)
    with suppress(KeyboardInterrupt):
        signal.pause()
    print("\nThe sandbox is being ended.", flush=True)


def specification(checkpoints: Path, trainer: str) -> dict[str, Any]:
    """Return the job specification, which is the body of POST /api/v2/jobs."""
    environment = {
        "CHECKPOINT_DIR": str(checkpoints),
        "TOTAL_STEPS": str(TOTAL_STEPS),
        "STEP_SECONDS": str(STEP_SECONDS),
        "CHECKPOINT_EVERY": str(CHECKPOINT_EVERY),
    }
    return {
        "workload": "sft",
        "nnodes": INSTANCES,
        "n_gpus_per_node": GPUS,
        "task_definition": sandbox.TRAINING_FAMILY,
        "command": ["python", "-m", trainer],
        "env": environment,
        "user": "demo",
    }


def wait_for(story: Narration, condition: Callable[[], bool], what: str) -> None:
    """Narrate until `condition` holds. Raises DemoFailed if the job ends before, or after `GIVE_UP_AFTER_S`."""
    deadline = time.monotonic() + GIVE_UP_AFTER_S
    while True:
        story.narrate_news()
        if condition():
            return
        if time.monotonic() > deadline:
            raise DemoFailed(f"waited {GIVE_UP_AFTER_S:.0f} s for {what}; the job is {story.job['status']}")
        if story.job["status"] in ("FAILED", "CANCELED"):
            raise DemoFailed(f"while waiting for {what} the job ended: {story.job['reason']}")
        time.sleep(POLL_S)


def resumed_from(log: str) -> int:
    """Return the step that the trainer resumed from, as its log says; 0 without a checkpoint."""
    match = re.search(r"resumed from step (\d+)", log)
    return int(match[1]) if match else 0


def check_result(story: Narration, resumed: int) -> None:
    """Raise DemoFailed unless the job succeeded on attempt 2 from a checkpoint."""
    job: Mapping[str, Any] = story.job
    if (job["status"], job["attempt"]) != ("SUCCEEDED", 2):
        raise DemoFailed(f"the job is {job['status']} on attempt {job['attempt']}: {job['reason']}")
    if resumed <= 0:
        raise DemoFailed("attempt 2 began at step 0: no checkpoint was used")
    story.line("demo", f"{job['job_id']} SUCCEEDED on attempt 2")


if __name__ == "__main__":
    sys.exit(main())
