"""The text of views."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gpu_recovery.core.fleet import Fleet, Pause
from gpu_recovery.core.instance.fault_history import signal_at
from gpu_recovery.core.instance.lemons import LemonSignal
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, RepairHold, RepairLevel, RepairNeed
from gpu_recovery.core.instance.record_parts import IdleCheckResult
from gpu_recovery.core.job.record import TERMINAL, Job, JobStatus
from gpu_recovery.core.job.spec import JobSpec
from gpu_recovery.core.policy import PRESETS, Preset
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.core.task import Ending, EndingKind, RankFailure
from gpu_recovery.wire.fleet import fleet_view
from gpu_recovery.wire.instances import idle_check_view, instance_view, lemon_view
from gpu_recovery.wire.jobs import job_view
from gpu_recovery_client.render import fleet, formats, timeline
from gpu_recovery_client.render import instances as render_instances
from gpu_recovery_client.render import jobs as render_jobs

HERE = Path(__file__).parents[1]
NOW = datetime(2026, 11, 21, 9, 3, 0, tzinfo=UTC)


def story_of(incident: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """What `explain.gather` finds for the incident, its job changed."""
    return {"job": incident["job"] | changes, "instances": incident["instances"], "left_out": []}


def test_an_incident_is_explained_as_the_golden_text_has_it(incident: dict[str, Any]) -> None:
    """Where it stands, what it waits for until when, and both instances' entries between the job's own."""
    assert timeline.explanation(story_of(incident), NOW) == (HERE / "explain.txt").read_text()


def test_a_narrow_terminal_folds_the_reasons_and_loses_nothing(incident: dict[str, Any]) -> None:
    """Every word of every reason is still there, and no table line is wider than the terminal."""
    for width in (100, 140):
        text = timeline.explanation(story_of(incident), NOW, width)
        lines = text.split("\n\n")[1].splitlines()
        assert max(map(len, lines)) <= width
        assert len(lines) > len((HERE / "explain.txt").read_text().split("\n\n")[1].splitlines())
        for entry in incident["job"]["history"]:
            assert all(word in text for word in entry["reason"].split())


@pytest.mark.parametrize("width", [20, 60, 80, 120])
def test_an_id_is_never_cut_however_narrow_the_terminal(incident: dict[str, Any], width: int) -> None:
    """What a person copies to the next command is whole."""
    words = render_jobs.job_list({"jobs": [incident["job"]]}, NOW, width).split()
    assert {"sft-20261121-090000-1a2b", "RECOVERING"} <= set(words)
    text = render_instances.instance_list(incident["instances"], NOW, width)
    assert [line.split()[0] for line in text.splitlines() if line.startswith("i-")] == [
        "i-0aaa00000000000a1",
        "i-0bbb00000000000b2",
    ]
    assert "sft-20261121-090000-1a2b--a01;" in text


def after_the_end(story: dict[str, Any]) -> list[tuple[str, str]]:
    """The entries of instances after the end of the job, each with its instance."""
    ended = story["job"]["status_at"]
    entries = timeline.timeline(story["job"], story["instances"])
    return [(who, entry["event"]) for who, entry in entries if who != "job" and entry["at"] > ended]


def moved(before: str, after: str, event: str, at: str = "2026-11-22T00:00:00Z") -> dict[str, Any]:
    """An entry of the history of an instance."""
    return {"at": at, "from": before, "to": after, "event": event, "reason": ""}


def test_an_ended_job_is_explained_up_to_its_end(incident: dict[str, Any]) -> None:
    """What an instance did for another job later, or did before the job came, is no part of the story."""
    for view in incident["instances"]:
        view["history"].append(moved("AVAILABLE", "CHECKING", "Later"))
    ended = story_of(incident, status=JobStatus.FAILED.value, repairing=[])
    who = [(who, entry["event"]) for who, entry in timeline.timeline(ended["job"], ended["instances"])]
    assert [event for who, event in who if who != "job"] == 2 * ["CheckRequested"] + 2 * ["CheckEnded"]
    assert "waits for nothing: the job has ended" in timeline.explanation(ended, NOW)


def test_a_repair_is_explained_to_its_end_although_the_job_has_ended(incident: dict[str, Any]) -> None:
    """And who ordered it, also if the agent says so after the instance works again. A later repair is another story."""
    sick = next(view for view in incident["instances"] if view["history"][-1]["to"] == "REBOOTING")
    sick["history"] += [
        moved("REBOOTING", "REBOOTING", "RepairAnnounced"),
        moved("REBOOTING", "VERIFYING", "InstanceObserved"),
        moved("VERIFYING", "AVAILABLE", "CheckEnded"),
        moved("AVAILABLE", "AVAILABLE", "RepairRecordFound"),
        moved("AVAILABLE", "CHECKING", "HealthReported"),
        moved("CHECKING", "REBOOTING", "CheckEnded"),
    ]
    found = after_the_end(story_of(incident, status=JobStatus.SUCCEEDED.value, repairing=[]))
    expected = ["RepairAnnounced", "InstanceObserved", "CheckEnded", "RepairRecordFound"]
    assert found == [(sick["instance_id"], event) for event in expected]


def test_a_record_keeps_its_order_when_a_fact_came_late(incident: dict[str, Any]) -> None:
    """RankFailed happened before AllRanksRunning was told: the statuses still follow one another."""
    incident["job"]["history"][4]["at"] = "2026-11-21T09:00:08Z"
    own = [entry["event"] for who, entry in timeline.timeline(incident["job"], incident["instances"]) if who == "job"]
    assert own == [entry["event"] for entry in incident["job"]["history"]]


def test_instances_of_earlier_attempts_are_involved_too(incident: dict[str, Any]) -> None:
    """The sick one first, then the current ones, then those the history names."""
    job = incident["job"] | {"instances": ["i-0ccc00000000000c3"], "repairing": []}
    assert timeline.involved(job) == ["i-0aaa00000000000a1", "i-0ccc00000000000c3", "i-0bbb00000000000b2"]


def test_every_status_says_what_the_job_waits_for(incident: dict[str, Any]) -> None:
    """No status of the machine is without words; one of a newer API has words as well."""
    assert set(render_jobs.WAITS_FOR) == set(JobStatus) - TERMINAL
    assert render_jobs.waiting({"status": "LEARNING"}, NOW) == "the end of LEARNING, without a deadline"


def test_a_deadline_is_shown_from_both_sides() -> None:
    """Time left, and time passed since."""
    job = {"status": JobStatus.STOPPING.value, "deadline_at": "2026-11-21T09:07:00Z"}
    words = "the confirmed end of every rank, until 2026-11-21 09:07:00Z"
    assert render_jobs.waiting(job, NOW) == f"{words} (in 4m00s)"
    assert render_jobs.waiting(job, NOW + timedelta(minutes=5)) == f"{words} (due 1m00s ago)"


def test_a_pause_before_the_next_try_is_shown_until_it_is_over() -> None:
    """A job that lost the race for its GPUs is tried again after a minute, and then whenever there is room."""
    delayed = {"status": JobStatus.RECOVERING.value, "next_run_at": "2026-11-21T09:04:00.000Z", "repairing": []}
    delay = "the end of its retry delay, not before 2026-11-21 09:04:00Z (in 1m00s), without a deadline"
    assert render_jobs.waiting(delayed, NOW) == delay
    assert render_jobs.waiting({**delayed, "repairing": ["i-1"]}, NOW).startswith(
        "healthy instances to relaunch on, not before"
    )
    job = {"status": JobStatus.PENDING_RESOURCES.value, "next_run_at": "2026-11-21T09:04:00.000Z"}
    words = "GPUs to become free, not before 2026-11-21 09:04:00Z (in 1m00s), without a deadline"
    assert render_jobs.waiting(job, NOW) == words
    assert render_jobs.waiting(job, NOW + timedelta(minutes=1)) == "GPUs to become free, without a deadline"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0.9, "0s"),
        (59, "59s"),
        (60, "1m00s"),
        (3_599, "59m59s"),
        (3_600, "1h00m"),
        (86_399, "23h59m"),
        (86_400, "1d00h"),
        (266_400, "3d02h"),
    ],
)
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    """Each limit between units."""
    assert formats.duration(seconds) == text


def test_what_a_task_wrote_cannot_steer_the_terminal(incident: dict[str, Any]) -> None:
    """Escape sequences, line breaks, bidirectional overrides and markup are text."""
    job = incident["job"] | {"reason": "\x1b[2J[red]gone[/red]\r\nFAKE \u202e line", "history": []}
    line = render_jobs.job_line(job)
    assert line == "sft-20261121-090000-1a2b  RECOVERING  ?[2J[red]gone[/red] FAKE ? line\n"
    for text in (render_jobs.job_details(job, NOW), render_jobs.job_list({"jobs": [job]}, NOW)):
        assert "?[2J[red]gone[/red] FAKE ? line" in text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    ("counts", "asked", "shown"),
    [("NORMAL", "ABOVE_NORMAL", "NORMAL (asked for ABOVE_NORMAL)"), ("HIGH", "HIGH", "HIGH"), ("LOW", None, "LOW")],
)
def test_a_priority_that_fell_back_is_shown_with_the_one_asked_for(
    incident: dict[str, Any], counts: str, asked: str | None, shown: str
) -> None:
    """Seed 003's half hour: else it would look like a mistake."""
    text = render_jobs.job_details(incident["job"] | {"priority": counts, "asked_priority": asked}, NOW)
    assert shown in [line.partition("  ")[2].strip() for line in text.splitlines() if line.startswith("priority")]


