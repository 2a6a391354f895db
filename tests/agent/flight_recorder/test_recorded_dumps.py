"""Dumps that PyTorch itself wrote: two processes over gloo on a CPU, and the second does not join the last collective.

PyTorch 2.14.1 wrote them with TORCH_FR_BUFFER_SIZE=200, by `_dump_fr_trace(True, False)` after three times `all_reduce`
and a `broadcast` of both processes and an `all_reduce` of the first alone. Gloo has no CUDA events, so its entries stay
`scheduled`; `retired` says that they have ended, also where `pg_status` does not count it yet. Its `pg_config` has one
entry without a name, which belongs to the group that was made last.
"""

from __future__ import annotations

from pathlib import Path

from gpu_recovery_agent.flight_recorder.dump import read_dump
from gpu_recovery_client.cli.flight_folder import diagnose_folder

FOLDER = Path(__file__).parent / "gloo_2_14"


def test_an_operation_of_gloo_has_ended_when_it_is_retired() -> None:
    """The first process waits in its fifth operation, not in the fourth, which both have finished."""
    first, second = (read_dump((FOLDER / f"rank_{rank}.pickle").read_bytes()).groups for rank in (0, 1))
    (waiting,) = [(group.name, group.enqueued, group.completed, group.op) for group in first if group.is_waiting]
    assert waiting == ("0", 5, 4, "all_reduce of 1024 Float")
    assert [(group.name, group.enqueued, group.completed) for group in second] == [("0", 4, 4)]


def test_a_group_without_a_name_has_members_of_some_other_group() -> None:
    """They would be taken for the members of a group that no operation names."""
    assert [group.members for group in read_dump((FOLDER / "rank_0.pickle").read_bytes()).groups] == [()]


def test_the_process_that_is_missing_is_named() -> None:
    """The whole way, as `gpu-recovery diagnose` goes it."""
    page = diagnose_folder(FOLDER)["page"]["en"]
    assert "Where: rank 1" in page and "WORKER_HANG" in page
