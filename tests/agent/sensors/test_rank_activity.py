"""What the agent learns of a rank: its history, the counters of its instance, and the time of its last line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_recovery.core.hang_signals import rank_confirms
from gpu_recovery.core.rank_activity import VALUES_MAX, RankActivity, activity_of, activity_text
from gpu_recovery_agent.log import AgentLog
from gpu_recovery_agent.rank.files import RankIdentity
from gpu_recovery_agent.rank.paths import output_path
from gpu_recovery_agent.sensors.activity_history import FIELDS, ActivityHistory, Sample
from gpu_recovery_agent.sensors.host_counters import HostCounters, read_counters
from gpu_recovery_agent.sensors.rank_activity import ActivitySensor
from gpu_recovery_agent.sensors.ranks import LiveRank, RankSensor

from benchmarks.quiet_hangs import recorded_notices
from tests.agent.fake_proc import Proc

TRAINS = Sample(15.0, 97, 692.0, 1.0, 4_000.0, 0.1, False, False)
QUIET = Sample(15.0, 100, 160.0, 1.0, 0.0, 0.1, False, False)


LOADS = Sample(15.0, 5, 140.0, 4.0, 0.0, 300.0, False, False)


def history(*samples: tuple[Sample, int], former: ActivityHistory | None = None) -> ActivityHistory:
    """The history of these samples, each so often."""
    made = ActivityHistory(0.0, former)
    for sample, count in samples:
        for _ in range(count):
            made.add(sample)
    return made


def test_the_values_have_the_order_of_the_server() -> None:
    """The agent imports nothing of the server."""
    assert list(FIELDS) == list(RankActivity.__dataclass_fields__) and len(FIELDS) == VALUES_MAX


def test_a_quiet_rank_is_told_with_its_means_and_what_is_usual() -> None:
    """Ten minutes of training and two quiet minutes."""
    assert history((TRAINS, 19)).values() is None
    assert history((TRAINS, 40)).values() == [0]
    values = history((TRAINS, 40), (QUIET, 8)).values()
    assert values == [120, 300, 0, 100, 160, 692, 1.0, 0.0, 4_000.0, 0.1, 0, 705]


def test_the_sample_in_which_a_hang_begins_does_not_count_as_soon_as_there_is_another() -> None:
    """The rank sleeps from the last fifth of a sample on. The agent confirms the hang after a minute."""
    asleep = QUIET._replace(utilization=0.0, power_w=127.0, cores_per_gpu=0.0)
    begins = asleep._replace(power_w=0.8 * 127 + 0.2 * 692, cores_per_gpu=0.2)
    for quiet, cores in ((0, 0.2), (1, 0.0), (3, 0.0), (8, 0.0)):
        known = history((TRAINS, 40), (begins, 1), (asleep, quiet)).values()
        assert known is not None and (known[0], known[6]) == ((quiet + 1) * 15, cores)
    activity = activity_of({"0": activity_text(history((TRAINS, 40), (begins, 1), (asleep, 3)).values())}, 0)
    assert activity is not None and rank_confirms(activity, 60.0)


@pytest.mark.parametrize(
    "sample",
    [
        QUIET._replace(power_w=0.41 * 692),
        QUIET._replace(line=True),
        QUIET._replace(fabric_mb_s=1_100.0),
    ],
    ids=["power", "line", "fabric"],
)
def test_a_rank_that_shows_any_work_is_not_quiet(sample: Sample) -> None:
    """Power, a line or the bytes of the fabric."""
    assert history((TRAINS, 40), (sample, 2)).values() == [0]


@pytest.mark.parametrize("sample", [QUIET._replace(power_w=None), QUIET._replace(seconds=61.0)], ids=["power", "gap"])
def test_an_unknown_sample_ends_the_quiet_time_and_makes_no_pause(sample: Sample) -> None:
    """NVML did not answer, or the agent was stopped."""
    known = history((TRAINS, 40), (QUIET, 8), (sample, 1))
    assert known.values() is None
    known.add(QUIET)
    values = known.values()
    assert values is not None and values[0] == 15 and known.pause_s == 0


def test_what_was_usual_for_the_process_before_is_usual_as_soon_as_this_one_trains() -> None:
    """A hang may come minutes after a restart. Before, a rank was unknown for five minutes of training."""
    former = history((TRAINS, 40), (QUIET, 6))
    assert history((LOADS, 4), (QUIET, 8), former=former).values() is None
    again = history((LOADS, 4), (TRAINS, 4), (QUIET, 8), former=former)
    assert again.values() == [120, 15, 0, 100, 160, 692, 1.0, 0.0, 4_000.0, 0.1, 0, 225]
    assert again.pause_s == 0


def test_a_warm_up_before_a_long_compilation_makes_no_pause() -> None:
    """Three samples at full power are no training yet, so the ten minutes after them are no pause of it."""
    started = history((TRAINS, 3), (LOADS, 40), (TRAINS, 4), former=history((TRAINS, 40)))
    assert started.pause_s == 0


def test_a_process_that_never_trained_hands_on_what_it_was_told() -> None:
    """It ended while it loaded."""
    former = history((LOADS, 3), former=history((TRAINS, 40)))
    values = history((TRAINS, 4), (QUIET, 2), former=former).values()
    assert values is not None and values[0] == 30 and values[5] == 692


def test_the_longest_pause_is_kept_and_a_quiet_time_changes_nothing_of_what_is_usual() -> None:
    """Two pauses."""
    known = history((TRAINS, 40), (QUIET, 20), (TRAINS, 1), (QUIET, 4), (TRAINS, 1), (QUIET, 1))
    values = known.values()
    assert values is not None and values[2] == 300 and values[5] == 692


def test_nothing_is_quiet_in_a_first_compilation() -> None:
    """The idle GPU itself is usual then, and it has not trained when the steps begin."""
    compiles = TRAINS._replace(power_w=130.0, utilization=3)
    known = history((compiles, 80), (compiles._replace(power_w=127.0), 20))
    assert known.values() == [0]
    for _ in range(20):
        known.add(TRAINS)
    known.add(QUIET)
    values = known.values()
    assert values is not None and (values[1] or 0) <= 195


def test_work_at_low_power_is_no_training() -> None:
    """A job must have trained at its usual power for long enough."""
    values = history((TRAINS, 40), (TRAINS._replace(power_w=400.0), 30), (QUIET, 1)).values()
    assert values is not None and values[1] == 300


@pytest.mark.parametrize(
    ("phases", "traffic_mb_s", "notices"),
    [
        (("training", "training", "training"), 0.0, 0),
        (("training", "training", "checkpoint", "training", "training", "checkpoint"), None, 0),
        (("training", "training", "training", "checkpoint"), 0.0, 0),
        (("training", "training", "training", "evaluation"), 0.0, 0),
        (("training", "training", "training", "spinning kernel"), None, 1),
        (("training", "training", "training", "sleep"), 0.0, 1),
        (("training", "training", "training", "sleep"), None, 0),
    ],
)
def test_the_recorded_course_of_a_real_gpu(phases: tuple[str, ...], traffic_mb_s: float | None, notices: int) -> None:
    """Each recorded row stands for a sample. The traffic was not recorded. Without it a sleep may be a checkpoint."""
    assert recorded_notices(phases, traffic_mb_s) == notices


def counters(folder: Path, files: dict[str, str]) -> HostCounters:
    """The counters of an instance with these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_counters(folder / "sys", folder / "proc")


