"""The evidence of a failed rank: its wrapper ends once the server has the evidence, or after a while."""

from __future__ import annotations

import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from gpu_recovery_agent.rank.delivery import DELIVERED_WITHIN_S, Delivery
from gpu_recovery_agent.rank.paths import SOCKET
from gpu_recovery_agent.sensors.training_socket import CREDENTIALS, PIPES_MAX, QUEUE_MAX, TrainingSocket

from tests.agent.api import WITHIN_S, Api, Said
from tests.agent.node import Node, wait_until

NOW_S = 1_000.0
REPORT = {"type": "written", "id": "w-1", "job": "run-1", "attempt": 1, "lines": ["x"], "urgent": True}


def path_of(node: Node) -> Path:
    return node.running / SOCKET


def delivered(node: Node, *parts: list[dict[str, object]]) -> Delivery:
    """A delivery in these parts, before its wait."""
    delivery = Delivery(path_of(node))
    for part in parts:
        delivery.send(part)
    return delivery


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_wait_is_over_once_the_server_has_every_part(node: Node, ear: TrainingSocket) -> None:
    """An agent that has only read it may end before it reports."""
    before = descriptors()
    first, second = delivered(node, [REPORT]), delivered(node, [REPORT], [REPORT])
    ear.poll(NOW_S)
    one, *rest = ear.batch()
    ear.acknowledge([one], 0)
    assert first.end(0)
    ear.acknowledge(rest[:1], 0)
    assert not second.end(0)
    ear.acknowledge(rest, 0)
    third = delivered(node, [REPORT])
    ear.poll(NOW_S)
    ear.reject(ear.batch())
    assert third.end(0), "what the server refuses is not waited for"
    assert descriptors() == before


def test_what_is_no_observation_keeps_nobody_waiting(node: Node, ear: TrainingSocket) -> None:
    """Nor what the agent drops, nor the end of the agent."""
    wrong = delivered(node, [{"type": 3}])
    ear.poll(NOW_S)
    assert wrong.end(0)
    dropped = delivered(node, [REPORT])
    for _ in range(QUEUE_MAX // 16):
        delivered(node, [REPORT] * 16).end(0)
        ear.poll(NOW_S)
    assert dropped.end(0)
    last = delivered(node, [REPORT])
    ear.poll(NOW_S)
    ear.close()
    assert last.end(0)


def test_an_agent_of_an_older_release_keeps_nobody_waiting(node: Node) -> None:
    """It takes no descriptor, and the kernel closes the pipe. Without any agent nothing is sent."""
    assert delivered(node, [REPORT]).end(0)
    node.running.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as older:
        older.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        older.bind(str(path_of(node)))
        delivery = delivered(node, [REPORT])
        older.recvmsg(32_769, socket.CMSG_SPACE(CREDENTIALS.size))
        assert delivery.end(0)


def test_the_pipes_that_an_agent_holds_are_bounded(node: Node, ear: TrainingSocket) -> None:
    """Any process may write to the socket, and pass as many descriptors as it likes."""
    before = descriptors()
    deliveries = []
    for _ in range(PIPES_MAX + 1):
        deliveries.append(delivered(node, [REPORT]))
        ear.poll(NOW_S)
    assert [one.end(0) for one in deliveries] == [False] * PIPES_MAX + [True]
    while batch := ear.batch():
        ear.acknowledge(batch, 0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendmsg([b"{}"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, bytes(4 * 50))], 0, str(path_of(node)))
    ear.poll(NOW_S)
    assert descriptors() == before


def test_a_delivery_waits_for_room_in_the_socket(node: Node, ear: TrainingSocket) -> None:
    """Linux keeps ten datagrams, and the processes of the instance send theirs as well."""
    kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
    with suppress(BlockingIOError), socket.socket(socket.AF_UNIX, kind) as others:
        while True:
            others.sendto(b"", str(path_of(node)))
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(delivered, node, [REPORT])

        def has_arrived() -> bool:
            ear.poll(NOW_S)
            return bool(ear.batch())

        wait_until(has_arrived)
        assert not sent.result().end(0)


@pytest.mark.slow
def test_a_failed_rank_ends_after_the_server_has_its_evidence(node: Node, api: Api) -> None:
    """ECS reports the end of the rank then, and the diagnosis that follows finds the evidence."""
    node.running.mkdir()
    node.agent()
    wait_until(path_of(node).exists)
    answers = Event()
    api.lasting = Said(hold=answers)
    rank = node.rank("sh", "-c", "echo no space; exit 3")
    api.until(lambda found: any(one.get("diagnosis") for one in found))
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(0.5)
    answers.set()
    assert rank.wait(WITHIN_S) == 3


@pytest.mark.slow
def test_a_rank_ends_though_its_agent_reports_nothing(node: Node, ear: TrainingSocket) -> None:
    """Before its container would be killed: SIGTERM may come at any moment."""
    rank = node.rank("sh", "-c", "echo no space; exit 3", GPU_RECOVERY_STOP_TIMEOUT_S="3")
    assert rank.wait(DELIVERED_WITHIN_S) == 3
    assert rank.stderr.read().splitlines()[-1].endswith(b"has not passed on the evidence of this rank within 1 s")
