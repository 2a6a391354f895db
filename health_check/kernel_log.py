"""The kernel's log: what the driver wrote about its GPUs since the instance booted, read in a moment.

`/dev/kmsg` gives one record per read and says "try again" where it ends, so it is opened without blocking. A record is
`priority,sequence,microseconds since boot,flags;text`; the lines after it that begin with a blank belong to it and say
nothing of interest. A file with lines of `dmesg` (`[seconds] text`), or without times, is read as well.
"""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

RECORD_BYTES_MAX = 16_384  # the kernel refuses to give a record to a smaller buffer
LOG_BYTES_MAX = 16 * 1024 * 1024
READS_MAX = 500_000
TEXT_MAX = 1_000
BEGINNING = timedelta(minutes=5)
_RECORD = re.compile(r"\d{1,10},\d{1,20},(?P<microseconds>\d{1,16}),[^;\n]{0,200};(?P<text>.*)")
_DMESG = re.compile(r"\[\s*(?P<seconds>\d{1,10})\.(?P<fraction>\d{1,6})\]\s?(?P<text>.*)")
_ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True)
class KernelMessage:
    """One record. `at` is None where the log or the boot has no time."""

    at: datetime | None
    text: str


@dataclass(frozen=True)
class KernelLog:
    """`unread` says why nothing could be read. `begins_at` is set where older records were overwritten already."""

    messages: tuple[KernelMessage, ...] = ()
    unread: str | None = None
    begins_at: datetime | None = None


def read(path: Path, booted_at: datetime | None) -> KernelLog:
    """The whole log, or its newest LOG_BYTES_MAX. Never blocks and never raises for what the log holds."""
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
    """A descriptor at the oldest record that is still there, whose reads never wait. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def drain(descriptor: int) -> bytes:
    """What has been written since the last read, or its newest LOG_BYTES_MAX. Raises OSError."""
    kept = bytearray()
    for _ in range(READS_MAX):
        try:
            record = os.read(descriptor, RECORD_BYTES_MAX)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            continue  # the next record was overwritten before it was read; the one after it is there
        if not record:
            break
        kept += record
        if len(kept) > 2 * LOG_BYTES_MAX:
            del kept[:-LOG_BYTES_MAX]
    return bytes(kept[-LOG_BYTES_MAX:])


def parse(text: str, booted_at: datetime | None) -> tuple[KernelMessage, ...]:
    """The records of a log's text, in their order. Times are the boot's plus the record's."""
    messages: list[KernelMessage] = []
    for line in text.split("\n"):
        if not line.strip() or line.startswith(" "):
            continue
        if found := _RECORD.fullmatch(line):
            since_boot = timedelta(microseconds=int(found["microseconds"]))
        elif found := _DMESG.fullmatch(line):
            since_boot = timedelta(seconds=int(found["seconds"]), microseconds=int(found["fraction"].ljust(6, "0")))
        else:
            messages.append(KernelMessage(None, _plain(line)))
            continue
        messages.append(KernelMessage(_time(booted_at, since_boot), _plain(found["text"])))
    return tuple(messages)


def _time(booted_at: datetime | None, since_boot: timedelta) -> datetime | None:
    try:
        return booted_at + since_boot if booted_at is not None else None
    except OverflowError:
        return None  # a time that no clock has


def _plain(text: str) -> str:
    """The text without the log's escapes: a record of several lines has `\\x0a` between them."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text[: 4 * TEXT_MAX])[:TEXT_MAX]
