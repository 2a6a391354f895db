"""Dumps of the flight recorder: what each field means, in each version and both forms."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.diagnosis.rank_ranges import parsed
from gpu_recovery_agent.flight_recorder import dump as dump_module
from gpu_recovery_agent.flight_recorder.dump import GroupState, read_dump
from gpu_recovery_agent.flight_recorder.dump_files import dump_files, read_file
from gpu_recovery_agent.flight_recorder.pickled import Unreadable
from gpu_recovery_agent.flight_recorder.rank_text import TEXT_MAX, rank_text
from gpu_recovery_agent.flight_recorder.reports import reports
from hypothesis import given
from hypothesis import strategies as st

from tests.agent.flight_recorder.dumps import CREATED_NS, as_json, dump, entry, p2p, pickled, trace


def group(content: dict[str, Any], name: str = "0", form: Callable[[Any], bytes] = pickled) -> GroupState:
    """The group of that name in a dump."""
    return next(of for of in read_dump(form(content)).groups if of.name == name)


def status(**of: tuple[int, int]) -> dict[str, Any]:
    """`pg_status` of groups by their number in the process, such as `n5`."""
    return {
        name[1:]: {
            "last_enqueued_collective": called,
            "last_started_collective": -1,
            "last_completed_collective": ended,
        }
        for name, (called, ended) in of.items()
    }


WORLD = {"0": range(4)}
WAITS = [entry("0", 8), entry("0", 9, state="scheduled"), entry("0", 10, "broadcast", state="scheduled")]


@pytest.mark.parametrize("form", [pickled, as_json], ids=["pickle", "json"])
def test_the_first_collective_that_has_not_ended_is_what_a_rank_waits_for(form: Callable[[Any], bytes]) -> None:
    """Its call, its type and its size; calls after it are only ahead of the GPU."""
    found = group(dump(WORLD, WAITS), form=form)
    assert (found.members, found.enqueued, found.completed) == ((0, 1, 2, 3), 10, 8)
    assert (found.op, found.waits_since_ns) == ("all_reduce of 4096 BFloat16", CREATED_NS + 9)
    assert found.is_waiting and not found.uses_p2p


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.7", "2.9", "2.10", "2.11"])
def test_every_version_of_format_2_is_read(version: str) -> None:
    """A later minor version only adds fields. The earlier lack the threads, and the first of them `is_p2p`."""
    content = dump(WORLD, map(dict, WAITS), version=version)
    for each in content["entries"]:
        del each["thread_name"], each["thread_id"], each["is_p2p"]
    assert group(content).completed == 8


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (pickled(dump(WORLD, [], version="1.5")), r"version '1.5'; versions 2.x are read \(PyTorch 2.4 or newer\)"),
        (pickled(dump(WORLD, [], version=2)), "version '2'"),
        (pickled([1]), "it has no version"),
        (b'{"entries": []}', "it has no version"),
        (b'{"version": "2.4"', "damaged JSON"),
        (b'{"version":' + b"[" * 100_000, "damaged JSON"),
        (pickled({"version": "2.4"}), "pg_config is missing"),
        (pickled(dump(WORLD, [{"collective_seq_id": 1}])), "entry 0 has no process_group"),
        (pickled(dump(WORLD, [entry("0", 1, collective_seq_id="x")])), "entry 0 has no profiling_name, coll"),
        (pickled({**dump(WORLD, []), "entries": 3}), "entries are no list"),
        (b"step 1\nstep 2\n", "neither a pickle of PyTorch nor JSON"),
    ],
)
def test_a_file_that_is_no_dump_is_refused_with_the_reason(raw: bytes, why: str) -> None:
    """Text, another format, or a dump that lacks what it must have."""
    with pytest.raises(Unreadable, match=why):
        read_dump(raw)


def test_a_dump_of_active_entries_only_says_the_same() -> None:
    """TORCH_INCLUDE_ONLY_ACTIVE leaves out what has ended."""
    assert group(dump(WORLD, WAITS[1:])).completed == 8
    idle = group(dump(WORLD, [], status=status(n0=(9, 9))))
    assert (idle.enqueued, idle.completed, idle.from_status) == (9, 9, True)


def test_without_entries_the_numbers_of_pg_status_count_only_if_their_group_is_certain() -> None:
    """`pg_status` has no names. Groups and numbers correspond by age if there are as many, and no entry contradicts."""
    groups = {"0": range(4), "7": (0, 1), "33": (0, 2)}
    several = status(n0=(5, 5), n1=(8, 8), n4=(3, 3))
    assert [of.enqueued for of in read_dump(pickled(dump(groups, [], several))).groups] == [5, 8, 3]
    fewer = dump(groups, [], status(n0=(5, 5), n1=(8, 8)))
    assert [of.enqueued for of in read_dump(pickled(fewer)).groups] == [None, None, None]
    other = dump(groups, [entry("7", 6, pg_id=4)], several)
    assert [of.enqueued for of in read_dump(pickled(other)).groups] == [None, 6, None]


def test_sends_and_receives_that_have_not_ended_name_their_other_side() -> None:
    """By its rank in the job, though the entry has its rank in the group."""
    groups = {"43": (0, 4, 8, 12)}
    found = group(dump(groups, [p2p("43", 1, "send 1->2", state="completed"), p2p("43", 2, "recv 1<-0")]), "43")
    assert (found.sends_to, found.receives_from, found.uses_p2p) == ((), (0,), True)
    assert (found.enqueued, found.completed, found.is_waiting) == (3, 3, True)


def test_parts_of_a_coalesced_operation_have_its_state() -> None:
    """The parts have no events of their own, so they stay `scheduled` for ever."""
    parts = [p2p("43", 2, "send 1->2"), p2p("43", 2, "recv 1<-0")]
    groups = {"43": (0, 4, 8, 12)}
    ended = group(dump(groups, [*parts, p2p("43", 2, "coalesced", state="completed")]), "43")
    assert not ended.is_waiting
    waits = group(dump(groups, [*parts, p2p("43", 2, "coalesced")]), "43")
    assert (waits.sends_to, waits.receives_from) == ((8,), (0,))


def test_an_ended_send_ends_those_before_it_and_pg_status_those_of_a_dump_of_active_entries() -> None:
    """Without their marker, which has ended and is left out, old parts would look as if they waited."""
    groups = {"43": (0, 4)}
    sends = [p2p("43", 2, "send 0->1"), p2p("43", 4, "send 0->1", state="completed")]
    assert not group(dump(groups, sends), "43").is_waiting
    old, new = p2p("43", 2, "recv 0<-1"), p2p("43", 9, "recv 0<-1")
    assert not group(dump(groups, [old], status(n43=(8, 8))), "43").is_waiting
    assert group(dump(groups, [old, new], status(n43=(9, 8))), "43").waits_since_ns == CREATED_NS + 3


def test_the_size_of_an_operation_counts_only_where_all_ranks_must_agree_in_it() -> None:
    """Each rank of an all-to-all may send another amount."""
    waits = {"state": "scheduled", "input_sizes": [[7, 2], [3]]}
    assert group(dump(WORLD, [entry("0", 1, **waits)])).op == "all_reduce of 17 BFloat16"
    assert group(dump(WORLD, [entry("0", 1, "all_to_all", **waits)])).op == "all_to_all"
    assert group(dump(WORLD, [entry("0", 1, "coalesced", **waits)])).op == ""


# -- files and reports -------------------------------------------------------------------------------------------------


def test_files_are_found_by_the_rank_at_the_end_of_their_names(tmp_path: Path) -> None:
    """Of the prefix alone where it is given; folders, hidden files and other names are none."""
    for name in ("rank_0", "rank_12", "rank_3.json", "other_1", ".rank_4", "fault.log", "rank_5.pipe"):
        (tmp_path / name).touch()
    (tmp_path / "rank_6").mkdir()
    assert list(dump_files(tmp_path)) == [0, 1, 3, 12]
    assert list(dump_files(tmp_path, "rank_")) == [0, 3, 12]


ODD: tuple[Any, ...] = (None, True, -1, 10**400, -(10**400), 1.5, "", "\u00b2", "1" * 5_000, [], ["1"], [[]], {})
"""Values that no field of a dump has in every place, as JSON can hold them."""


def odd_dumps() -> Iterator[dict[str, Any]]:
    """Dumps with one odd value or one odd key, in every place of a dump in turn."""
    usual = dump({"0": range(2)}, [entry("0", 3, state="scheduled"), p2p("0", 1, "send 0->1")])
    usual["pg_status"] = {"0": {"last_enqueued_collective": 3, "last_completed_collective": 2}}
    holders = [usual, usual["pg_config"], usual["pg_config"]["0"], usual["pg_status"], usual["pg_status"]["0"]]
    for holder in (*holders, *usual["entries"]):
        for key, value in list(holder.items()):
            for odd in ODD:
                holder[key] = odd
                yield usual
            holder[key] = value
            for odd in ("", "\u00b2", "1" * 5_000):
                del holder[key]
                holder[odd] = value
                yield usual
                del holder[odd]
                holder[key] = value


def test_a_dump_with_odd_values_is_read_or_refused_and_fails_in_no_other_way() -> None:
    """The wrapper of a rank reads it before it returns the exit status of the rank."""
    refused = 0
    for content in odd_dumps():
        try:
            reports(read_dump(json.dumps(content).encode()), 0, 2, CREATED_NS)
        except Unreadable:
            refused += 1
    assert refused


def test_the_ranks_of_a_group_may_be_a_list_of_texts() -> None:
    """A program that writes its dumps as JSON may write them so."""
    content = dump({"0": range(2)}, [])
    content["pg_config"]["0"]["ranks"] = ["0", "1"]
    assert read_dump(json.dumps(content).encode()).world == 2


def test_a_long_list_of_ranks_in_many_groups_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle of few bytes may name the same text in each group."""
    monkeypatch.setattr(dump_module, "MEMBERS_TOTAL_MAX", 15)
    assert len(read_dump(pickled(dump({"0": range(8), "1": range(7)}, []))).groups) == 2
    with pytest.raises(Unreadable, match="more than 15 members"):
        read_dump(pickled(dump({"0": range(8), "1": range(8)}, [])))