def test_a_job_is_shown_as_a_block(incident: dict[str, Any]) -> None:
    """Names, then values; what is empty is left out."""
    text = render_jobs.job_details(incident["job"] | {"user": "", "priority": "NORMAL", "group": ""}, NOW)
    assert [line.split("  ")[0] for line in text.splitlines()] == [
        "job",
        "status",
        "reason",
        "waits for",
        "attempt",
        "workload",
        "priority",
        "size",
        "task definition",
        "origin",
        "queued",
        "instances",
        "repairing",
        "last failure",
        "incident",
    ]
    assert "rank 0 on i-0aaa00000000000a1 was ended by signal 6 (exit code 134)" in text
    assert "RECOVERING since 2026-11-21 09:02:10Z (50s)" in text


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"restart_in_place": True}, "a failed attempt may restart in its containers"),
        ({"restart_in_place": True, "ranks_in_place": 1, "nnodes": 2}, "1 of 2 ranks use a container that waited"),
        ({"warm_spares": ["i-8", "i-9"]}, "i-8, i-9"),
    ],
)
def test_a_job_shows_what_is_restarted_in_place(incident: dict[str, Any], fields: dict[str, Any], shown: str) -> None:
    """Of every other job the block has no such line."""
    assert "in place" not in render_jobs.job_details(incident["job"], NOW)
    assert shown in render_jobs.job_details(incident["job"] | fields, NOW)


