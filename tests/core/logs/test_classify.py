"""Which line of a log is the cause: roles, tracebacks, and the traps of what looks like a cause and is none."""

from __future__ import annotations

import pytest
from gpu_recovery.core.logs.classify import classify, first_cause
from gpu_recovery.core.logs.kinds import LineKind, LineRole

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
WATCHDOG = (
    "[E ProcessGroupNCCL.cpp:474] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600123 milliseconds before timing out."
)
PEER = "node1:12:34 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node2<40112>"
KILLED = "Memory cgroup out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:8kB"


def told(*lines: str) -> list[tuple[int, LineKind, LineRole]]:
    """What is found, without the text."""
    return [(one.number, one.kind, one.role) for one in classify(lines).findings]


# -- the cause ---------------------------------------------------------------------------------------------------------


def test_the_first_root_is_the_cause_though_cascades_come_before_it() -> None:
    """The rank that prints first is seldom the one that failed."""
    verdict = classify([WATCHDOG, PEER, ECC, "RuntimeError: CUDA error: device-side assert triggered"]).verdict
    assert verdict is not None
    assert (verdict.number, verdict.kind, verdict.role) == (3, LineKind.HARDWARE_GPU_ECC, LineRole.ROOT)


def test_a_cascade_is_the_cause_where_nothing_else_is() -> None:
    """Somebody has to be looked at."""
    assert classify(["step 4", WATCHDOG]).kind is LineKind.COLLECTIVE_TIMEOUT


def test_a_confirmation_goes_before_a_cascade() -> None:
    """A kill by the kernel is proof, a peer that is gone is none."""
    assert classify([PEER, KILLED]).kind is LineKind.HOST_OOM


def test_a_cascade_never_wins_while_there_is_a_root_on_any_rank() -> None:
    """Ranks are looked at together, the cause is of the rank that has a root."""
    ranks = {0: classify([WATCHDOG]), 1: classify([PEER]), 7: classify(["step 1", ECC])}
    found = first_cause(ranks)
    assert found is not None
    assert (found[0], found[1].kind) == (7, LineKind.HARDWARE_GPU_ECC)
    assert first_cause({0: classify(["step 1"])}) is None


def test_nothing_wrong_has_no_verdict() -> None:
    """A log of a good run accuses nobody."""
    found = classify(["step 1 loss 2.31", "saving checkpoint", ""])
    assert (found.findings, found.verdict, found.kind) == ((), None, LineKind.BENIGN)


def test_a_line_keeps_its_number_and_its_text() -> None:
    """A person goes there."""
    (found,) = classify(["fine", f"[rank3]: {ECC}"]).findings
    assert (found.number, found.line) == (2, f"[rank3]: {ECC}")


# -- what only seems so ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "CUDA kernel errors might be asynchronously reported at some other API call.",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
        "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        "This may be caused by an uncorrectable ECC error.",
        "If CUDA is out of memory, try a smaller batch.",
    ],
)
def test_advice_is_told_as_advice_and_never_the_cause(line: str) -> None:
    """It names causes that did not happen."""
    assert told(line) == [(1, LineKind.BENIGN, LineRole.ADVICE)]
    assert classify([line]).verdict is None


def test_a_hint_does_not_hide_the_error_before_it() -> None:
    """Many errors say in one line what happened and what may be done about it."""
    line = (
        "RuntimeError: DataLoader worker (pid 3) is killed by signal: Bus error. It is possible that shm is too small."
    )
    assert classify([line]).kind is LineKind.SHM_EXHAUSTED


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"[rank1]: NCCL watchdog thread terminated with exception: {ECC}", LineKind.HARDWARE_GPU_ECC),
        (
            "NCCL WARN NET/IB : req 0/1 peer 10.0.0.6<5> collective mismatch error, local 4 remote 6",
            LineKind.COLLECTIVE_MISMATCH,
        ),
        ("container init was OOM-killed (memory limit too low?): unknown", LineKind.HOST_OOM),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", LineKind.CUDA_OOM),
        ("NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory", LineKind.RDMA_MEMLOCK_CONFIG),
        ("OSError: [Errno 12] Cannot allocate memory", LineKind.HOST_OOM),
        ("RuntimeError: unable to write to file </torch_12_34>: No space left on device (28)", LineKind.SHM_EXHAUSTED),
        ("OSError: [Errno 28] No space left on device: '/data/ckpt'", LineKind.STORAGE_FULL),
        ("OSError: [Errno 28] inotify watch limit reached", LineKind.OS_LIMIT),
        (
            "CannotPullContainerError: failed to register layer: write /x: no space left on device",
            LineKind.STORAGE_FULL,
        ),
        ("CannotPullContainerError: manifest for x:1 not found", LineKind.CONTAINER_IMAGE),
        ("loss scale: 4294967296.0 | grad norm: 1.2 | number of nan iterations: 0 |", LineKind.BENIGN),
        ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0", LineKind.BENIGN),
        ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1e-12", LineKind.NUMERICAL_NAN),
        ("loss scale: 1.0 | grad norm: nan | number of nan iterations: 0 |", LineKind.NUMERICAL_NAN),
        ("grad_norm = nan", LineKind.NUMERICAL_NAN),
        ("check_for_nan_in_loss_and_grad = True", LineKind.BENIGN),
        ("NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.", LineKind.BENIGN),
        ("ModuleNotFoundError: No module named 'apex'", LineKind.USER_ERROR_DEPENDENCY),
        ("WARNING trackers: autologging off: No module named 'sklearn.utils.testing'", LineKind.BENIGN),
    ],
)
def test_words_that_several_kinds_share_are_told_apart(line: str, kind: LineKind) -> None:
    """By the subsystem that is named, not by the word."""
    assert classify([line]).kind is kind


