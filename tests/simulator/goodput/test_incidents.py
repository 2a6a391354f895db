"""A user's own incident list: what it says is replayed, what it lacks is told, and what is wrong has its line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simulator.goodput.assumptions import Cure, Shows
from simulator.goodput.baselines import human_only
from simulator.goodput.contenders import own_way
from simulator.goodput.failure_trace import Incident, replayed_trace
from simulator.goodput.incidents import OTHER, IncidentsInvalid, read_causes, read_incidents
from simulator.goodput.infinitehbd import convert
from simulator.goodput.production import adaptive
from tests.simulator.goodput.test_own_way import CONDITIONS, SMALL

HEADER = "at,node,cause,cure,shows,until\n"
TRACE = Path(__file__).with_name("infinitehbd_form.json")
"""A made-up trace in the form of the published one."""


def listed(tmp_path: Path, text: str, name: str = "mine.csv") -> Path:
    """A file with this text."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_and_a_json_of_the_same_incidents_are_the_same(tmp_path: Path) -> None:
    """In seconds or as dates, in any order of lines."""
    text = HEADER + "7200,b,software,restart,hang,9000\n3600,a,gpu,,,\n"
    software = {"node": "b", "cause": "software", "cure": "restart", "shows": "hang"}
    rows = [
        {"at": "2026-11-27T02:00:00Z", "until": "2026-11-27T03:30:00+01:00", **software},
        {"at": "2026-11-27T01:00:00", "node": "a", "cause": "gpu"},
    ]
    first = read_incidents(listed(tmp_path, text))
    second = read_incidents(listed(tmp_path, json.dumps({"incidents": rows}), "mine.json"))
    gpu = Incident(3_600.0, 0, "gpu", Cure.REBOOT, Shows.EXIT, True)
    assert first.incidents == (gpu, Incident(7_200.0, 1, "software", Cure.RESTART, Shows.HANG, False, 9_000.0))
    assert second.incidents == (gpu, replace(first.incidents[1], until_s=9_000.0))
    assert (first.nodes, first.days, first.assumed) == (("a", "b"), 1.0, 1)