def test_the_incident_has_the_shape_that_the_api_gives(incident: dict[str, Any]) -> None:
    """The views these tests render have exactly the fields that the API's own views have."""
    entry = HistoryEntry(NOW, "", JobStatus.QUEUED, "JobSubmitted", 1, "submitted")
    failure = RankFailure(0, "i-1", NOW, Ending(EndingKind.CRASHED, 134, "was ended by signal 6"))
    spec = JobSpec("sft", 2, 8, "gpu-training")
    job = job_view(
        Job("a", spec, queued_at=NOW, status_at=NOW, failure=failure, history=(entry,)), PRESETS[Preset.ADAPTIVE]
    )
    instance = instance_view(Instance("i-1", status_at=NOW, claims={"a": Claim(1, 8)}, history=(entry,)), NOW)
    assert set(incident["job"]) == set(job)
    assert set(incident["job"]["failure"]) == set(job["failure"])
    assert {type(value) for value in incident["instances"][1]["claims"].values()} == {type(instance["claims"]["a"])}
    for view in incident["instances"]:
        assert set(view) == set(instance)

    for told, api in ((incident["job"], job), *((one, instance) for one in incident["instances"])):
        assert {frozenset(one) for one in told["history"]} == {frozenset(api["history"][0])}
    assert render_jobs.job_details(job, NOW).startswith("job ")
    assert render_instances.instance_details(instance, NOW).startswith("instance ")