def test_a_rank_that_the_launcher_ends_is_a_cascade_and_no_crash() -> None:
    """SIGTERM comes after somebody else has failed."""
    line = "W1122 10:00:00.000 torch/distributed/elastic/api.py:897] Sending process 42 closing signal SIGTERM"
    assert told(line) == [(1, LineKind.NETWORK_PEER_EXIT, LineRole.CASCADE)]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("-9", LineKind.PROCESS_KILLED_UNKNOWN),
        ("-11", LineKind.PROCESS_CRASH),
        ("-6", LineKind.PROCESS_CRASH),
        ("-15", LineKind.NETWORK_PEER_EXIT),
        ("1", LineKind.PROCESS_CRASH),
        ("0", LineKind.BENIGN),
    ],
)
def test_an_exit_code_says_how_a_rank_ended(code: str, kind: LineKind) -> None:
    """In the table of torch elastic as in its one line."""
    assert classify([f"  exitcode  : {code} (pid: 4242)"]).kind is kind
    line = f"E1122 10:00:00.1 7 torch/distributed/elastic/api.py:869] failed (exitcode: {code}) local_rank: 0"
    assert code == "0" or classify([line]).kind is kind


# -- tracebacks --------------------------------------------------------------------------------------------------------

CODE = """Traceback (most recent call last):
  File "train.py", line 7, in <module>
    raise ValueError("CUDA out of memory: No space left on device")
  File "config.py", line 3, in check
    assert loss == nan, "uncorrectable ECC error"
KeyError: 'hidden_size'"""


def test_of_a_traceback_only_its_exception_speaks() -> None:
    """Code that is quoted names errors that did not happen."""
    assert told(*CODE.splitlines()) == [(6, LineKind.USER_ERROR_CONFIG, LineRole.ROOT)]


def test_tracebacks_of_several_ranks_that_are_mixed_are_kept_apart() -> None:
    """Launchers merge the outputs of all ranks line by line."""
    lines = CODE.splitlines()
    mixed = [f"[rank{rank}]: {line}" for line in lines for rank in (0, 1)]
    assert {one.number for one in classify(mixed).findings} == {11, 12}


def test_what_another_rank_writes_does_not_end_a_traceback() -> None:
    """Code that is quoted after it is still quoted."""
    start, frame = CODE.splitlines()[0], '  File "a.py", line 1, in f'
    code, end = '    check("ECC uncorrectable")', "KeyError: 'a'"
    lines = [f"[rank0]: {start}", f"[rank0]: {frame}", "[rank1]: step 5", f"[rank0]: {code}", f"[rank0]: {end}"]
    assert told(*lines) == [(5, LineKind.USER_ERROR_CONFIG, LineRole.ROOT)]


def test_a_log_that_begins_within_a_traceback_is_read_the_same() -> None:
    """The last kilobytes of a log begin anywhere."""
    assert told(*CODE.splitlines()[1:]) == [(5, LineKind.USER_ERROR_CONFIG, LineRole.ROOT)]


@pytest.mark.parametrize(
    "link",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_in_a_chain_what_says_why_goes_before_what_does_not(link: str) -> None:
    """A wrapper's own exception, before or after, knows no more than that something went wrong."""
    start, frame = "Traceback (most recent call last):", '  File "a.py", line 1, in f'
    why, wrapper = "OSError: [Errno 28] No space left on device", "RuntimeError: saving failed"
    for first, second in ((why, wrapper), (wrapper, why)):
        found = classify([start, frame, first, "", link, "", start, frame, second])
        assert found.kind is LineKind.STORAGE_FULL


def test_of_a_chain_that_never_says_why_the_last_exception_is_the_cause() -> None:
    """It is the one that ended the program."""
    start, link = (
        "Traceback (most recent call last):",
        "During handling of the above exception, another exception occurred:",
    )
    found = classify([start, "KeyError: 'a'", link, start, "TypeError: unsupported operand"])
    assert found.verdict is not None
    assert found.verdict.number == 5
