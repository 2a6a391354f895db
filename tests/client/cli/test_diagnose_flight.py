"""`gpu-recovery diagnose --flight`: who did not join, by the dumps of all ranks, without a deployment."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from gpu_recovery_client.cli import app
from typer.testing import CliRunner, Result

from tests.agent.flight_recorder.dumps import NAMED, TRUTH, as_json, dump, entry, hung, pickled, trace, write


def diagnose(*words: str) -> Result:
    """The verb, with no address of any deployment."""
    return CliRunner().invoke(app.app, ["diagnose", *words])


@pytest.mark.parametrize("name", TRUTH)
def test_published_hangs_name_a_faulty_rank_and_no_other(tmp_path: Path, name: str) -> None:
    """Two ranks of sixteen have an injected fault; their dumps are pickles, named as PyTorch names them."""
    result = diagnose("--flight", str(write(tmp_path / "dumps", trace(name), "_dump_")), "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    told = json.loads(result.stdout)
    assert (told["cause"], told["decided"]) == ("WORKER_HANG", True)
    assert tuple(sorted(map(int, told["scope"]["names"]))) == NAMED[name]
    assert set(NAMED[name]) <= TRUTH[name]
    assert told["findings"][0]["row"] == "flight"
    assert told["flight"] == {"dumps": 16, "ranks": 16, "without_dump": "", "versions": ["2.9"], "unread": {}}


def test_words_name_the_rank_the_group_and_what_was_read(tmp_path: Path) -> None:
    """In the form of every diagnosis, with the dumps that are not there."""
    dumps = hung(16, (12,))
    del dumps[3], dumps[4]
    result = diagnose("--flight", str(write(tmp_path / "dumps", dumps)))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:2] == ["What: WORKER_HANG", "Where: rank 12"]
    assert "ranks 12 are missing in process group 0 (default_pg): the others wait for them" in lines[4]
    assert lines[-2:] == ["Read: 14 dumps of 16 ranks", "Without a dump: rank 3-4"]
    chinese = diagnose("--flight", str(tmp_path / "dumps"), "--language", "zh").stdout
    assert "进程组0 (default_pg)缺少rank 12" in chinese


def test_json_dumps_are_read_like_pickles(tmp_path: Path) -> None:
    """As the handler of PyTorch gives them."""
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank, content in hung(4, (1,)).items():
        (folder / f"rank_{rank}.json").write_bytes(as_json(content))
    told = json.loads(diagnose("--flight", str(folder), "--json").stdout)
    assert (told["scope"]["names"], told["flight"]["dumps"]) == (["1"], 4)


def test_ranks_that_call_another_operation_are_named(tmp_path: Path) -> None:
    """A mismatch is an error of the program. It is too weak to end a job."""
    world = {"0": range(4)}
    calls = {
        rank: dump(world, [entry("0", 7, "broadcast" if rank == 2 else "all_reduce", state="scheduled")])
        for rank in range(4)
    }
    told = json.loads(diagnose("--flight", str(write(tmp_path / "dumps", calls)), "--json").stdout)
    assert told["cause"] == "APPLICATION" and told["confidence"] < 0.75
    assert told["findings"][0]["english"] == (
        "ranks 2 call broadcast of 4096 BFloat16 in process group 0 (default_pg), "
        "and the others call all_reduce of 4096 BFloat16 at the same place"
    )


def test_where_all_ranks_have_joined_none_is_named(tmp_path: Path) -> None:
    """The network or a GPU: undecided."""
    told = json.loads(diagnose("--flight", str(write(tmp_path / "dumps", hung(4, ()))), "--json").stdout)
    assert (told["cause"], told["decided"], told["scope"]["names"]) == ("NETWORK", False, [])


def test_a_file_that_is_no_dump_is_refused_with_its_reason(tmp_path: Path) -> None:
    """Beside dumps it is named; alone it is an error. Nothing in it is run."""
    folder = write(tmp_path / "dumps", hung(4, (1,)))
    (folder / "nccl_trace_rank_3").write_bytes(pickle.dumps({"version": "2.4", "entries": Path("/")}))
    words = diagnose("--flight", str(folder)).stdout
    assert "Where: rank 1\n" in words
    assert "Not read: nccl_trace_rank_3: it holds more than plain values" in words
    for path in folder.iterdir():
        path.write_bytes(pickled({"version": "1.5"}))
    refused = diagnose("--flight", str(folder))
    assert refused.exit_code == 1
    assert "versions 2.x are read (PyTorch 2.4 or newer)" in refused.stderr


def test_a_folder_without_dumps_or_with_two_of_a_rank_is_an_error(tmp_path: Path) -> None:
    """Dumps of two runs would be mixed."""
    (tmp_path / "log").touch()
    assert "no dump of a flight recorder" in diagnose("--flight", str(tmp_path)).stderr
    write(tmp_path, hung(2, (1,)), "a_")
    write(tmp_path, hung(2, (1,)), "b_")
    assert "two dumps of rank 0: a_0 and b_0" in diagnose("--flight", str(tmp_path)).stderr
    assert "cannot be read" in diagnose("--flight", str(tmp_path / "none")).stderr
    assert diagnose("--flight", str(tmp_path), "--log", "-").exit_code == 2
