"""Counters of the bytes that the instance moves: RDMA adapters (EFA), Ethernet adapters and disks.

A thread reads them, because a counter of an RDMA adapter is asked from the adapter, which may not answer. Then the
bytes are unknown, and the heartbeat goes on.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HARDWARE = ("rx_bytes", "tx_bytes", "rdma_read_bytes", "rdma_write_bytes", "rdma_write_recv_bytes")
"""Counters of EFA below `hw_counters`. An adapter without RDMA lacks the last three."""
WORDS = ("port_rcv_data", "port_xmit_data")
"""Counters of InfiniBand below `counters`, in words of four bytes. They count where `hw_counters` has no bytes."""
WORD_BYTES, SECTOR_BYTES = 4, 512
PORTS_MAX, ADAPTERS_MAX = 64, 64
"""Ports and Ethernet adapters that are read."""
WAIT_S = 0.2
"""Seconds that a heartbeat waits for the counters."""
PARTITION = re.compile(r"p?[0-9]+")
"""What the name of a partition has after that of its disk."""


class HostCounters(NamedTuple):
    """Bytes since the boot: of the RDMA adapters, and of Ethernet adapters and disks together. None is unknown."""

    fabric: int | None
    traffic: int | None


UNKNOWN = HostCounters(None, None)


def read_counters(host_sys: Path, host_proc: Path) -> HostCounters:
    """Return the counters now.

    Args:
        host_sys: the /sys of the host.
        host_proc: the /proc of the host.
    """
    ports = sorted(host_sys.glob("class/infiniband/*/ports/*"))[:PORTS_MAX]
    of_ports = [_port_bytes(port) for port in ports]
    known = [count for count in of_ports if count is not None]
    network, disks = _network_bytes(host_sys), _disk_bytes(host_proc)
    return HostCounters(
        sum(known) if known and len(known) == len(of_ports) else None,
        None if network is None or disks is None else network + disks,
    )


class CounterReader:
    """Reads the counters in a thread, for at most `WAIT_S`."""

    def __init__(self, host_sys: Path, host_proc: Path) -> None:
        self._host_sys, self._host_proc = host_sys, host_proc
        self._thread: threading.Thread | None = None

    def read(self) -> HostCounters:
        """Return the counters. All is unknown without an answer, and while an earlier question has none."""
        if self._thread is not None and self._thread.is_alive():
            return UNKNOWN
        answers: list[HostCounters] = []
        self._thread = threading.Thread(target=self._answer, args=(answers,), daemon=True)
        self._thread.start()
        self._thread.join(WAIT_S)
        return answers[0] if answers else UNKNOWN

    def _answer(self, answers: list[HostCounters]) -> None:
        answers.append(read_counters(self._host_sys, self._host_proc))


def _port_bytes(port: Path) -> int | None:
    hardware = list(_values(port / "hw_counters", HARDWARE))
    if hardware:
        return sum(hardware)
    words = list(_values(port / "counters", WORDS))
    return WORD_BYTES * sum(words) if words else None


def _network_bytes(host_sys: Path) -> int | None:
    """Return the bytes of the adapters with a device. Loopback and bridges have none."""
    adapters = sorted(path.parent for path in host_sys.glob("class/net/*/device"))[:ADAPTERS_MAX]
    counts = [count for adapter in adapters for count in _values(adapter / "statistics", ("rx_bytes", "tx_bytes"))]
    return sum(counts) if counts else None


def _disk_bytes(host_proc: Path) -> int | None:
    """Return the bytes that disks have read and written; partitions and stacked devices are left out."""
    try:
        lines = (host_proc / "diskstats").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    sectors, disks = 0, set[str]()
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or not (fields[5].isdigit() and fields[9].isdigit()):
            continue
        name = fields[2]
        if name.startswith(("loop", "ram", "dm-", "md", "zram")) or _is_partition(name, disks):
            continue
        disks.add(name)
        sectors += int(fields[5]) + int(fields[9])
    return SECTOR_BYTES * sectors


def _is_partition(name: str, disks: set[str]) -> bool:
    """Return whether the name is that of a listed disk with a number. The kernel lists a disk before its partitions."""
    return any(name.startswith(disk) and PARTITION.fullmatch(name[len(disk) :]) for disk in disks)


def _values(folder: Path, names: tuple[str, ...]) -> Iterator[int]:
    for name in names:
        with suppress(OSError, ValueError):  # a counter that this adapter does not have
            yield int((folder / name).read_text(encoding="ascii", errors="replace"))