def test_the_fleet_has_the_shape_that_the_api_gives() -> None:
    """As above, for the brakes and whom they hold."""
    stored = json.loads((HERE / "fleet.json").read_text())
    need = RepairNeed(RepairLevel.REBOOT, "XID 79", NOW)
    machine = Instance("i-1", NOW, InstanceStatus.QUARANTINED, need=need, held=RepairHold(NOW, "paused"))
    waiting = Instance("i-2", NOW, InstanceStatus.QUARANTINED, "it did not come back")
    brakes = Fleet(opened_at=NOW, pause=Pause("an operator", "why", NOW), blamed={"i-1": NOW})
    view = fleet_view(brakes, PRESETS[Preset.ADAPTIVE], [machine, waiting], [])
    assert set(stored) == set(view)
    for part in ("breaker", "pause"):
        assert set(stored[part]) == set(view[part])
    for part in ("held", "for_a_person"):
        assert [set(one) for one in stored[part]] == [set(one) for one in view[part]]


def test_jobs_are_listed_in_columns_with_the_way_to_the_next_page(incident: dict[str, Any]) -> None:
    """A header, a line for each job, and a hint while there is more."""
    lines = render_jobs.job_list({"jobs": [incident["job"]], "next_cursor": "abc"}, NOW).splitlines()
    assert lines[0].split() == ["JOB", "STATUS", "SINCE", "ATTEMPT", "SIZE", "USER", "PRIORITY", "REASON"]
    assert lines[1].split()[:6] == ["sft-20261121-090000-1a2b", "RECOVERING", "50s", "1", "(1/3)", "2x8"]
    assert lines[2:] == ["more jobs follow: add --all, or a larger --limit (-o json has the cursor)"]
    assert render_jobs.job_list({"jobs": [], "next_cursor": None}, NOW) == "no jobs\n"


def test_instances_are_listed_with_who_claims_them(incident: dict[str, Any]) -> None:
    """A claim is shown as the attempt that holds it."""
    lines = render_instances.instance_list(incident["instances"], NOW).splitlines()
    assert lines[1].split()[:6] == ["i-0aaa00000000000a1", "REBOOTING", "8", "DRAINING", "cut", "off"]
    job = "sft-20261121-090000-1a2b"
    assert f"claimed by {job}--a01; reserved for {job}; its" in lines[2]
    assert render_instances.instance_list([], NOW) == "no instances\n"


