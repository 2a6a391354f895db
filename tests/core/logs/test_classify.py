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


# -- definite statements -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "[2025-01-29 08:52:43 TP5] Using default MoE config. Config file not found at /opt/configs/E=256.json",
        "Config file not found at /opt/config.json. Fallback to the defaults.",
        "INFO tune.py:3 -- No checkpoint found, starting anew",
        "OpenTelemetry is not installed. Metrics and tracing will not be recorded.",
        "Pipeline parallelism is incompatible with overlap schedule.",
        "Failed to import from vllm._C with ModuleNotFoundError(\"No module named 'vllm._C'\")",
        "Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open shared object file",
        "Falling back to the reference kernels: /opt/venv/ops.so: undefined symbol: _ZN2at4_ops",
    ],
)
def test_an_error_of_the_user_needs_an_exception_or_the_word_error(line: str) -> None:
    """Such an error ends a job for good, and programs that run well also lack files and packages."""
    assert told(line) == []


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("FileNotFoundError: config file not found at /opt/config.json", LineKind.USER_ERROR_CONFIG),
        ("2025-05-22 03:33:36 - [ERROR] - config file not found at /opt/config.json", LineKind.USER_ERROR_CONFIG),
        ("train.py: error: unrecognized arguments: --local-rank=4", LineKind.USER_ERROR_CONFIG),
        ("Could not override 'trainer.gpus'.", LineKind.USER_ERROR_CONFIG),
        (
            "        size mismatch for a.weight: copying a param with shape torch.Size([2])",
            LineKind.USER_ERROR_CHECKPOINT,
        ),
        ("ImportError: libmpi.so.40: cannot open shared object file", LineKind.USER_ERROR_DEPENDENCY),
        ("/opt/venv/ops.so: undefined symbol: _ZN2at4_ops", LineKind.USER_ERROR_DEPENDENCY),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", LineKind.USER_ERROR_CONFIG),
    ],
)
def test_an_exception_or_an_error_of_a_launcher_is_definite(line: str, kind: LineKind) -> None:
    """By the class of the exception, by the level, or by a wording that only an error has."""
    assert told(line) == [(1, kind, LineRole.ROOT)]


@pytest.mark.parametrize(
    "line",
    [
        "WARNING:root:CUDA out of memory. Tried to allocate 1.70 GiB (GPU 0; 10.76 GiB total capacity)",
        "2025-06-19 03:03:26,950 INFO worker.py:1 -- no space left on device",
        "ls: cannot access '/opt/nvidia': No such file or directory",
        "wandb: Network error (ReadTimeout), entering retry loop.",
        "(autoscaler +32s) {'CPU': 1.0, 'GPU': 1.0}: 1+ pending tasks/actors",
        "mlx5_core 0000:5e:00.0: Port module event: module 1, Cable unplugged",
        "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#0_Ha#0_Chan#0_DIMM#0 (channel:0 slot:0)",
        "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error",
    ],
)
def test_what_a_program_survives_is_a_warning(line: str) -> None:
    """By its level, or because healthy runs report the same state."""
    assert [role for _, _, role in told(line)] == [LineRole.WARNING]


def test_an_exception_that_the_interpreter_ignores_is_no_cause() -> None:
    """Clean-up code fails at the end of good runs, too."""
    ignored = ["Exception ignored in: <function Tracker.__del__ at 0x7f>", *CODE.splitlines()[:-1]]
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/psm_1'"
    assert told(*ignored, missing) == [(7, LineKind.BENIGN, LineRole.ADVICE)]
    assert classify([*ignored, missing, *CODE.splitlines()]).kind is LineKind.USER_ERROR_CONFIG


@pytest.mark.parametrize("at", range(1, 6))
def test_a_line_of_another_program_does_not_end_a_traceback(at: int) -> None:
    """Programs of one container write into one log."""
    lines = CODE.splitlines()
    lines[at:at] = ["Using default MoE config. Config file not found at /opt/E=256.json", "step 5 loss 2.1"]
    assert told(*lines) == [(8, LineKind.USER_ERROR_CONFIG, LineRole.ROOT)]


def test_a_sentence_before_the_heading_of_a_traceback_is_read() -> None:
    """SGLang writes both into one line. The exception precedes it, because it says why."""
    heading = "[2025-01-24 04:52:54 TP1] Scheduler hit an exception: Traceback (most recent call last):"
    assert told(heading) == [(1, LineKind.PROCESS_CRASH, LineRole.ROOT)]
    found = classify([heading, '  File "a.py", line 1, in f', ECC])
    assert found.verdict is not None
    assert (found.kind, found.verdict.number) == (LineKind.HARDWARE_GPU_ECC, 3)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("unable to place a task. Reason: CannotPullContainerError: pull access denied", LineKind.CONTAINER_IMAGE),
        ("unable to place a task because no container instance met all requirements", LineKind.INSUFFICIENT_RESOURCES),
        ("DockerGoClient: process within container 0123abc died due to OOM", LineKind.HOST_OOM),
        ("System memory low at node with IP 10.0.0.1, exceeds threshold 0.95, killing latest task", LineKind.HOST_OOM),
        ("The node was low on resource: memory. Threshold quantity: 100Mi", LineKind.HOST_OOM),
        ("The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi", LineKind.STORAGE_FULL),
        ("LNet: 2561:0:(o2iblnd_cb.c:3370:kiblnd_check_txs_locked()) Timed out tx: active_txs", LineKind.STORAGE_IO),
        ('{"level":"warn","message":"Instance is going to be interrupted in 2 minutes"}', LineKind.SCHEDULER_PREEMPT),
        ("ERROR 07-04 17:35:16 [core.py:718] EngineCore encountered a fatal error.", LineKind.PROCESS_CRASH),
        ("[F x.cpp:1] Terminating the process, due to ProcessGroupNCCL watchdog hang.", LineKind.COLLECTIVE_TIMEOUT),
        ("Call to recv from 10.22.9.14<33759> failed : Connection reset by peer", LineKind.NETWORK_PEER_EXIT),
        ("NVRM: kgspHealthCheck: GSP RM heartbeat timed out", LineKind.HARDWARE_GPU_RESET),
        ("NVRM: status [NV_ERR_RESET_REQUIRED] (0x0000006E)", LineKind.HARDWARE_GPU_RESET),
        ("uvm encountered global fatal error 0x60, requiring os reboot to recover.", LineKind.HARDWARE_GPU_RESET),
        ("nvidia 0000:3b:00.0: Direct firmware load for nvidia/535/gsp_ga10x.bin failed", LineKind.DRIVER_ENVIRONMENT),
        ("pcieport 0000:40:01.1: AER: Uncorrected (Non-Fatal) error received: 0000:41:00.0", LineKind.NODE_KERNEL),
    ],
)
def test_each_program_is_read_in_the_words_of_its_releases(line: str, kind: LineKind) -> None:
    """The agent of ECS, Ray, kubelet, Lustre, engines, c10d, NCCL without its prefix, the driver."""
    assert classify([line]).kind is kind
