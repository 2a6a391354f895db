"""Every behavioural row of seed 002, from a call of the SDK to the finding, with nothing hand-made on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpu_recovery.core.diagnosis.catalogue import RULES

from tests.execution.live_gang import live_gang
from tests.execution.live_programs import (
    LATE,
    PROMISED,
    Act,
    Cut,
    Peer,
    after,
    all_stand_still,
    answered,
    answers_again,
    below_an_aggregator,
    call,
    dies,
    durations,
    ecc_grows,
    fails_in_torch,
    healthy,
    heartbeat_fails,
    late,
    lies,
    most_in_time,
    names,
    nccl,
    one_after_another,
    operation,
    pattern,
    progressing,
    request,
    slow,
    slow_stage,
    stage,
    then,
    weights,
    with_gpu,
    workers,
)
from tests.execution.live_shared_gpu import (
    OOM,
    event,
    has_no_memory,
    holds_memory,
    is_occupied,
    is_ready,
    leased_by_the_dead,
    lock,
    release_of_another,
    served,
    split_brain,
    stays_by_design,
    unknown_event,
    wrote,
)
from tests.lambdas.conftest import Functions


@dataclass(frozen=True)
class Row:
    """What happens in a gang, and the sentence that a row of the catalogue says of it.

    cause: the cause that the API answers, with the remedy; "" where the row only notes.
    """

    row: str
    act: Act
    sentence: str
    cause: str = ""
    remedy: str = ""
    world: int = 2
    racks: tuple[str, ...] = ()


ROWS = (
    Row(
        "1",
        with_gpu(stage("rollout"), stage("weights_update", "CUDA error: uncorrectable ECC error encountered")),
        "it may have happened in",
        "GPU_FAULT",
        "CHECK",
    ),
    Row(
        "2",
        dies,
        "a consequence, the CUDA context was spoiled",
    ),
    Row("3", ecc_grows("corrected"), "GPU ECC errors increased: 0 -> 7"),
    Row("3+", ecc_grows("uncorrected"), "uncorrected GPU ECC errors increased: 0 -> 7", "GPU_FAULT", "CHECK"),
    Row("4", with_gpu(stage("rollout")), "[rollout] GPU health check passed"),
    Row("4a+", with_gpu(stage("rollout"), torch=lies()), "silent data corruption", "GPU_FAULT", "CHECK"),
    Row("5", with_gpu(stage("rollout"), torch=fails_in_torch("CUDA error: ECC")), "GPU health check failed"),
    Row("6", with_gpu(operation), "[GPU_OP] stage=weights_update, operation=before_upload_weights"),
    Row("7", weights(serialize=1, upload=2, download=3, deserialize=4), "Weight sync profile"),
    Row(
        "8",
        weights(upload=61),
        "slow upload",
    ),
    Row("9", weights(download=61), "slow download"),
    Row("9+", weights(upload=61, download=61), "", "METADATA_SERVER", "RESTART"),
    Row("10a", nccl("NCCL WARN timeout"), "NCCL timeout detected"),
    Row("10b", nccl("NCCL WARN error"), "NCCL error detected"),
    Row("10c", nccl("NET/IB : ibv_open_device failed"), "RDMA failure detected"),
    Row("13", progressing(5, 3), "progress regressed from 5 to 3"),
    Row("13+", then(progressing(1, 2, rank=0), progressing(*[4] * 9)), "no progress beyond 4"),
    Row("15", durations(1.0, 2.0), "Worker 1.0 generate took 2.00s"),
    Row("16", durations(*[1.0] * 7, 9.0), "Detected stragglers: worker_id=7.0", world=8),
    Row("16+", durations(*[1.0] * 7, 9.0), "a straggler", "STRAGGLER", "CHECK", world=8),
    Row(
        "16t+", durations(*[1.0] * 6, 3.0, 3.0), "the last 2 of 8 workers are slow in generate, on 2 instances", world=8
    ),
    Row("16v+", durations(1.0, 1.4, 0.8, 1.2), "calls of generate differ by", world=4),
    Row("17", pattern(names(2, 1), 4, 1), "more than 20 % of workers timed out (2 of 4)", world=4),
    Row(
        "19a",
        pattern(names(2, 2), 2, 2),
        "Global failure: controller network failure or all workers hung",
        "CALLER",
        "RESTART",
    ),
    Row("19b", pattern(("1.0", "1.1"), 2, 2), "Node failure: all workers of node", "NETWORK", "LEAVE_OUT"),
    Row("19b+", pattern(("0.0", "0.1"), 4, 2), "all 2 workers of node", "NETWORK", "LEAVE_OUT", world=4),
    Row(
        "19c",
        pattern(names(2, 2), 4, 2),
        "Rack failure: TOR switch of rack r1",
        "NETWORK",
        "LEAVE_OUT",
        world=4,
        racks=("r1", "r1", "r2", "r2"),
    ),
    Row("19d", pattern(("0.0", "1.0"), 8, 2), "Sporadic failure: 2 workers failed", world=8),
    Row("19e", pattern(tuple(f"{n}.0" for n in range(8)), 8, 2), "Complex failure: 8 workers across 8 nodes", world=8),
    Row("20a", pattern(names(2, 2), 2, 2), "controller network failure or all workers hung"),
    Row("20b", pattern(("1.0",), 2, 2), "some workers failed or local network failure"),
    Row("20c", pattern(("1.0", "1.1"), 2, 2), "network failure"),
    Row("21", pattern(("0.0", "1.0"), 8, 2), "RPC failed: Sporadic failure: 2 workers failed", world=8),
    Row("22", slow("connect", 6.0), "connection slow (6.0 s)"),
    Row("23", late("connect"), "connection timed out", "NETWORK"),
    Row("24", late("send"), "send timed out", "NETWORK"),
    Row("25", slow("response_header", 61.0), "response header slow (61.0 s)"),
    Row("26", late("response_header"), "response header timed out", "WORKER_HANG"),
    Row("27", slow("response_data", 2.0), "data transfer slow"),
    Row("28", late("response_data"), "data receive timed out", "NETWORK"),
    Row("29", late("connect"), "RPC diagnosis for 1.0: connect_time=0.10, failure_stage=connect"),
    Row("30a", late("response_header"), "worker-internal failure"),
    Row("30b", late("connect"), "network failure"),
    Row("32a", answered(408), "answered 408"),
    Row("32b", answered(500), "answered 500"),
    Row("32c", answered(520), "GPU out of memory", "GPU_MEMORY", "FAIL"),
    Row("32d", answered(521), "CUDA error", "GPU_CONTEXT", "CHECK"),
    Row("32e", answered(522), "network slow"),
    Row("32f", answered(523), "worker timeout", "WORKER_HANG"),
    Row("33a", answered(500, server_phase="deserialise"), "data corrupted in transit", "NETWORK"),
    Row("33b", answered(500, server_phase="method"), "the method raised", "WORKER_ERROR"),
    Row("33c", answered(500, MemoryError(), "serialise"), "could not write the result", "HOST_MEMORY"),
    Row("34", then(workers(), call("1.0", "response_header", ConnectionResetError("gone")), after(1)), "TCP keepalive"),
    Row("36", request(fails=True, then_call=False), "ValueError: ValueError: no such tensor", "WORKER_ERROR"),
    Row("36+", request(), "its response was not delivered", "NETWORK"),
    Row("37a", request(stuck=True), "not a network problem"),
    Row("37a+", request(stuck=True), "did not complete it", "WORKER_HANG"),
    Row("37b", request(known=False), "no telemetry"),
    Row("39a", healthy(free=0.5e9), "GPU memory low"),
    Row("39b", healthy(busy=99), "CPU overload"),
    Row("40a", then(healthy(rank=0), call("1.0", "response_header", LATE), after(1)), "never reported health"),
    Row("40b", then(healthy(passes=70), call("1.0", "response_header", LATE), after(1)), "no report of the worker for"),
    Row(
        "40c",
        then(healthy(free=0.05e9), call("1.0", "response_header", LATE), after(1)),
        "worker GPU OOM",
        "GPU_MEMORY",
    ),
    Row("40d", then(healthy(busy=99), call("1.0", "response_header", LATE), after(1)), "worker CPU overload"),
    Row("40e", then(healthy(), call("1.0", "response_header", LATE), after(1)), "worker health normal"),
    Row("41", event(Peer((200, {"gpu_state": "busy"}))), "No train_end was ever sent"),
    Row(
        "43",
        event(
            Peer(
                posted=Cut(),
            ),
            passes=601,
        ),
        "Event not delivered",
        "EVENT_UNDELIVERED",
        "RESTART",
    ),
    Row("43+", event(Peer(posted=TimeoutError("600 s"))), "Event not delivered", "EVENT_UNDELIVERED", "RESTART"),
    Row("43a", event(Peer(Cut()), passes=601), "Event delivered but not ACKed", "EVENT_UNPROCESSED", "RESTART"),
    Row("43a+", event(Peer((404, {}))), "Event delivered but not ACKed", "EVENT_UNPROCESSED", "RESTART"),
    Row("43b", event(Peer((200, {"gpu_state": "busy"}))), "GPU still occupied", "GPU_NOT_RELEASED", "RELEASE"),
    Row("44", event(Peer((200, {"state": "gpu_ready"})), waits=True), "Event rollout_start confirmed, GPU ready"),
    Row("44a", event(Peer((200, {"state": "gpu_busy"})), waits=True), "GPU still busy"),
    Row(
        "44b",
        event(Peer((200, {"state": "error", "error": "no memory"})), waits=True),
        "GPU switch failed",
        "EVENT_UNPROCESSED",
        "RESTART",
    ),
    Row("44c", event(Peer((200, {"state": "processing"})), waits=True), "Event rollout_start ACK timeout"),
    Row("45", then(event(Peer((404, {}))), wrote(PROMISED)), "The log claims success for rollout_start"),
    Row(
        "46",
        then(event(Peer((404, {}))), stage("rollout", OOM)),
        "The OOM is misleading: rollout_start was not acknowledged",
        "EVENT_UNPROCESSED",
        "RESTART",
    ),
    Row(
        "46a",
        holds_memory(fails=True),
        "The OOM is misleading: train still held 40000 MB",
        "GPU_NOT_RELEASED",
        "RELEASE",
    ),
    Row("46b", stage("rollout", OOM), "[rollout] RuntimeError: CUDA out of memory", "GPU_MEMORY", "FAIL"),
    Row("47", lock(), "GPU locked by train"),
    Row("47a", lock(), "GPU locked by train, waiting"),
    Row("47b", lock(), "Failed to acquire GPU for rollout"),
    Row("50", lock(), "holder train has not released", "LOCK_HELD", "RELEASE"),
    Row("50a+", lock(ends=True), "Holder train has ended", "LOCK_HELD", "RELEASE"),
    Row("50b+", lock(silent_s=100), "Holder train of the GPU lock last reported"),
    Row("51", holds_memory(fails=False), "GPU occupied by 2 processes, total memory: 42000 MB"),
    Row("52", holds_memory(fails=False), "GPU leak detected!"),
    Row("52+", holds_memory(fails=False), "train still holds 40000 MB"),
    Row("12", heartbeat_fails, "heartbeat failed → network delay", "NETWORK"),
    Row("14", below_an_aggregator("aggregator-1", "1.0", "1.1"), "aggregator-1: the fault is controller ↔ node"),
    Row("14", below_an_aggregator("1.0"), "1.0: the fault is node ↔ worker"),
    Row("17", most_in_time, "more than 20 % of workers timed out (2 of 4)", world=4),
    Row(
        "34r",
        then(workers(), call("1.0", "connect", ConnectionRefusedError("refused")), after(1)),
        "no process listens there",
        "WORKER_CRASH",
    ),
    Row("43a+", served(has_no_memory), "Event delivered but not ACKed", "EVENT_UNPROCESSED", "RESTART"),
    Row("43b", served(is_occupied), "GPU still occupied", "GPU_NOT_RELEASED", "RELEASE"),
    Row("44", served(is_ready), "Event rollout_start confirmed, GPU ready"),
    Row("44b", served(has_no_memory, waits=True), "GPU switch failed: RuntimeError: no memory"),
    Row("44d", unknown_event, "Invalid event type: rollout"),
    Row("48", release_of_another, "GPU owned by train, cannot release"),
    Row("50a+", leased_by_the_dead, "Holder train has ended", "LOCK_HELD", "RELEASE"),
    Row("50c+", split_brain, "Split brain: train acts on the GPU lock with token 1, but rollout was given 2"),
    Row("5+", with_gpu(stage("rollout"), torch=fails_in_torch("CUDA error: uncorrectable ECC")), "the probe of GPU"),
    Row("10a+", nccl("Watchdog caught collective operation timeout: WorkNCCL"), "timed out in a collective"),
    Row("10b+", nccl("NET/IB : Got completion from peer 10.0.0.2<41> with status=12"), "lost its peer or the way"),
    Row("10c+", nccl("NET/IB : mlx5_0 Got async event : port error"), "RDMA fault"),
    Row("10m+", nccl("NET/IB : ibv_reg_mr failed: Cannot allocate memory"), "a limit on locked memory"),
    Row("13j+", all_stand_still, "all 2 workers stand still at 4"),
    Row("16n", durations(1.0, 2.0), "not decidable with 2 workers"),
    Row("16s+", slow_stage, "stage 1 is slow in forward: 2 workers on 2 instances", world=4),
    Row("19a+", pattern(names(2, 2), 2, 2), "all 4 workers failed, on 2 instances", "CALLER", "RESTART"),
    Row("19c+", pattern(names(2, 2), 4, 2), "4 of 4 workers of rack r1", world=4, racks=("r1", "r1", "r2", "r2")),
    Row("19d+", pattern(("0.0", "1.0"), 8, 2), "2 workers failed here and there", world=8),
    Row("19e+", pattern(tuple(f"{n}.0" for n in range(8)), 8, 2), "8 workers failed across 8 nodes", world=8),
    Row("19p+", pattern(("1.0", "1.1", "1.2"), 3, 8), "partial node: 3 of 8 workers", world=3),
    Row("27+", slow("response_data", 6.0), "data transfer slow, and it took 6.0 s"),
    Row("33d", answered(500, TypeError("cannot pickle"), "serialise"), "could not write the result: TypeError"),
)


def _ids() -> list[str]:
    """Each case by its row; of several cases of one row, the later ones with a number of their own."""
    seen: Counter[str] = Counter()
    found = []
    for row in ROWS:
        seen[row.row] += 1
        found.append(row.row if seen[row.row] == 1 else f"{row.row}-{seen[row.row]}")
    return found


@pytest.fixture(params=ROWS, ids=_ids())
def row(request: pytest.FixtureRequest) -> Row:
    return request.param


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_row_fires_for_a_live_job(
    row: Row, functions: Functions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence of the row, and the verdict of the API where the row decides."""
    with live_gang(functions, tmp_path, monkeypatch, world=row.world, racks=row.racks) as gang:
        row.act(gang)
        found = gang.found()
        said = [one.english for one in found if one.row == row.row]
        assert said, sorted({one.row for one in found})
        assert any(row.sentence in one for one in said), said
        if row.cause:
            verdict = gang.verdict()
            assert verdict["cause"] == row.cause, verdict["page"]["en"]
            assert not row.remedy or (verdict["remedy"], verdict["decided"]) == (row.remedy, True), verdict["page"][
                "en"
            ]


