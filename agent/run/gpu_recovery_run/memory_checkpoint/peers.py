"""What a process of the job does for the others: keeps copies of their shards, and sends the shards that it has.

A put brings the copy of a shard. Only the peer of the ring takes it, and only of the run that goes on. A get asks for a
whole shard. A read asks for a range of a file, for a tensor that another process had saved.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import socket
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from .channel import Channel, connect
from .errors import PeerRefused
from .folder import MemoryFolder, checked_name, read_files
from .generations import Generation, generation_of

RANGE_MAX = 64 * 1024 * 1024
"""Bytes of one `read`."""
READ_AHEAD = 4 * 1024 * 1024
CONNECTIONS_MAX = 256
"""Connections that are served at the same time. Further ones are closed, and the caller tries another holder."""


class PeerServer:
    """Serves the other processes of the job in threads of its own, until `close`.

    Args:
        host: the address to listen at. The port is free to choose, and is in `address`.
        folder: the memory folder of this instance.
        run: the session and the nonce of this run of the training.
        keeps: the ranks of which this process keeps copies.
    """

    def __init__(
        self, host: str, token: bytes, folder: MemoryFolder, run: tuple[int, str], keeps: Collection[int]
    ) -> None:
        self._token, self._folder, self._run, self._keeps = token, folder, run, keeps
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((host, 0))
        self._listener.listen(128)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        threading.Thread(target=self._listen, name="memory-checkpoint-peers", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except ConnectionAbortedError:
                continue
            except OSError:  # closed
                return
            if self._slots.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with suppress(OSError, PeerRefused, ValueError), connection:
                channel = Channel(connection, self._token, is_client=False)
                while True:
                    request = channel.receive()
                    try:
                        self._answer(channel, request)
                    except (OSError, ValueError, KeyError, TypeError) as error:
                        channel.send({"error": f"{type(error).__name__}: {error}"})
                        return
        finally:
            self._slots.release()

    def _answer(self, channel: Channel, request: dict[str, Any]) -> None:
        generation, shard = generation_of(str(request["generation"])), request["shard"]
        if generation is None or type(shard) is not int:
            raise ValueError("the request names no shard")
        if request["do"] == "put":
            self._put(channel, generation, shard, request)
        elif request["do"] == "get":
            self._get(channel, generation, shard)
        elif request["do"] == "read":
            self._read(channel, generation, shard, request)
        else:
            raise ValueError("an unknown request")

    def _put(self, channel: Channel, generation: Generation, shard: int, request: dict[str, Any]) -> None:
        if (generation.session, generation.nonce) != self._run:
            raise ValueError("the shard is of another run of the training")
        if shard not in self._keeps:
            raise ValueError(f"the copy of rank {shard} belongs to another rank")
        _receive(channel, self._folder, generation, shard, read_files(request))
        channel.send({"kept": True})

    def _get(self, channel: Channel, generation: Generation, shard: int) -> None:
        files = self._folder.files(generation, shard)
        place = self._folder.shard(generation, shard)
        channel.send({"files": files})
        for name, (size, _) in files.items():
            with open(place / name, "rb") as file:
                channel.send_file(file, 0, size)

    def _read(self, channel: Channel, generation: Generation, shard: int, request: dict[str, Any]) -> None:
        path = self._folder.shard(generation, shard) / checked_name(request["file"])
        with open(path, "rb") as file:
            file.seek(int(request["offset"]))
            raw = file.read(min(int(request["size"]), RANGE_MAX))
        channel.send({"size": len(raw), "digest": hashlib.sha256(raw).hexdigest(), "whole": path.stat().st_size})
        channel.send_file(io.BytesIO(raw), 0, len(raw))


def put(address: tuple[str, int], token: bytes, folder: MemoryFolder, generation: Generation, shard: int) -> None:
    """Send the copy of a shard to a peer, and return when the peer holds it. Raises OSError or PeerRefused."""
    files = folder.files(generation, shard)
    place = folder.shard(generation, shard)
    with connect(address, token) as channel:
        channel.send({"do": "put", "generation": generation.name, "shard": shard, "files": files})
        for name, (size, _) in files.items():
            with open(place / name, "rb") as file:
                channel.send_file(file, 0, size)
        channel.receive()


def get(address: tuple[str, int], token: bytes, folder: MemoryFolder, generation: Generation, shard: int) -> None:
    """Fetch a shard from a peer into the memory folder. Raises OSError, ValueError or PeerRefused."""
    with connect(address, token) as channel:
        channel.send({"do": "get", "generation": generation.name, "shard": shard})
        _receive(channel, folder, generation, shard, read_files(channel.receive()))


def _receive(
    channel: Channel,
    folder: MemoryFolder,
    generation: Generation,
    shard: int,
    files: dict[str, tuple[int, str]],
) -> None:
    """Receive the files of a shard. All of them are taken from the connection also if they cannot be written."""
    draft = folder.draft(generation, shard)
    problem: Exception | None = None
    try:
        draft.mkdir(parents=True)
        for name, (size, digest) in files.items():
            writer = _Writer(draft / name)
            if channel.receive_blocks(size, writer.write) != digest:
                problem = problem or ValueError(f"{name} of rank {shard} is corrupt")
            problem = problem or writer.close()
        if problem:
            raise problem
        folder.seal(draft, generation, shard)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


class _Writer:
    """Writes a file, and drops the rest after an error."""

    def __init__(self, path: Path) -> None:
        self._error: OSError | None = None
        self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - `close` is always called

    def write(self, block: memoryview) -> None:
        """Write the whole block."""
        try:
            while block and not self._error:
                block = block[self._file.write(block) :]
        except OSError as error:
            self._error = error

    def close(self) -> OSError | None:
        """Close the file, and return the first error."""
        self._file.close()
        return self._error


class RemoteFile(io.RawIOBase):
    """A file of a shard in the memory of a peer, read in ranges over one connection."""

    def __init__(self, address: tuple[str, int], token: bytes, generation: Generation, shard: int, name: str) -> None:
        super().__init__()
        self._channel = connect(address, token)
        self._request = {"do": "read", "generation": generation.name, "shard": shard, "file": name}
        self._at = 0
        self._size: int | None = None

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from any place."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        if start is None:
            if self._size is None:
                self._range(0)
            start = self._size or 0
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes. Raises PeerRefused if they are not what the peer has sent."""
        raw = self._range(len(buffer))
        buffer[: len(raw)] = raw
        self._at += len(raw)
        return len(raw)

    def close(self) -> None:
        """End the connection."""
        self._channel.close()
        super().close()

    def _range(self, size: int) -> bytes:
        self._channel.send({**self._request, "offset": self._at, "size": min(size, RANGE_MAX)})
        answer = self._channel.receive()
        found = io.BytesIO()
        if self._channel.receive_blocks(int(answer["size"]), found.write) != answer["digest"]:
            raise PeerRefused("a range that was changed on its way")
        self._size = int(answer["whole"])
        return found.getvalue()


def open_remote(
    address: tuple[str, int], token: bytes, generation: Generation, shard: int, name: str
) -> io.BufferedReader:
    """Return a file of a shard in the memory of a peer, with read-ahead."""
    return io.BufferedReader(RemoteFile(address, token, generation, shard, name), READ_AHEAD)