def test_no_link_is_followed_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    """Another user may have put them there."""
    os.mkfifo(tmp_path / "rank_0")
    (tmp_path / "rank_1").symlink_to("/etc/passwd")
    (tmp_path / "rank_2").write_bytes(b"x" * 11)
    with pytest.raises(Unreadable, match="no file"):
        read_file(tmp_path / "rank_0")
    with pytest.raises(OSError, match="symbolic"):
        read_file(tmp_path / "rank_1")
    with pytest.raises(Unreadable, match="larger than 10"):
        read_file(tmp_path / "rank_2", 10)


def test_a_report_leaves_out_groups_of_one_and_what_is_unknown() -> None:
    """Groups that wait come first, for their number is bounded."""
    groups = {"0": range(4), "7": (2,), "8": (0, 1), "9": (2, 3)}
    read = read_dump(pickled(dump(groups, [entry("9", 3, state="scheduled")])))
    found = reports(read, 2, local_world=2, dumped_ns=CREATED_NS + 60_000_000_003)
    assert found[0] == {
        "rank": 2,
        "group": "9",
        "member_ranges": "2-3",
        "local_world": 2,
        "last_enqueued": 3,
        "last_completed": 2,
        "waits_s": 60.0,
        "op": "all_reduce of 4096 BFloat16",
    }
    assert found[1:] == [{"rank": 2, "group": "0 (default_pg)", "member_ranges": "0-3", "local_world": 2}]


def test_reports_of_a_published_dump_fit_into_a_line_of_the_socket() -> None:
    """Each of them, of every rank."""
    sizes = [
        len(json.dumps(each))
        for rank, content in trace("gpu_error_1st").items()
        for each in reports(read_dump(pickled(content)), rank, 8)
    ]
    assert len(sizes) > 16 and max(sizes) < 400


@given(st.sets(st.integers(0, 300), max_size=60))
def test_the_text_of_ranks_names_exactly_them(ranks: set[int]) -> None:
    """As the server reads it; a text that would be too long names none."""
    text = rank_text(ranks)
    read = parsed(text)
    assert read is not None and set(read) == ranks and len(read) == len(ranks)


def test_the_text_of_a_large_group_is_short() -> None:
    """3,000 instances of 16 GPUs: the whole job, a group across it, and a group of pairs without a pattern."""
    assert rank_text(range(48_000)) == "0-47999"
    assert rank_text(range(5, 48_000, 16)) == "5-47989/16"
    assert rank_text([*range(8), *range(64, 72)]) == "0-7,64-71"
    irregular = [n * n for n in range(400)]
    assert rank_text(irregular) == "" and len(",".join(map(str, irregular))) > TEXT_MAX