NOT_OF_A_LIVE_JOB = {"4+"}
"""Rows that say what a reporter does wrong that the SDK does right: a probe that did not wait for the GPU."""
OF_OTHER_FAMILIES = ("log ", "flight", "pair", "exit", "xid", "restart", "silence", "probe", "preflight", "idle-check")
"""Begins of the rows that seed 002 does not have. Their own tests drive them.

Those of the preflight are driven in `test_preflight.py` of `tests/agent/rank`, `tests/core/diagnosis` and
`tests/simulator`: the report of the wrapper, the rules, and what follows for the job.
"""


def test_every_row_of_the_seed_is_driven() -> None:
    """A rule that is added without a live path to it is missed here."""
    of_seed = {rule.row for rule in RULES if not rule.row.startswith(OF_OTHER_FAMILIES)}
    assert of_seed - {row.row for row in ROWS} == NOT_OF_A_LIVE_JOB


@dataclass(frozen=True)
class Quiet:
    """What happens, and the rows that must say nothing of it, or the cause that the API must not decide."""

    act: Act
    rows: tuple[str, ...]
    cause: str = ""
    world: int = 2
    racks: tuple[str, ...] = ()


QUIET = {
    "memory that stays by design": Quiet(stays_by_design, ("46a", "52+"), "GPU_NOT_RELEASED"),
    "two of twelve are late": Quiet(one_after_another("0.0", "1.0"), ("17", "19a", "20a", "19a+"), world=12),
    "late once": Quiet(answers_again, ("17", "19a", "19b", "19c", "19d", "19e", "20a", "21"), "CALLER", world=4),
    "no rack is known": Quiet(pattern(names(2, 2), 4, 2), ("19c", "19c+"), world=4),
    "one rack is known": Quiet(pattern(names(2, 2), 4, 2), ("19c", "19c+"), world=4, racks=("r1", "", "", "")),
}


@pytest.fixture(params=QUIET)
def quiet(request: pytest.FixtureRequest) -> Quiet:
    return QUIET[request.param]


def test_a_row_says_nothing_without_its_reason(
    quiet: Quiet, functions: Functions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A healthy program, or one whose places are unknown, reports the same kinds of things."""
    with live_gang(functions, tmp_path, monkeypatch, world=quiet.world, racks=quiet.racks) as gang:
        quiet.act(gang)
        said = [one.english for one in gang.found() if one.row in quiet.rows]
        verdict = gang.verdict()
        assert not said, said
        assert verdict["scope"]["kind"] != "rack"
        assert not (verdict["decided"] and verdict["cause"] == quiet.cause)
