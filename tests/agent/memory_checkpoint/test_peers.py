"""The connection between two processes of a job: who may ask, what is accepted, and what a stranger learns."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_recovery_run.memory_checkpoint import channel, peers
from gpu_recovery_run.memory_checkpoint.channel import connect
from gpu_recovery_run.memory_checkpoint.errors import PeerRefused
from gpu_recovery_run.memory_checkpoint.folder import MemoryFolder, read_files
from gpu_recovery_run.memory_checkpoint.generations import Generation, generation_of, holders, next_session, ring

TOKEN, RUN = b"t" * 32, (1, "0123abcd")
GENERATION = Generation(1, 10, 2, "0123abcd")
CONTENT = os.urandom(200_000)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[MemoryFolder, MemoryFolder]:
    """The memory of two instances. The first has the shard of rank 0."""
    own, other = (MemoryFolder(tmp_path / name, "job") for name in ("own", "other"))
    draft = own.draft(GENERATION, 0)
    draft.mkdir(parents=True)
    (draft / "state.pickle").write_bytes(CONTENT)
    own.seal(draft, GENERATION, 0)
    return own, other


@pytest.fixture
def server(folders: tuple[MemoryFolder, MemoryFolder]) -> Iterator[peers.PeerServer]:
    """The second instance, which keeps the copy of rank 0."""
    found = peers.PeerServer("127.0.0.1", TOKEN, folders[1], RUN, [0])
    yield found
    found.close()


def test_a_copy_is_kept_sent_back_and_read_in_ranges(
    folders: tuple[MemoryFolder, MemoryFolder], server: peers.PeerServer
) -> None:
    """The three requests, with the same bytes at the end."""
    own, other = folders
    peers.put(server.address, TOKEN, own, GENERATION, 0)
    assert other.is_intact(GENERATION, 0)
    own.remove(GENERATION)
    peers.get(server.address, TOKEN, own, GENERATION, 0)
    assert (own.shard(GENERATION, 0) / "state.pickle").read_bytes() == CONTENT
    with peers.open_remote(server.address, TOKEN, GENERATION, 0, "state.pickle") as file:
        assert file.seek(-100, os.SEEK_END) == len(CONTENT) - 100 and file.read() == CONTENT[-100:]
        assert file.seek(5) == 5 and file.read(10) == CONTENT[5:15]
        file.seek(0)
        assert file.read() == CONTENT


def test_without_the_token_nothing_is_read_and_nothing_is_written(
    folders: tuple[MemoryFolder, MemoryFolder], server: peers.PeerServer
) -> None:
    """A process of another job has a token of its own."""
    own, other = folders
    with pytest.raises(PeerRefused):
        peers.put(server.address, b"u" * 32, own, GENERATION, 0)
    assert other.inventory() == []


def test_a_server_without_the_token_gets_nothing(folders: tuple[MemoryFolder, MemoryFolder]) -> None:
    """Another program listens at the port of a process that has ended. It sends back what it gets."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = socket.create_connection(listener.getsockname())
        stranger, _ = listener.accept()
        with client, stranger:
            stranger.sendall(bytes(64))
            with pytest.raises(PeerRefused, match="another token"):
                channel.Channel(client, TOKEN, is_client=True)
            assert TOKEN not in stranger.recv(1000)


def test_a_stranger_that_answers_the_challenge_with_itself_is_refused(server: peers.PeerServer) -> None:
    """A reflected proof is the proof of the other side, so it does not fit."""
    with socket.create_connection(server.address) as stranger:
        stranger.settimeout(10)
        challenge = stranger.recv(32)
        stranger.sendall(challenge + challenge)
        assert stranger.recv(100) == b""