def test_a_cause_that_the_table_does_not_name_is_another_one(tmp_path: Path) -> None:
    """Its name stays in the report."""
    (one,) = read_incidents(listed(tmp_path, "at,node,cause\n1,a,gremlins\n")).incidents
    other = read_causes()[OTHER]
    assert (one.cause, one.cure, one.shows, one.seen) == ("gremlins", other.cure, other.shows, other.seen)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "'at' is missing"),
        ("at,node\n1,a\n", "line 1: 'cause' is missing"),
        ("at,node,cause,colour\n1,a,gpu,red\n", "line 1: 'colour' is not known"),
        ("at,node,cause\n", "there is no incident"),
        ("at,node,cause\n1,a\n", "line 2: it has not as many fields"),
        ("at,node,cause\n1,a,gpu,x\n", "line 2: it has not as many fields"),
        ("at,node,cause\n1,a,gpu\n\nyesterday,a,gpu\n", "line 4: 'at' must be seconds"),
        ("at,node,cause\n-1,a,gpu\n", "line 2: 'at' must be seconds"),
        ("at,node,cause\nnan,a,gpu\n", "line 2: 'at' must be seconds"),
        ("at,node,cause\n1,,gpu\n", "line 2: 'node' and 'cause' must not be empty"),
        ("at,node,cause\n1,a,gpu\n2026-11-27,a,gpu\n", "line 3: all times must be seconds, or all must be dates"),
        (HEADER + "1,a,gpu,pray,,\n", "line 2: 'cure' must be one of restart, reboot, replace, person, not 'pray'"),
        (HEADER + "1,a,gpu,,smoke,\n", "line 2: 'shows' must be one of exit, hang, gone, not 'smoke'"),
        (HEADER + "1,a,gpu,reboot,gone,\n", "line 2: a host that is gone has the cure 'replace'"),
        (HEADER + "5,a,gpu,,,4\n", "line 2: 'until' is before 'at'"),
        (HEADER + "5,a,gpu,,,2026-11-27\n", "line 2: 'until' must be a time as `at` is"),
        ('at,node,cause\n1,"a,gpu\n', "line 2"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    """A list of a thousand lines is mended by its message."""
    with pytest.raises(IncidentsInvalid) as error:
        read_incidents(listed(tmp_path, text))
    assert says in str(error.value) and "mine.csv" in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[\n{"at": 1,\n', "line 3"),
        ('"at"', "must be a list of incidents"),
        ("[1]", "incident 1: it must be an object"),
        ('[{"at": 1, "node": "a", "cause": "gpu"}, {"at": 2, "node": "a"}]', "incident 2: 'cause' is missing"),
        ('[{"at": true, "node": "a", "cause": "gpu"}]', "incident 1: 'at' must be seconds"),
    ],
)
def test_a_wrong_json_is_told_with_the_number_of_its_incident(tmp_path: Path, text: str, says: str) -> None:
    """A JSON list has no lines that say much."""
    with pytest.raises(IncidentsInvalid, match=says):
        read_incidents(listed(tmp_path, text, "mine.json"))


# -- replays -----------------------------------------------------------------------------------------------------------


def test_a_fault_that_is_over_returns_no_more() -> None:
    """Its recorded end is used: a fault that nothing sees relapses until then, and not until an operator has looked."""
    hidden = Incident(10_000.0, 1, "gpu", Cure.REBOOT, Shows.HANG, False)
    small = replace(SMALL.resized(4), days=1.0)
    lasting, over = (
        replayed_trace(small, replace(CONDITIONS, relapse_s=900.0), 1, (replace(hidden, until_s=until_s),))
        for until_s in (None, 10_001.0)
    )
    for policy in (own_way(2, 1), adaptive(2, 1)):
        assert len(policy.run(lasting).episodes) > 1, policy.name
        assert len(policy.run(over).episodes) == 1, policy.name


def test_a_replay_strikes_when_and_where_the_list_says() -> None:
    """Every seed: only what the list lacks is drawn."""
    listed = (
        Incident(10_000.0, 3, "gpu", Cure.REBOOT, Shows.EXIT, True),
        Incident(50_000.0, 2, "x", Cure.RESTART, Shows.HANG, False),
    )
    first, second = (replayed_trace(SMALL, CONDITIONS, seed, listed) for seed in (1, 2))
    for trace in (first, second):
        assert [(one.at_s, one.place, one.cause, one.of_lemon) for one in trace.failures] == [
            (10_000.0, 3, "gpu", False),
            (50_000.0, 2, "x", False),
        ]
    assert first.failures[0].human_s != second.failures[0].human_s
    assert [one.fault_at for one in human_only().run(first).episodes] == [10_000.0, 50_000.0]
    other = first.under(replace(CONDITIONS, hang_share=0.5, reboot_share=0.3))
    assert other.failures == first.failures


# -- the published trace -----------------------------------------------------------------------------------------------


def test_the_form_of_the_published_trace_is_converted(tmp_path: Path) -> None:
    """Begin and end are joined by node and description; days become seconds; open faults have no end."""
    text = convert(TRACE)
    assert text == (
        "at,node,cause,until\n"
        "86400.0,node-a,gpu_memory,172800.0\n"
        "129600.0,node-b,network,133920.0\n"
        "216000.0,node-a,other,\n"
        "259200.0,node-c,host,259200.0\n"
    )
    read = read_incidents(listed(tmp_path, text))
    assert [one.shows for one in read.incidents] == [Shows.EXIT, Shows.HANG, Shows.EXIT, Shows.EXIT]


KIND = dict.fromkeys(("Level", "Class", "Desc"), "")
AN_END = {"node_id": "a", "event_time": 1, "event_type": "fault_end", "fault_type": KIND}


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([AN_END], "event 1: 'fault_end' without a begin"),
        ([{"event_type": "fault_start"}], "event 1: it has not the form"),
        ({}, "must be a list of events"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, events: object, says: str) -> None:
    """With the number of the event."""
    with pytest.raises(IncidentsInvalid, match=says):
        convert(listed(tmp_path, json.dumps(events), "trace.json"))