PORT, NET = "sys/class/infiniband/rdmap0/ports/1", "sys/class/net/ens5"
DISKS = """\
 259 0 nvme0n1 9 0 100 0 9 0 20 0 0 0
 259 1 nvme0n1p1 9 0 100 0 9 0 20 0 0 0
 7 0 loop0 9 0 100 0 9 0 20 0 0 0
 253 0 dm-0 9 0 100 0 9 0 20 0 0 0
 8 0 sda 9 0 1 0 9 0 2 0 0 0
 65 0 sdaa 9 0 4 0 9 0 0 0 0 0
"""
ETHERNET = {f"{NET}/device/uevent": "", f"{NET}/statistics/rx_bytes": "1000\n", f"{NET}/statistics/tx_bytes": "24\n"}


def test_the_counters_of_an_instance(tmp_path: Path) -> None:
    """EFA, Ethernet and disks. Partitions and stacked devices count once, and loopback has no device."""
    files = {f"{PORT}/hw_counters/rx_bytes": "7\n", f"{PORT}/hw_counters/rdma_write_bytes": "5\n", **ETHERNET}
    files |= {"sys/class/net/lo/statistics/rx_bytes": "9999\n", "proc/diskstats": DISKS}
    assert counters(tmp_path, files) == HostCounters(12, 1_024 + 512 * (120 + 3 + 4))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, HostCounters(None, None)),
        ({"proc/diskstats": DISKS}, HostCounters(None, None)),
        (ETHERNET, HostCounters(None, None)),
        ({f"{PORT}/counters/port_rcv_data": "3\n", f"{PORT}/counters/port_xmit_data": "4\n"}, HostCounters(28, None)),
        ({f"{PORT}/hw_counters/lifespan": "12\n"}, HostCounters(None, None)),
        ({f"{PORT}/hw_counters/rx_bytes": "N/A\n", f"{PORT}/state": ""}, HostCounters(None, None)),
    ],
)
def test_a_counter_that_is_missing_is_unknown(tmp_path: Path, files: dict[str, str], expected: HostCounters) -> None:
    """Never zero."""
    assert counters(tmp_path, files) == expected


