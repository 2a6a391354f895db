"""A TCP connection between two processes of a job: both prove the token, and every message is authenticated.

The token never travels: each side sends a random challenge, and answers the other's with an HMAC. A message is JSON
with an HMAC over its place in the conversation. The content of files follows a message as it is; the message has its
SHA-256. So a stranger can neither ask nor write. Nothing is encrypted, as in NCCL: the network must be private.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from .errors import PeerRefused

CHALLENGE, PROOF = 32, 32
MESSAGE_MAX = 1024 * 1024
BLOCK = 1024 * 1024
HANDSHAKE_S, ANSWER_S = 10.0, 120.0
"""Seconds that the other side may take for the handshake, and then for each block and each message."""


class Channel:
    """One side of a connection. Use `connect` or `accept`."""

    def __init__(self, connection: socket.socket, token: bytes, is_client: bool) -> None:
        self._socket = connection
        self._names = (b"client", b"server") if is_client else (b"server", b"client")
        self._sent = self._received = 0
        connection.settimeout(HANDSHAKE_S)
        self._key = self._handshake(token)
        connection.settimeout(ANSWER_S)

    def _handshake(self, token: bytes) -> bytes:
        mine, theirs = self._names
        challenge = os.urandom(CHALLENGE)
        self._socket.sendall(challenge)
        other = self._exactly(CHALLENGE)
        both = challenge + other if mine == b"client" else other + challenge
        if mine == b"client":  # the side that opens the connection proves the token first
            self._socket.sendall(_mac(token, mine, both))
        if not hmac.compare_digest(self._exactly(PROOF), _mac(token, theirs, both)):
            raise PeerRefused("the other side has another token")
        if mine == b"server":
            self._socket.sendall(_mac(token, mine, both))
        return _mac(token, b"messages", both)

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        raw = json.dumps(message).encode()
        mac = _mac(self._key, self._names[0], struct.pack(">Q", self._sent) + raw)
        self._sent += 1
        self._socket.sendall(struct.pack(">I", len(raw)) + raw + mac)

    def receive(self) -> dict[str, Any]:
        """Return the next message. Raises PeerRefused if it is broken, or if it is an error of the other side."""
        (length,) = struct.unpack(">I", self._exactly(4))
        if length > MESSAGE_MAX:
            raise PeerRefused(f"a message of {length} bytes")
        raw, mac = self._exactly(length), self._exactly(PROOF)
        expected = _mac(self._key, self._names[1], struct.pack(">Q", self._received) + raw)
        self._received += 1
        if not hmac.compare_digest(mac, expected):
            raise PeerRefused("a message that was changed on its way")
        message = json.loads(raw)
        if not isinstance(message, dict) or message.get("error"):
            raise PeerRefused(str(message.get("error")) if isinstance(message, dict) else "no message")
        return message

    def send_file(self, file: BinaryIO, offset: int, size: int) -> None:
        """Send `size` bytes of a file. Raises PeerRefused if the file is shorter."""
        if size and self._socket.sendfile(file, offset, size) != size:
            raise PeerRefused("the file is shorter than its manifest says")

    def receive_blocks(self, size: int, write: Callable[[memoryview], object]) -> str:
        """Pass the next `size` bytes to `write`, and return their SHA-256."""
        digest, block = hashlib.sha256(), memoryview(bytearray(min(BLOCK, max(1, size))))
        while size:
            got = self._socket.recv_into(block, min(len(block), size))
            if not got:
                raise PeerRefused("the connection ended")
            digest.update(block[:got])
            write(block[:got])
            size -= got
        return digest.hexdigest()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                raise PeerRefused("the connection ended")
            found += more
        return found


def connect(address: tuple[str, int], token: bytes) -> Channel:
    """Open a connection to a process of the job. Raises OSError, or PeerRefused without the right token."""
    connection = socket.create_connection((address[0], address[1]), timeout=HANDSHAKE_S)
    try:
        return Channel(connection, token, is_client=True)
    except BaseException:
        connection.close()
        raise


def _mac(key: bytes, name: bytes, raw: bytes) -> bytes:
    return hmac.new(key, name + b"\0" + raw, hashlib.sha256).digest()
