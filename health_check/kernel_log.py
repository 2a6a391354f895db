"""Reads the kernel log: what the driver logged about its GPUs since the boot.

`/dev/kmsg` returns one record per read and "try again" at its end, so it is opened without blocking. A record is
`priority,sequence,microseconds since boot,flags;text`. Lines after it that begin with a blank belong to it and are
skipped. A file with lines of `dmesg` (`[seconds] text`), or without times, is read as well.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

RECORD_BYTES_MAX = 16_384  # the kernel fails a read with a smaller buffer
LOG_BYTES_MAX = 16 * 1024 * 1024
"""Largest number of bytes that are returned, the newest."""
READS_MAX = 500_000
TEXT_MAX = 1_000
BEGINNING = timedelta(minutes=5)
"""A log that begins later than this after the boot has lost records."""
_RECORD = re.compile(r"\d{1,10},\d{1,20},(?P<microseconds>\d{1,16}),[^;\n]{0,200};(?P<text>.*)")
_DMESG = re.compile(r"\[\s*(?P<seconds>\d{1,10})\.(?P<fraction>\d{1,6})\]\s?(?P<text>.*)")
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True)
class KernelMessage:
    """One record. `at` is None if the log or the boot has no time."""

    at: datetime | None
    text: str


@dataclass(frozen=True)
class KernelLog:
    """The log. `unread` says why it could not be read.

    `begins_at` is the time of the first record if that is at least BEGINNING after the boot; None otherwise. Older
    records are then taken to be overwritten.
    """

    messages: tuple[KernelMessage, ...] = ()
    unread: str | None = None
    begins_at: datetime | None = None


def read(path: Path, booted_at: datetime | None) -> KernelLog:
    """Return the whole log, or its newest LOG_BYTES_MAX. Never blocks, and never raises for its content."""
    try:
        raw = _bytes(path)
    except OSError as error:
        return KernelLog(unread=f"the kernel log {path} cannot be read: {error.strerror or error}")
    messages = parse(raw.decode("utf-8", errors="replace"), booted_at)
    first = messages[0].at if messages else None
    if first is None or booted_at is None or first - booted_at < BEGINNING:
        return KernelLog(messages)
    return KernelLog(messages, begins_at=first)


def _bytes(path: Path) -> bytes:
    descriptor = open_log(path)
    try:
        return drain(descriptor)
    finally:
        os.close(descriptor)


def open_log(path: Path) -> int:
    """Return a descriptor at the oldest remaining record, with reads that never block. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def drain(descriptor: int) -> bytes:
    """Return what was written since the last read, or its newest LOG_BYTES_MAX. Raises OSError."""
    content = bytearray()
    for _ in range(READS_MAX):
        try:
            record = os.read(descriptor, RECORD_BYTES_MAX)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            continue  # the next record was overwritten before it was read; read the record after it
        if not record:
            break
        content += record
        if len(content) > 2 * LOG_BYTES_MAX:
            del content[:-LOG_BYTES_MAX]
    return bytes(content[-LOG_BYTES_MAX:])


def parse(text: str, booted_at: datetime | None) -> tuple[KernelMessage, ...]:
    """Return the records of a log in their order. Their times are the boot's time plus the record's."""
    messages: list[KernelMessage] = []
    for line in text.split("\n"):
        if not line.strip() or line.startswith(" "):
            continue
        if match := _RECORD.fullmatch(line):
            since_boot = timedelta(microseconds=int(match["microseconds"]))
        elif match := _DMESG.fullmatch(line):
            since_boot = timedelta(seconds=int(match["seconds"]), microseconds=int(match["fraction"].ljust(6, "0")))
        else:
            messages.append(KernelMessage(None, _plain(line)))
            continue
        messages.append(KernelMessage(_time(booted_at, since_boot), _plain(match["text"])))
    return tuple(messages)


def _time(booted_at: datetime | None, since_boot: timedelta) -> datetime | None:
    try:
        return booted_at + since_boot if booted_at is not None else None
    except OverflowError:
        return None  # a time out of range


def _plain(text: str) -> str:
    """Return the text without the log's escapes: a record of several lines has `\\x0a` between them."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text[: 4 * TEXT_MAX])[:TEXT_MAX]