def gpu(index: int, pid: int | None, energy_mj: int | None, utilization: int | None = 100) -> dict[str, object]:
    """One GPU of a reading."""
    processes = [] if pid is None else [{"pid": pid, "memory": 1}]
    return {"index": index, "utilization": utilization, "energy_mj": energy_mj, "processes": processes}


def test_each_rank_has_the_gpus_of_its_own_processes(tmp_path: Path) -> None:
    """Two ranks on one instance. A GPU whose process has ended stays with its rank, and counts as its work."""
    proc, at = Proc(tmp_path / "proc"), [0.0]
    for pid, parent in ((10, 1), (11, 10), (12, 11), (20, 1), (21, 20)):
        proc.add(pid, pid, parent=parent)
    ranks = [LiveRank(RankIdentity("run", 1, rank), None, pid, pid) for rank, pid in enumerate((10, 20))]
    sensor = ActivitySensor(tmp_path / "ranks", tmp_path / "proc", lambda: HostCounters(0, 0), lambda: at[0])
    for step in range(60):
        at[0] += 15.0
        works = step < 50
        first = gpu(0, 12 if works else None, 15_000 * 700 * min(step, 49) + 15_000 * 100 * max(0, step - 49))
        sensor.sample(ranks, {"gpus": [first, gpu(1, 21, 15_000 * 600 * step)]})
    quiet, busy = (sensor.values(rank) for rank in ranks)
    assert quiet is not None and quiet[0] == 150 and quiet[4:6] == [100, 700] and busy == [0]


@pytest.mark.parametrize("lost", ["energy", "reading"])
def test_a_gpu_that_is_not_read_makes_the_activity_unknown(tmp_path: Path, lost: str) -> None:
    """NVML does not answer, or has no counter of the energy and no power."""
    proc, at = Proc(tmp_path / "proc"), [0.0]
    proc.add(10, 10)
    rank = LiveRank(RankIdentity("run", 1, 0), None, 10, 10)
    sensor = ActivitySensor(tmp_path / "ranks", tmp_path / "proc", lambda: HostCounters(0, 0), lambda: at[0])
    for step in range(40):
        at[0] += 15.0
        sensor.sample([rank], {"gpus": [gpu(0, 10, 15_000 * 700 * step)]})
    assert sensor.values(rank) == [0]
    at[0] += 15.0
    sensor.sample([rank], None if lost == "reading" else {"gpus": [gpu(0, 10, None)]})
    assert sensor.values(rank) is None


def test_the_file_of_the_output_goes_with_the_running_file_of_a_killed_wrapper(tmp_path: Path) -> None:
    """Otherwise each killed rank leaves a file."""
    Proc(tmp_path / "proc")
    folder = tmp_path / "ranks"
    folder.mkdir()
    name = '{"job_id": "run-1", "attempt": 1, "rank": 0, "remote_pid": 77, "start_ticks": 5, "boot_id": "b"}'
    (folder / "100.json").write_text(name)
    output_path(folder, "100").touch()
    RankSensor(folder, tmp_path / "proc", "another boot", AgentLog()).poll()
    assert os.listdir(folder) == []