def test_the_list_shows_what_is_wrong_with_an_instance_in_80_columns() -> None:
    """ECS status, both agents by name, health with its source, and who drained it: all of them read AVAILABLE."""
    broken = {"status": "IMPAIRED", "since": "2026-11-21T08:03:00.000Z", "sentence": "XID 48 on GPU 3"}
    drained = {"kind": "draining", "since": None, "because": "set to DRAINING in ECS, not by gpu-recovery"}
    agents = ("HEARD", "09:02:48"), ("SUSPECT", "09:02:00"), ("UNREACHABLE", "09:00:59"), ("LOST", "08:49:00")
    heard = [{"liveness": name, "seen_at": f"2026-11-21T{at}.000Z"} for name, at in agents]
    view = {"status": "QUARANTINED", "gpus": 16, "ecs_status": "DRAINING", "agent_connected": False, "reason": "why"}
    views = [
        {**view, "instance_id": f"i-0aaa0000000000{n:03}", "node_agent": agent, "health": {"NODE_AGENT": broken}}
        for n, agent in enumerate([*heard, None])
    ]
    views[0]["out_of_use"] = [drained]
    lines = render_instances.instance_list(views, NOW, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split("  ")[0] == "INSTANCE" and "ECS  " in lines[0] and "ECS AGENT  NODE AGENT  HEALTH" in lines[0]
    rows = [line for line in lines if line.startswith("i-")]
    assert [row.partition("cut off")[2].split() for row in rows] == [
        ["HEARD", "12s", "IMPAIRED"],
        ["SILENT", "60s", "IMPAIRED"],
        ["SILENT", "2m", "IMPAIRED"],
        ["LOST", "14m", "IMPAIRED"],
        ["none", "IMPAIRED"],
    ]
    assert lines[1].strip() == "NOTES"
    notes = " ".join(" ".join(lines[3:5]).split())
    assert notes.startswith(
        "NODE_AGENT is IMPAIRED since 2026-11-21 08:03:00Z: XID 48 on GPU 3; set to DRAINING in ECS"
    )
    healthy = {"instance_id": "i-1", "status": "AVAILABLE", "health": {"DAEMON": {**broken, "status": "OK"}}}
    mixed = render_instances.instance_list([healthy, views[0], healthy], NOW, 80).splitlines()
    assert all(line.strip() for line in mixed), "an instance without notes has one line"
    assert render_instances.instance_list([healthy], NOW).splitlines()[1].split()[-1] == "ok"


def test_an_uncounted_attempt_uses_up_no_attempt_in_the_list(incident: dict[str, Any]) -> None:
    """Attempt 2 after an interruption of Spot: none of the three is used up."""
    job = incident["job"] | {"attempt": 2, "attempts_counted": 0}
    assert "  2 (0/3)  " in render_jobs.job_list({"jobs": [job]}, NOW)
    assert "attempt          2 (0 of 3 counted)" in render_jobs.job_details(job, NOW)


def test_before_the_first_count_the_fleet_says_that_the_count_is_unknown() -> None:
    """Neither 0 instances nor a limit that follows from 0."""
    view = json.loads((HERE / "fleet.json").read_text())
    closed = {**view["breaker"], "state": "CLOSED", "since": None, "opens_at": 3}
    early = {**view, "gpu_instances": 0, "gpu_instances_counted": False, "breaker": closed, "repairing": []}
    text = fleet.fleet(early, NOW)
    assert (
        "instances with GPUs  not counted yet" in text and "suspected at once" not in text and "of at most" not in text
    )
    text = fleet.fleet({**early, "gpu_instances_counted": True}, NOW)
    assert "instances with GPUs  0\n" in text and "opens when 3 instances are suspected at once" in text


def test_causes_that_do_not_fit_into_the_answer_are_counted() -> None:
    """The list of instances has all of them."""
    view = json.loads((HERE / "fleet.json").read_text())
    assert "and 7 more, which `gpu-recovery instances` lists" in fleet.fleet({**view, "out_of_use_more": 7}, NOW)


def test_an_instance_is_shown_with_its_history(incident: dict[str, Any]) -> None:
    """The block, an empty line, the table."""
    block, history = render_instances.instance_details(incident["instances"][0], NOW).split("\n\n")
    assert "REBOOTING since 2026-11-21 09:02:08Z (52s)" in block
    assert "2026-11-21 09:32:08Z (in 29m08s)" in block
    assert "7c9e6679-7425-40de-944b-e07fc1f90ae7 since 2026-11-20 08:00:00Z" in block
    assert history.splitlines()[2].startswith("2026-11-21 09:01:31Z  AVAILABLE -> CHECKING  CheckRequested    checked")


def test_an_instance_says_what_speaks_against_it() -> None:
    """The score and what it is made of, as the API tells them; of one with a clean past there is no such line."""
    past = tuple(signal_at(NOW, kind) for kind in (LemonSignal.OUT, LemonSignal.OUT, LemonSignal.XID))
    lemon, clean = (lemon_view(Instance("i-1", NOW, past=one), NOW) for one in (past, ()))
    view = {"instance_id": "i-1", "status": "AVAILABLE"}
    told = render_instances.instance_details({**view, "lemon": lemon}, NOW)
    assert "lemon score" in told
    assert f"{lemon['score']} %: 2 times under repair and 1 XID in 28 days" in told and lemon["score"] > 0
    for quiet in ({**view, "lemon": clean}, view):
        assert "lemon" not in render_instances.instance_details(quiet, NOW)


def test_an_instance_shows_its_idle_checks() -> None:
    """The last that it passed, whether that still counts, and a later one without a result."""
    view: dict[str, Any] = {"instance_id": "i-1", "status": "AVAILABLE"}
    at = NOW - timedelta(hours=2)
    passed = IdleCheckResult(at, "HEALTHY", at, 3)
    stopped = replace(passed, ended_at=NOW - timedelta(minutes=5), outcome="")
    for checked, fields, line in (
        (passed, {}, "idle check  passed at level 3, 2h ago\n"),
        (passed, {"blamed_at": NOW}, "passed at level 3, 2h ago, which no longer counts"),
        (stopped, {}, "passed at level 3, 2h ago; the last ended 5m ago: no result"),
        (IdleCheckResult(at, "INCONCLUSIVE"), {}, "the last ended 2h ago: INCONCLUSIVE"),
    ):
        shown = idle_check_view(Instance("i-1", NOW, idle_check=checked, **fields), NOW)
        assert line in render_instances.instance_details({**view, "idle_check": shown}, NOW)
    assert idle_check_view(Instance("i-1", NOW), NOW) is None
    assert "idle check" not in render_instances.instance_details({**view, "idle_check": None}, NOW)


def test_an_instance_says_when_it_was_last_heard_of() -> None:
    """With the ranks it spoke of; one that never reported has no such line."""
    beat = {
        "seen_at": "2026-11-21T09:02:50.000Z",
        "liveness": "HEARD",
        "ranks": [{"job_id": "sft-1", "attempt": 2, "rank": 0, "seen_at": "2026-11-21T09:02:50.000Z"}],
    }
    view = {"instance_id": "i-1", "status": "AVAILABLE"}
    told = render_instances.instance_details({**view, "heartbeat": beat}, NOW)
    assert "HEARD, 10s ago: rank 0 of sft-1 (attempt 2)" in told
    assert "node agent" not in render_instances.instance_details({**view, "heartbeat": None}, NOW)


def test_a_rank_that_is_reported_no_longer_is_not_shown_as_heard() -> None:
    """While it has GPUs there, with the time of its last report; once they are free, not at all."""
    ranks = [
        {"job_id": job, "attempt": attempt, "rank": 0, "seen_at": f"2026-11-21T09:0{minute}:50.000Z"}
        for job, attempt, minute in (("sft-1", 1, 0), ("sft-1", 2, 2), ("sft-2", 1, 1), ("sft-3", 1, 0))
    ]
    beat = {"seen_at": "2026-11-21T09:02:50.000Z", "liveness": "HEARD", "ranks": ranks}
    view = {"instance_id": "i-1", "status": "AVAILABLE", "claims": {"sft-1": 2, "sft-2": 1}}
    told = render_instances.instance_details({**view, "heartbeat": beat}, NOW)
    assert "HEARD, 10s ago: rank 0 of sft-1 (attempt 2), rank 0 of sft-2 (attempt 1, last reported 1m10s ago)" in told
    assert "sft-3" not in told and "sft-1 (attempt 1)" not in told
    silent = {**beat, "ranks": ranks[:1]}
    assert "HEARD, 10s ago\n" in render_instances.instance_details({**view, "heartbeat": silent}, NOW)


def test_a_deaf_fleet_says_so() -> None:
    """Who looks at the brakes at night must see why nothing is concluded."""
    deaf = {"since": "2026-11-21T09:00:00.000Z", "because": "5 of 8 instances do not report", "incident_id": "s"}
    view = json.loads((HERE / "fleet.json").read_text())
    assert "5 of 8 instances do not report" in fleet.fleet({**view, "deaf": deaf}, NOW)
    assert "deaf" not in fleet.fleet(view, NOW)


def _elastic(instances: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    """The view of a job of two to four instances."""
    spec = JobSpec("sft", 4, 8, "gpu-training", nnodes_min=2)
    job = Job("sft-1", spec, NOW, NOW, attempt=len(instances) and 1, instances=instances, **fields)
    return job_view(job, PRESETS[Preset.ADAPTIVE])


def test_an_elastic_job_shows_its_instances_and_its_range() -> None:
    """Before its first attempt it has none."""
    view, new = _elastic(("i-1", "i-2", "i-3"), status=JobStatus.RUNNING), _elastic()
    assert (view["nnodes"], view["nnodes_min"], view["width"]) == (4, 2, 3)
    assert (new["nnodes"], new["nnodes_min"], new["width"]) == (4, 2, None)
    assert render_jobs.size(view, words=True) == "instances: 3 of 2..4, with 8 GPUs each"
    assert render_jobs.size(new, words=True) == "instances: 2 to 4, with 8 GPUs each"
    assert (render_jobs.size(view), render_jobs.size(new)) == ("3/2..4x8", "2..4x8")


RESULTS = {
    "attempt": 1,
    "ranks": 4,
    "reported": 3,
    "passed": {"gpu_count": 3},
    "not_run": {"dcgm_level_1": 2},
    "others": [
        {
            "rank": 2,
            "instance_id": "i-0bbb00000000000b2",
            "step": "dcgm_level_1",
            "result": "inconclusive",
            "seconds": 15.0,
            "sentence": "dcgmi did not end in time",
        }
    ],
    "apart": {"i-0bbb00000000000b2": "its preflight: dcgm_level_1 inconclusive: dcgmi did not end in time"},
}


class Explaining:
    """A client that knows one job and its explanation."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job, self.explained = job, 0

    def job(self, job_id: str) -> dict[str, Any]:
        return self._job

    def explain(self, job_id: str) -> dict[str, Any]:
        self.explained += 1
        return {"pending": None, "preflight": RESULTS}

    def instance(self, instance_id: str) -> dict[str, Any]:
        return {"instance_id": instance_id, "history": []}


@pytest.mark.parametrize("preflight", ["off", "quick"])
def test_the_results_of_a_preflight_are_explained_also_after_the_failure(
    incident: dict[str, Any], preflight: str
) -> None:
    """A step that was not run is never counted among those that passed. Other jobs cost no further request."""
    client = Explaining({**incident["job"], "status": "STOPPING", "preflight": preflight, "instances": ["i-1"]})
    story = timeline.gather(client, "sft")  # type: ignore[arg-type]
    text = timeline.explanation(story, NOW)
    shown = preflight == "quick"
    assert (client.explained, story["preflight"]) == ((1, RESULTS) if shown else (0, None))
    for sentence in (
        "preflight: 3 of 4 ranks have reported",
        "preflight, passed on ranks: gpu_count 3",
        "preflight, not run on ranks: dcgm_level_1 2",
        "preflight of rank 2 on i-0bbb00000000000b2: dcgm_level_1 inconclusive: dcgmi did not end in time",
        "preflight: checked first after a failure: i-0bbb00000000000b2",
    ):
        assert (sentence in text) is shown
    assert ("quick" in render_jobs.job_details(client.job(""), NOW)) is shown
