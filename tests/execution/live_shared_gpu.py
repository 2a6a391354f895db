"""What train and rollout do to each other in a live gang: events, locks, and the memory of a GPU that they share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from gpu_recovery_client import diagnosis
from gpu_recovery_client.diagnosis.event_tracker import EventTracker
from gpu_recovery_client.diagnosis.leases import Lease
from gpu_recovery_client.diagnosis.reporter import reporter

from tests.aws.records import JOB, later
from tests.execution.live_gang import LiveGang
from tests.execution.live_programs import Act, Cut, Peer, controller, then, workers


def event(peer: Peer, *, waits: bool = False, name: str = "rollout_start", passes: float = 1.0) -> Act:
    """The controller tells worker 1.0 of an event."""

    def act(gang: LiveGang) -> None:
        with controller(gang), suppress(Exception, Cut):
            tracker = EventTracker(peer, "1.0", now=gang.clock.now, sleep=gang.clock.sleep)
            (tracker.send_and_wait if waits else tracker.send)(name, 7)
        gang.passes(passes)

    return then(workers(), act)


OOM = "CUDA out of memory. Tried to allocate 30.00 GiB. GPU 0 has a total capacity of 79.10 GiB"


def wrote(*lines: str) -> Act:
    def act(gang: LiveGang) -> None:
        gang.lines[1] = lines

    return act


def holds_memory(*, fails: bool) -> Act:
    """The trainer holds 40 GB of the GPU while rollout, another process, begins its stage."""

    def act(gang: LiveGang) -> None:
        update = "with diagnosis.stage('weights_update', 7): pass\n"
        train = gang.child(1, update, role="train", worker="train-1")
        rollout = gang.child(1, ROLLOUT_FAILS if fails else ROLLOUT, role="rollout", worker="rollout-1")
        gang.holds(processes=[[train.pid, 40_000], [rollout.pid, 2_000]])
        gang.goes(train)
        gang.goes(rollout)
        gang.passes(1)

    return act


ROLLOUT = "opened = diagnosis.stage('rollout', 7)\nopened.__enter__()\n"
ROLLOUT_FAILS = f"""
try:
    with diagnosis.stage('rollout', 7):
        reporter().sender.turn()
        raise RuntimeError({OOM!r})
except RuntimeError:
    pass
"""


def lock(*, ends: bool = False, silent_s: float = 0.0, distributed: bool = False) -> Act:
    """Rollout waits in vain for the GPU that train holds."""

    def act(gang: LiveGang) -> None:
        folder = gang.folder / "locks"
        folder.mkdir()
        how: dict[str, Any] = {"folder": str(folder), "now": gang.clock.now, "sleep": gang.clock.sleep}
        with gang.process(1, 0, role="train"):
            diagnosis.progress(1)
            held = diagnosis.GpuLock("train", **how)
            held.acquire()
        gang.passes(1)
        with gang.process(1, 0) as voice:
            gang.frozen += [voice] if silent_s else []  # it hangs, and so does the thread that reports for it
        gang.passes(silent_s)
        with gang.process(1, 1, role="rollout"), suppress(TimeoutError):
            diagnosis.GpuLock("rollout", **how).acquire()
        gang.passes(1)
        if ends:
            gang.ends(1, 137)
        with gang.process(1, 0):
            held.release()

    return act


def served(switch: Callable[[diagnosis.ReceivedEvent], None], *, waits: bool = False) -> Act:
    """Worker 1.0 serves its events, and the controller reaches it over HTTP."""

    def act(gang: LiveGang) -> None:
        endpoint = diagnosis.WorkerEndpoint(switch, ack_wait_s=0.5)
        gang.stack.callback(endpoint.close)
        with controller(gang), suppress(RuntimeError):
            tracker = diagnosis.event_tracker(endpoint.serve(), "1.0")
            tracker._sleep = lambda seconds: time.sleep(seconds / 100)
            (tracker.send_and_wait if waits else tracker.send)("rollout_start", 7)
        gang.passes(1)

    return then(workers(), act)


def is_ready(event: diagnosis.ReceivedEvent) -> None:
    """The GPU is free at once."""


def is_occupied(event: diagnosis.ReceivedEvent) -> None:
    event.busy()
    threading.Event().wait(5)


def has_no_memory(event: diagnosis.ReceivedEvent) -> None:
    raise RuntimeError("no memory")


def unknown_event(gang: LiveGang) -> None:
    """A program without the tracker reports an event that nobody knows. The tracker itself refuses the name."""
    with controller(gang):
        with pytest.raises(ValueError, match="Invalid event type: rollout"):
            EventTracker(Peer(), "1.0").send("rollout")
        reporter().send("event", worker="1.0", request_id="q", event="rollout", state="failed", last_state="sent")
    gang.passes(1)


def release_of_another(gang: LiveGang) -> None:
    """Rollout releases the GPU that train holds."""
    folder = gang.folder / "locks"
    folder.mkdir()
    train = diagnosis.GpuLock("train", folder=str(folder))
    with gang.process(1, 0, role="train"), train, gang.process(1, 1, role="rollout"):
        assert not diagnosis.GpuLock("rollout", folder=str(folder)).release()
    gang.passes(1)


def lease(gang: LiveGang, owner: str, rank: int, call: Any = None) -> diagnosis.GpuLock:
    """A lock of the job for this process, by the lease of the API."""
    made = Lease(
        call or partial(asked, gang),
        JOB,
        "gpu_0",
        owner,
        reporter().identity.process,
        rank,
        now=gang.clock.now,
        renews=False,
    )
    return diagnosis.GpuLock(owner, lease=made, now=gang.clock.now, sleep=gang.clock.sleep)


def asked(gang: LiveGang, method: str, path: str, body: Any) -> tuple[int, Any]:
    """A call of the lease, by the clock of the test."""
    gang.functions.now = later(gang.clock.at - 1_000.0)
    answer = gang.api.call(method, f"/api/v2{path}", body)
    return answer.status, answer.body


def split_brain(gang: LiveGang) -> None:
    """Train is paused when it has the lease, until rollout has taken it, and then goes on as if it held it."""

    def pauses(method: str, path: str, body: Any) -> tuple[int, Any]:
        answer = asked(gang, method, path, body)
        gang.clock.at += 200
        with gang.process(1, 1, role="rollout"):
            lease(gang, "rollout", 1).acquire()
        gang.passes(5)
        return answer

    with gang.process(0, 0, role="train"):
        lease(gang, "train", 0, pauses).acquire()
    gang.passes(1)


def leased_by_the_dead(gang: LiveGang) -> None:
    """Train on another instance has ended with the lease that rollout waits for."""
    with gang.process(0, 0, role="train"):
        lease(gang, "train", 0).acquire()
    gang.passes(1)
    gang.ends(0, 137)
    with gang.process(1, 0, role="rollout"), suppress(TimeoutError):
        lease(gang, "rollout", 1).acquire()
    gang.passes(1)


def stays_by_design(gang: LiveGang) -> None:
    """Train keeps its memory while rollout works beside it, round after round, and then rank 1 ends."""
    rounds = "with diagnosis.stage('rollout', 7): reporter().sender.turn()\nreporter().sender.turn()\n"
    train = gang.child(1, "with diagnosis.stage('weights_update', 7): pass\n", role="train", worker="train-1")
    rollout = gang.child(1, rounds, role="rollout", worker="rollout-1")
    gang.holds(processes=[[train.pid, 40_000], [rollout.pid, 2_000]])
    gang.goes(train)
    gang.goes(rollout)
    gang.passes(1)
    gang.ends(1, 1)