def test_a_message_that_was_changed_on_its_way_is_refused() -> None:
    """The content of a file is named by its SHA-256 in the message."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = object.__new__(channel.Channel)
        made._socket, made._names, made._key, made._sent, made._received = ours, (b"client", b"server"), TOKEN, 0, 0
        theirs.sendall(struct.pack(">I", 2) + b"{}" + bytes(32))
        with pytest.raises(PeerRefused, match="changed on its way"):
            made.receive()
        theirs.sendall(struct.pack(">I", channel.MESSAGE_MAX + 1))
        with pytest.raises(PeerRefused, match="a message of"):
            made.receive()


@pytest.mark.parametrize(
    ("generation", "shard", "error"),
    [
        (GENERATION._replace(nonce="ffffffff"), 0, "another run"),
        (GENERATION._replace(session=2), 0, "another run"),
        (GENERATION, 1, "belongs to another rank"),
    ],
)
def test_a_copy_that_belongs_elsewhere_is_refused(
    folders: tuple[MemoryFolder, MemoryFolder],
    server: peers.PeerServer,
    generation: Generation,
    shard: int,
    error: str,
) -> None:
    """An attempt that has not ended yet cannot write into the memory of the next one."""
    with connect(server.address, TOKEN) as made:
        made.send({"do": "put", "generation": generation.name, "shard": shard, "files": {"state": (1, "x")}})
        with pytest.raises(PeerRefused, match=error):
            made.receive()
    assert folders[1].inventory() == []


@pytest.mark.parametrize(
    "request_",
    [
        {"do": "read", "generation": GENERATION.name, "shard": 0, "file": "../../.lock", "offset": 0, "size": 9},
        {"do": "read", "generation": GENERATION.name, "shard": "0/../..", "file": "state", "offset": 0, "size": 9},
        {"do": "get", "generation": "../other", "shard": 0},
        {"do": "get", "generation": GENERATION.name, "shard": 7},
        {"do": "put", "generation": GENERATION.name, "shard": 0, "files": {"../x": (1, "x")}},
        {"do": "put", "generation": GENERATION.name, "shard": 0, "files": {}},
        {"do": "put", "generation": GENERATION.name, "shard": 0, "files": {"x": (-1, "x")}},
        {"do": "remove", "generation": GENERATION.name, "shard": 0},
        {},
    ],
)
def test_a_request_that_names_no_shard_is_refused(server: peers.PeerServer, request_: dict[str, object]) -> None:
    """No request leads out of the folder of the job."""
    with connect(server.address, TOKEN) as made:
        made.send(request_)
        with pytest.raises(PeerRefused):
            made.receive()


def test_a_copy_with_other_bytes_than_its_manifest_says_is_not_kept(
    folders: tuple[MemoryFolder, MemoryFolder], server: peers.PeerServer
) -> None:
    """The shard was corrupted between its manifest and the copy."""
    path = folders[0].shard(GENERATION, 0) / "state.pickle"
    path.write_bytes(bytes(len(CONTENT)))
    with pytest.raises(PeerRefused, match="corrupt"):
        peers.put(server.address, TOKEN, folders[0], GENERATION, 0)
    assert folders[1].inventory() == []


def test_the_connections_of_strangers_are_bounded(server: peers.PeerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits HANDSHAKE_S at most. With all places taken, further ones are closed at once."""
    server._slots = peers.threading.BoundedSemaphore(1)
    with socket.create_connection(server.address) as first, socket.create_connection(server.address) as second:
        assert len(first.recv(100)) == 32
        assert second.recv(100) == b""


def test_the_ring_goes_from_instance_to_instance() -> None:
    """Processes keep their local place; an instance with fewer processes keeps several copies."""
    assert ring([0, 1, 2]) == [1, 2, 0]
    assert ring([0, 0, 1, 1, 2, 2]) == [2, 3, 4, 5, 0, 1]
    assert ring([0, 0, 1]) == [2, 2, 0]
    assert ring([5, 3]) == [1, 0]
    assert ring([0, 0]) == [None, None] and ring([0]) == [None]


def test_only_generations_with_all_shards_of_this_world_count() -> None:
    """A shard may be seen by several ranks, and a name that is no generation by any."""
    two, wide = Generation(1, 5, 2, "00000000"), Generation(1, 9, 3, "00000000")
    half = two._replace(step=6)
    seen = [[(two.name, 0), (wide.name, 0), ("lost+found", 1)], [(two.name, 0), (two.name, 1), (half.name, 1)]]
    assert holders(seen, 2, -1) == {two: {0: [0, 1], 1: [1]}}
    assert holders(seen, 2, 5) == {}


def test_names_of_generations_are_read_back() -> None:
    """Also of a step with more digits than usual."""
    for each in (GENERATION, Generation(1_000_000, 10**13, 16384, "ffffffff")):
        assert generation_of(each.name) == each
    assert generation_of(".lock") is None
    assert next_session([GENERATION._replace(session=7).name, "x"], attempt=3) == 8
    assert next_session([], attempt=3) == 3


@pytest.mark.parametrize("manifest", [None, [], {}, {"files": []}, {"files": {"a": 1}}, {"files": {"a": [True, "x"]}}])
def test_what_is_no_manifest_is_refused(manifest: object) -> None:
    """A manifest comes from a file or from a peer."""
    with pytest.raises(ValueError, match="manifest"):
        read_files(manifest)
