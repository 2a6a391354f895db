"""The folder of records, its courses, and what a reader says about a folder that it cannot read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.errors import PolicyInvalid
from gpu_recovery.core.replay_facts import policy_document

from simulator.replay.command import policy_file, settings_of
from simulator.replay.course import courses_of
from simulator.replay.records import RecordsInvalid, read_records, write_records
from tests.simulator.replay.recorded_runs import policy, records_of, run_of, saved

AT = datetime(2026, 11, 21, 9, tzinfo=UTC)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Every event, once, in the order of time; a repeated line is the same event."""
    played = run_of(1)
    folder = saved(tmp_path / "records", played)
    with (folder / "events.jsonl").open("a") as file:
        file.write(played.texts[0] + "\n\n")
    read = read_records(folder)
    assert len(read.events) == len(played.texts) and read.name == "records"
    assert [event.at for event in read.events] == sorted(event.at for event in read.events)
    assert {event.event_id for event in read.events} == {e.event_id for e in records_of(played.texts, None).events}


def test_records_are_not_overwritten(tmp_path: Path) -> None:
    """A second export into the same folder is refused, and changes nothing."""
    write_records(tmp_path, ["{}"], AT, AT)
    with pytest.raises(RecordsInvalid, match="there are records in this folder already"):
        write_records(tmp_path, [], AT, AT)
    assert (tmp_path / "events.jsonl").read_text() == "{}\n"


def _damaged(folder: Path, **about: Any) -> None:
    document = json.loads((folder / "records.json").read_text()) | about
    (folder / "records.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"version": 2}, "records.json: version 2 of the records is unknown; this release reads 1"),
        ({"format": "other"}, "records.json: it does not describe records of gpu-recovery"),
        ({"since": "yesterday"}, "records.json: since must be a time"),
    ],
)
def test_a_folder_of_another_form_is_refused(tmp_path: Path, about: dict[str, Any], message: str) -> None:
    """The message names the file and the reason."""
    folder = saved(tmp_path / "records", run_of(1))
    _damaged(folder, **about)
    with pytest.raises(RecordsInvalid, match=message):
        read_records(folder)


def test_a_line_that_is_no_event_is_refused_with_its_number(tmp_path: Path) -> None:
    """Nothing is left out in silence."""
    folder = saved(tmp_path / "records", run_of(1))
    text = (folder / "events.jsonl").read_text().splitlines()
    text[4] = '{"type": "Job State Changed"}'
    (folder / "events.jsonl").write_text("\n".join(text))
    with pytest.raises(RecordsInvalid, match=r"events\.jsonl, line 5: "):
        read_records(folder)
    (folder / "events.jsonl").write_text("\n")
    with pytest.raises(RecordsInvalid, match="there is no event in it"):
        read_records(folder)


def test_replay_facts_of_a_later_version_are_refused() -> None:
    """Their members may mean something else."""
    documents = [json.loads(text) for text in run_of(1).texts]
    documents[3]["data"]["replay"]["version"] = 2
    records = records_of(tuple(json.dumps(one) for one in documents), None)
    with pytest.raises(RecordsInvalid, match="version 2 of the replay facts is unknown"):
        courses_of(records.events, records.until)


def test_a_course_has_the_gang_by_rank_and_the_policy() -> None:
    """From the placements, each of which names the ranks with another instance than before."""
    [course] = courses_of(records_of(run_of(1).texts, None).events, AT)
    assert len(course.first) == 4 and all(course.first) and course.was_seen_from_start
    assert course.policies == [policy_document(policy())]
    assert {"preset": "adaptive", "lemon_order": False, "replace": True}.items() <= course.policies[0].items()
    for before, after in pairwise(course.interruptions):
        assert len(set(after.gang)) == 4 and before.at < after.at


def test_settings_have_the_types_of_the_policy() -> None:
    """As the thresholds of a deployment; a former name is accepted."""
    given = ["replace=true", "reboots_max=4", "gang_check=always", "steady_s=60"]
    assert settings_of(given) == {"replace": True, "reboots_max": 4, "gang_check": "always", "steady_s": 60}
    for wrong in ("replace", "replace=2", "reboots_max=x", "nothing=1", "=1"):
        with pytest.raises(PolicyInvalid):
            settings_of([wrong])


def test_a_policy_is_read_from_json_toml_and_a_settings_file(tmp_path: Path) -> None:
    """A settings file has the thresholds in its table, and the switches beside it."""
    (tmp_path / "a.json").write_text('{"preset": "classic", "reboots_max": 3}')
    assert policy_file(tmp_path / "a.json") == {"preset": "classic", "reboots_max": 3}
    (tmp_path / "prod.toml").write_text(
        'preset = "adaptive"\nreplace = true\nregion = "x"\n[policy]\nreboots_max = 3\n'
    )
    deployed = {"preset": "adaptive", "replace": True, "record_attempts": True, "reboots_max": 3}
    assert policy_file(tmp_path / "prod.toml") == deployed
    for name, text in (("b.json", "[]"), ("c.toml", "x ="), ("d.json", '{"nothing": 1}')):
        (tmp_path / name).write_text(text)
        with pytest.raises(PolicyInvalid):
            policy_file(tmp_path / name)
