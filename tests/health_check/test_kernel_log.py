"""The kernel's log is read whole, without waiting, and its times are those of the wall."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from pathlib import Path

import pytest

from health_check import kernel_log
from health_check.kernel_log import KernelMessage, parse, read
from tests.health_check.examinations import BOOTED_AT


def test_a_record_has_the_time_of_the_boot_and_its_own() -> None:
    """`/dev/kmsg` counts microseconds, `dmesg` writes seconds; what belongs to a record is not one."""
    text = "4,1,61500000,-;NVRM: one\n SUBSYSTEM=pci\n DEVICE=+pci:0000:10:00.0\n[   62.25] NVRM: two\nNVRM: three\n\n"
    assert parse(text, BOOTED_AT) == (
        KernelMessage(BOOTED_AT + timedelta(seconds=61.5), "NVRM: one"),
        KernelMessage(BOOTED_AT + timedelta(seconds=62.25), "NVRM: two"),
        KernelMessage(None, "NVRM: three"),
    )
    assert [message.at for message in parse(text, None)] == [None, None, None]


def test_flags_and_further_fields_of_a_record_are_not_its_text() -> None:
    """Later kernels add the caller after the flags; a text may hold a semicolon and escaped line feeds."""
    assert parse("6,339,5140900,c,caller=T1;a; b\\x0ac\\x5c", None) == (KernelMessage(None, "a; b\nc\\"),)


def test_a_time_that_no_clock_has_is_no_time() -> None:
    """Sixteen digits of microseconds are more years than a date can hold."""
    later = BOOTED_AT + timedelta(days=2_900_000)
    assert parse("4,1,9999999999999999,-;NVRM: x", later) == (KernelMessage(None, "NVRM: x"),)


def test_a_log_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """It is no pass and no error of the check."""
    log = read(tmp_path / "kmsg", BOOTED_AT)
    assert log.messages == ()
    assert log.unread == f"the kernel log {tmp_path / 'kmsg'} cannot be read: No such file or directory"
    assert read(tmp_path, BOOTED_AT).unread


def test_the_end_of_the_log_is_not_waited_for(tmp_path: Path) -> None:
    """A device that has nothing more to say answers "try again": here a pipe that somebody still writes to."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        os.write(writer, b"4,1,1000000,-;NVRM: one\n")
        assert [message.text for message in read(path, None).messages] == ["NVRM: one"]
    finally:
        os.close(writer)


def test_a_record_that_was_overwritten_meanwhile_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says EPIPE once; any other error is one."""
    path = tmp_path / "kmsg"
    path.touch()
    answers: list[bytes | OSError] = [
        b"4,1,1,-;one\n",
        OSError(errno.EPIPE, "Broken pipe"),
        b"4,9,9,-;nine\n",
        b"",
    ]

    def answer(_descriptor: int, _size: int) -> bytes:
        said = answers.pop(0)
        if isinstance(said, OSError):
            raise said
        return said

    monkeypatch.setattr(os, "read", answer)
    assert [message.text for message in read(path, None).messages] == ["one", "nine"]
    answers[:] = [OSError(errno.EIO, "Input/output error")]
    assert "Input/output error" in str(read(path, None).unread)


def test_of_a_log_without_end_the_newest_part_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest records are those of the failure."""
    monkeypatch.setattr(kernel_log, "LOG_BYTES_MAX", 100)
    path = tmp_path / "kmsg"
    path.write_text("".join(f"4,{n},1,-;{n}\n" for n in range(10_000)))
    texts = [message.text for message in read(path, None).messages]
    assert texts[-1] == "9999"
    assert len(texts) < 12


def test_a_log_whose_beginning_is_gone_says_where_it_begins(tmp_path: Path) -> None:
    """The buffer of the kernel is a ring: what was written before its first record is not known."""
    path = tmp_path / "kmsg"
    path.write_text("4,8000,7200000000,-;NVRM: late\n")
    assert read(path, BOOTED_AT).begins_at == BOOTED_AT + timedelta(hours=2)
    path.write_text("4,0,0,-;Linux version\n4,8000,7200000000,-;NVRM: late\n")
    assert read(path, BOOTED_AT).begins_at is None
