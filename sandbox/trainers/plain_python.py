"""Distributed trainer in plain Python, which the sandbox's jobs run without a GPU library.

One process per instance fits a logistic regression by synchronous SGD. Each rank computes the gradient of its own
shard. An all-reduce over TCP, which rank 0 serves on MASTER_ADDR:MASTER_PORT, takes the mean over all ranks. Rank 0
writes atomic checkpoints, and every rank starts from the last checkpoint. The samples of a rank are a function of
(rank, step), so a run that was killed and resumed ends with exactly the weights of an uninterrupted run.

A suspension notice reaches every rank with the all-reduce of the step in which rank 0 receives it. Rank 0 saves that
step, all ranks wait for the save, and then all ranks exit. So the next attempt continues with the following step.

A lost peer has the same effect as under NCCL: the collective hangs, and after COLLECTIVE_TIMEOUT_S the rank gives up
with the exit code of an abort.

Environment: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, JOB_ID, ATTEMPT (set by the launcher); CHECKPOINT_DIR (else
the system's folder for temporary files), TOTAL_STEPS, STEP_SECONDS, CHECKPOINT_EVERY, COLLECTIVE_TIMEOUT_S,
RENDEZVOUS_TIMEOUT_S.
Exit codes: 0 trained, 75 suspended, 134 a collective timed out, 143 stopped by SIGTERM, 1 anything else.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from gpu_recovery_client import training

FEATURES = 8
VECTOR = FEATURES + 2
"""Length of every exchanged vector: weights or a gradient, then the loss or the step, then the suspend flag."""
SHARD = 32
LEARNING_RATE = 0.5
TRUE_WEIGHTS = [(-1) ** i * (1 + i / 4) for i in range(FEATURES)]
EXIT_ABORTED = 134
EXIT_TERMINATED = 143
RETRY_S = 0.05


class CollectiveTimeout(RuntimeError):
    """A peer sent no data within COLLECTIVE_TIMEOUT_S."""


@dataclass(frozen=True)
class TrainerSettings:
    """Settings of this rank from the environment; times in seconds."""

    rank: int
    world_size: int
    master_addr: str
    master_port: int
    attempt_id: str
    checkpoint: Path
    total_steps: int
    step_s: float
    checkpoint_every: int
    collective_timeout_s: float
    rendezvous_timeout_s: float

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> TrainerSettings:
        """Read the settings. Raises KeyError if a variable of the launcher is missing."""
        return cls(
            rank=int(env["RANK"]),
            world_size=int(env["WORLD_SIZE"]),
            master_addr=env["MASTER_ADDR"],
            master_port=int(env["MASTER_PORT"]),
            attempt_id=f"{env['JOB_ID']}--a{int(env.get('ATTEMPT', '1')):02d}",
            checkpoint=Path(env.get("CHECKPOINT_DIR") or tempfile.gettempdir()) / env["JOB_ID"] / "checkpoint.json",
            total_steps=int(env.get("TOTAL_STEPS", "60")),
            step_s=float(env.get("STEP_SECONDS", "0.25")),
            checkpoint_every=int(env.get("CHECKPOINT_EVERY", "5")),
            collective_timeout_s=float(env.get("COLLECTIVE_TIMEOUT_S", "60")),
            rendezvous_timeout_s=float(env.get("RENDEZVOUS_TIMEOUT_S", "60")),
        )


@dataclass(frozen=True)
class Checkpoint:
    """The model after `step` steps."""

    step: int
    weights: list[float]

    def save(self, path: Path) -> None:
        """Replace the checkpoint in one step, so that a kill leaves the old or the new checkpoint whole."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        with draft.open("w") as out:
            json.dump({"step": self.step, "weights": self.weights}, out)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(path)

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Return the last checkpoint, or the untrained model if there is no checkpoint."""
        if not path.exists():
            return cls(0, [0.0] * FEATURES)
        state = json.loads(path.read_text())
        return cls(state["step"], state["weights"])


def shard_gradient(weights: list[float], rank: int, step: int) -> tuple[list[float], float]:
    """Return the mean gradient (FEATURES floats) and the mean loss of one shard of logistic regression.

    The labels come from `TRUE_WEIGHTS`.
    """
    source = random.Random(rank * 1_000_003 + step)
    gradient, loss = [0.0] * FEATURES, 0.0
    for _ in range(SHARD):
        x = [source.gauss(0, 1) for _ in range(FEATURES)]
        label = 1.0 if sum(a * b for a, b in zip(TRUE_WEIGHTS, x, strict=True)) > 0 else 0.0
        score = sum(a * b for a, b in zip(weights, x, strict=True))
        # log(1 + e^score) - label * score, written so that a large score does not overflow
        loss += max(score, 0.0) + math.log1p(math.exp(-abs(score))) - label * score
        error = 1 / (1 + math.exp(-score)) - label if score > -700 else -label
        gradient = [g + error * value for g, value in zip(gradient, x, strict=True)]
    return [g / SHARD for g in gradient], loss / SHARD


class RankGroup:
    """The ranks of one attempt. Vectors are lists of VECTOR floats."""

    def __init__(self, settings: TrainerSettings) -> None:
        self._settings = settings
        if settings.rank == 0:
            self._peers = self._accept_peers()
        else:
            self._peers = [self._join_master()]

    def mean(self, vector: list[float]) -> list[float]:
        """All-reduce: return the mean of all ranks' vectors. The sum is in rank order, so it is reproducible."""
        if self._settings.rank != 0:
            self._send(self._peers[0], vector)
            return self._receive(self._peers[0])
        total = list(vector)
        for peer in self._peers:
            total = [a + b for a, b in zip(total, self._receive(peer), strict=True)]
        return self._to_all([value / self._settings.world_size for value in total])

    def broadcast(self, vector: list[float]) -> list[float]:
        """Return rank 0's vector on every rank."""
        return self._to_all(vector) if self._settings.rank == 0 else self._receive(self._peers[0])

    def _to_all(self, vector: list[float]) -> list[float]:
        for peer in self._peers:
            self._send(peer, vector)
        return vector

    def _accept_peers(self) -> list[socket.socket]:
        settings, peers = self._settings, dict[int, socket.socket]()
        with socket.create_server((settings.master_addr, settings.master_port)) as server:
            deadline = time.monotonic() + settings.rendezvous_timeout_s
            while len(peers) < settings.world_size - 1:
                server.settimeout(max(RETRY_S, deadline - time.monotonic()))
                connection, _ = server.accept()
                connection.settimeout(settings.collective_timeout_s)
                attempt_id, _, rank = self._read(connection, 64).decode().strip().partition(" ")
                if attempt_id == settings.attempt_id:  # a process of an earlier attempt is no member of this group
                    peers[int(rank)] = connection
                else:
                    connection.close()
        return [peers[rank] for rank in sorted(peers)]

    def _join_master(self) -> socket.socket:
        settings, deadline = self._settings, time.monotonic() + self._settings.rendezvous_timeout_s
        while True:
            try:
                connection = socket.create_connection((settings.master_addr, settings.master_port), timeout=5)
                break
            except OSError:  # rank 0 is not listening yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)
        connection.settimeout(settings.collective_timeout_s)
        connection.sendall(f"{settings.attempt_id} {settings.rank}".ljust(64).encode())
        return connection

    def _send(self, peer: socket.socket, vector: list[float]) -> None:
        try:
            peer.sendall(struct.pack(f"!{len(vector)}d", *vector))
        except OSError:
            self._hang()

    def _receive(self, peer: socket.socket) -> list[float]:
        return list(struct.unpack(f"!{VECTOR}d", self._read(peer, 8 * VECTOR)))

    def _read(self, peer: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = peer.recv(size - len(data))
            except TimeoutError:
                raise CollectiveTimeout("a peer is silent") from None
            except OSError:
                part = b""
            if not part:
                self._hang()
            data += part
        return data

    def _hang(self) -> None:
        """Wait for the timeout, as NCCL does: its collective does not notice a closed connection."""
        wait_s = self._settings.collective_timeout_s
        say(f"rank {self._settings.rank} waits in all-reduce: a peer is gone, timeout in {wait_s:g} s")
        time.sleep(wait_s)
        raise CollectiveTimeout("a peer is gone")


def say(line: str) -> None:
    """Print one line at once, without a buffer."""
    print(line, flush=True)


def train(settings: TrainerSettings, group: RankGroup, pause: Callable[[float], None] = time.sleep) -> Checkpoint:
    """Train from the last checkpoint to `total_steps`. Returns the final model, which is the same on every rank."""
    start = Checkpoint.load(settings.checkpoint)
    *weights, began_with, _ = group.broadcast([*start.weights, float(start.step), 0.0])
    first = int(began_with)
    if first:
        say(f"resumed from step {first}")
    for step in range(first + 1, settings.total_steps + 1):
        began = time.monotonic()
        gradient, loss = shard_gradient(weights, settings.rank, step)
        is_notified = settings.rank == 0 and training.receive_suspend_command()
        *gradient, loss, suspend = group.mean([*gradient, loss, float(is_notified)])
        weights = [w - LEARNING_RATE * g for w, g in zip(weights, gradient, strict=True)]
        say(f"step {step} loss {loss:.6f}")
        is_due = step % settings.checkpoint_every == 0 or step == settings.total_steps or suspend > 0
        if settings.rank == 0 and is_due:
            Checkpoint(step, weights).save(settings.checkpoint)
        if suspend > 0:
            leave_suspended(group, step)
        pause(max(0.0, settings.step_s - (time.monotonic() - began)))
    return Checkpoint(settings.total_steps, weights)


def leave_suspended(group: RankGroup, step: int) -> None:
    """End the rank after rank 0 has saved. The wait is needed because the first exit may end the other ranks."""
    group.mean([0.0] * VECTOR)
    say(f"suspended after step {step}")
    training.go_suspend()


def stop_on_sigterm() -> None:
    """Make SIGTERM end the rank at once. A relaunch then starts from the last checkpoint."""

    def leave(_signal: int, _frame: FrameType | None) -> None:
        say("stopped by SIGTERM")
        os._exit(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, leave)


def main() -> int:
    """Train with the settings of the environment. Returns the exit code (see the module's docstring)."""
    stop_on_sigterm()
    settings = TrainerSettings.from_env(os.environ)
    say(f"rank {settings.rank} of {settings.world_size}, {settings.attempt_id}")
    try:
        trained = train(settings, RankGroup(settings))
    except CollectiveTimeout as timeout:
        say(f"rank {settings.rank} aborts: collective timed out, {timeout}")
        return EXIT_ABORTED
    say(f"trained to step {trained.step}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
