"""The queue through the HTTP API: dry runs, explanations, the line, quotas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from gpu_recovery.aws.dynamodb import plain
from gpu_recovery.aws.instance_index import SHARDS
from gpu_recovery.aws.queue_store import WAITING
from gpu_recovery.core import events
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.instance.record import Claim, InstanceStatus, RepairHold, RepairLevel, RepairNeed
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.job.spec import Backend
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery.core.state_machine import HistoryEntry
from gpu_recovery.job_api.pagination import PAGE_MAX
from gpu_recovery.job_api.placement_preview import VIEW_CACHE_TTL, read_queue_view
from gpu_recovery.job_api.routes import queue

from tests.aws.records import JOB, NOW, OTHER_JOB, A, B, instance, job, later, spec
from tests.job_api.submissions import ASKED
from tests.lambdas.api_gateway import Api, refused, user_token, with_ray
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
C = "i-0cccccccccccccccc"
PRIORITIES = ["EXTREME_HIGH", "VERY_HIGH", "HIGH", "ABOVE_NORMAL", "NORMAL", "LOW"]
NOTHING = {"jobs": 0, "instances": 0, "gpus": 0}
PLAIN = {"would_start", "instances", "short_of", "sentence", "position", "blockers", "earliest_at"}
PLAIN |= {"would_suspend", "as_of"}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on a cluster of two free instances."""
    functions.now = later(3_600)
    for one in (A, B):
        functions.store.save_instance(instance(one))
    return Api(functions)


def runs(api: Api, job_id: str, *where: str, **changes: Any) -> None:
    """A job of bob's that has run on whole instances for an hour."""
    own = spec(user="bob", nnodes=len(where), priority=Priority.LOW)
    fields: dict[str, Any] = {
        "spec": own,
        "status": JobStatus.RUNNING,
        "attempt": 1,
        "instances": where,
        "running_at": NOW,
        "quota_nodes": len(where),
    }
    api.functions.store.create_job(job(job_id, **fields | changes), "")
    for one in where:
        assert api.functions.store.claim_instance(one, job_id, Claim(1, 8, 0), None)


# -- dry run -----------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_where_a_job_would_start(api: Api) -> None:
    """And keeps nothing: no write, no message."""
    answer = api.post("/jobs", ASKED, dry_run="1")
    assert answer.status == 200 and set(answer.body) == PLAIN | {"timeout_warnings", "recovery_expectation"}
    assert (answer.body["would_start"], sorted(answer.body["instances"])) == (True, [A, B])
    assert (answer.body["short_of"], answer.body["position"], answer.body["would_suspend"]) == (None, None, [])
    operations = api.functions.aws.operations()
    assert not {"PutItem", "UpdateItem", "TransactWriteItems", "SendMessage"} & set(operations)


def test_a_dry_run_says_why_a_job_would_wait(api: Api) -> None:
    """What it is short of, its place in line, whom it waits for and until when, in a sentence and in fields."""
    runs(api, "other", A, spec=spec(user="bob", nnodes=1, max_runtime_s=7_200))
    body = api.post("/jobs", ASKED, dry_run="1").body
    assert (body["would_start"], body["short_of"], body["position"]) == (False, "gpus", 1)
    assert body["blockers"] == ["other"] and body["earliest_at"] == "2026-11-21T11:00:00.000Z"
    assert body["sentence"] and body["would_suspend"] == []


def test_a_dry_run_says_whom_the_job_would_suspend(api: Api) -> None:
    """And suspends nobody."""
    runs(api, "low-1", A)
    before = api.functions.job("low-1")
    body = api.post("/jobs", ASKED | {"priority": "HIGH"}, dry_run="1").body
    assert (body["would_start"], body["short_of"], body["would_suspend"]) == (False, "room", ["low-1"])
    assert api.functions.job("low-1") == before


def test_a_dry_run_knows_who_is_before_it(api: Api) -> None:
    """It joins the line as the last of its priority."""
    api.functions.store.create_job(job("first"), "")
    body = api.post("/jobs", ASKED | {"user": "eve"}, dry_run="1").body
    assert (body["would_start"], body["position"]) == (False, 2)
    assert api.post("/jobs", ASKED | {"priority": "HIGH"}, dry_run="1").body["would_start"] is True


def test_a_dry_run_knows_the_users_quota(api: Api) -> None:
    """Full now, though the whole of it would do."""
    api.functions.store.save_instance(instance(C))
    api.functions.store.save_limits({"instances": {"ana/*/*": 2}}, 0)
    token = user_token(api, "ana")
    asked = {name: value for name, value in ASKED.items() if name != "user"}
    assert api.post("/jobs", asked | {"nnodes": 2}, token=token, dry_run="1").body["would_start"] is True
    held = spec(user="ana", nnodes=1)
    runs(api, "mine", C, spec=held)
    counted = {"job_id_rank": "#quota/ana/NORMAL/", "used": 1}
    api.functions.store.jobs.put(counted, "attribute_not_exists(job_id_rank)")
    body = api.post("/jobs", asked | {"nnodes": 2}, token=token, dry_run="1").body
    assert (body["would_start"], body["short_of"]) == (False, "quota")


@pytest.mark.parametrize("change", [{"nnodes": 0}, {"nnodes": 3}, {"user": 7}, {"group": "h100"}])
def test_a_dry_run_refuses_what_submitting_refuses(api: Api, change: Any) -> None:
    """So that its yes can be trusted."""
    answer = api.post("/jobs", ASKED | change, dry_run="1")
    assert answer.body == api.post("/jobs", ASKED | change).body and answer.status == 422


def test_a_dry_run_is_1_or_0(api: Api) -> None:
    """Whoever writes `true` must not get a job."""
    refused(api.post("/jobs", ASKED, dry_run="true"), 400, "dry_run")
    assert "TransactWriteItems" not in api.functions.aws.operations()


def test_a_dry_run_of_a_job_on_ray_says_that_it_cannot_tell(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool is counted where it can be reached."""
    with_ray(api, monkeypatch)
    asked = {"workload": "ppo", "nnodes": 4, "n_gpus_per_node": 8, "backend": "ray", "entrypoint": "python ppo.py"}
    body = api.post("/jobs", asked, dry_run="1").body
    assert body["would_start"] is False and "Ray" in body["sentence"]


@pytest.mark.parametrize("status", [JobStatus.LOST, JobStatus.RUNNING, JobStatus.SUBMITTED, JobStatus.STOPPING])
def test_the_queue_shows_the_status_of_a_placed_job(api: Api, status: JobStatus) -> None:
    """A LOST job is not shown as if it ran."""
    runs(api, "placed", A, status=status)
    (one,) = api.get("/queue").body["running"]
    assert one["status"] == status


@pytest.mark.parametrize(
    ("status", "shown"),
    [(JobStatus.RUNNING, "RUNNING"), (JobStatus.STOPPING, "STOPPING"), (JobStatus.SUBMITTED, "SUBMITTING")],
)
def test_an_entry_of_an_older_release_shows_the_status_as_far_as_it_can(
    api: Api, status: JobStatus, shown: str
) -> None:
    """Until the next decision about the job writes the entry anew."""
    runs(api, "placed", A, status=status)
    item = plain(api.functions.kept()["placed"])
    entry = {name: value for name, value in json.loads(item["line_entry"]).items() if name != "status"}
    api.functions.store.jobs.put(item | {"line_entry": json.dumps(entry)}, "attribute_exists(job_id_rank)")
    assert [one["status"] for one in api.get("/queue").body["running"]] == [shown]


def test_no_start_is_promised_on_an_instance_that_an_operator_quarantines(api: Api) -> None:
    """Dry run, queue and explanation say at once that it is quarantined, and none of them names a start on it."""
    assert api.post("/jobs", ASKED, dry_run="1").body["instances"] == [A, B]
    api.post(f"/instances/{B}/quarantine", {"because": "a fan is loud"})
    job_id = api.post("/jobs", ASKED).body["job_id"]
    previews = (api.post("/jobs", ASKED, dry_run="1").body, api.get(f"/jobs/{job_id}/explain").body["pending"])
    for told in previews:
        assert (told["would_start"], told["instances"], told["earliest_at"]) == (False, [], None)
        assert told["sentence"].endswith("the cluster has 1, used or free; 1 is quarantined")
    assert all(B not in reservation["hosts"] for reservation in api.get("/queue").body["reservations"])


def test_a_job_that_fits_but_for_held_instances_is_told_so_everywhere(api: Api) -> None:
    """Dry run, queue and explanation name the circuit breaker and its time. The cluster is not too small."""
    held = {"need": RepairNeed(RepairLevel.REBOOT, "XID 79", NOW), "held": RepairHold(NOW, "the breaker is open")}
    here = api.functions.store.load_instance(B)
    assert here is not None
    api.functions.store.save_instance(replace(here, status=InstanceStatus.QUARANTINED, **held))
    api.functions.store.save_fleet(Fleet(gpu_instances=2, opened_at=api.functions.now, opened_because="2 of 2"))
    sentence = (
        "needs 2 instance(s) with 8 GPU(s) each; the cluster has 1, used or free; "
        "1 is held by the circuit breaker until 10:15:00 UTC at the earliest"
    )
    body = api.post("/jobs", ASKED, dry_run="1").body
    assert (body["short_of"], body["sentence"]) == ("held", sentence)
    job_id = api.post("/jobs", ASKED).body["job_id"]
    api.functions.call("scheduler", {"Records": [{"body": "{}"}]})
    (waiting,) = api.get("/queue").body["waiting"]
    pending = api.get(f"/jobs/{job_id}/explain").body["pending"]
    assert waiting["short_of"] == pending["short_of"] == "held"
    assert waiting["sentence"] == pending["sentence"] == sentence
    assert api.get(f"/jobs/{job_id}").body["reason"] == sentence


# -- explain -----------------------------------------------------------------------------------------------------------


def test_a_waiting_job_is_explained_by_the_next_pass(api: Api) -> None:
    """What it waits for now, and every decision so far, the oldest first."""
    history = (
        HistoryEntry(NOW, "", JobStatus.QUEUED, "JobSubmitted", 0, "submitted by ana"),
        HistoryEntry(later(5), JobStatus.QUEUED, JobStatus.PENDING_RESOURCES, "ResourcesShort", 0, "short"),
    )
    runs(api, "other", A)
    api.functions.store.create_job(job(status=JobStatus.PENDING_RESOURCES, reason="short", history=history), "")
    body = api.get(f"/jobs/{JOB}/explain").body
    assert (body["job_id"], body["status"], body["reason"]) == (JOB, "PENDING_RESOURCES", "short")
    assert set(body["pending"]) == PLAIN and body["pending"]["position"] == 1
    assert [entry["reason"] for entry in body["decisions"]] == ["submitted by ana", "short"]


@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.DIAGNOSING])
def test_a_job_that_is_not_in_line_waits_for_nothing_of_the_queue(api: Api, status: JobStatus) -> None:
    """The queue is not read for it."""
    api.functions.store.create_job(job(status=status), "")
    assert api.get(f"/jobs/{JOB}/explain").body["pending"] is None
    assert api.functions.aws.operations("dynamodb") == {"GetItem": 1}


@pytest.mark.parametrize(
    "changes",
    [{"status": JobStatus.SUSPENDED, "held": True}, {"spec": spec(backend=Backend.RAY, entrypoint="python x.py")}],
)
def test_a_job_that_no_pass_considers_says_why_itself(api: Api, changes: dict[str, Any]) -> None:
    """Held by a person, or on Ray: its own reason is the sentence."""
    api.functions.store.create_job(job(reason="because of something", **changes), "")
    pending = api.get(f"/jobs/{JOB}/explain").body["pending"]
    assert (pending["would_start"], pending["sentence"], pending["position"]) == (False, "because of something", None)


def test_a_job_that_cools_down_says_until_when(api: Api) -> None:
    """It is in line, and not considered before."""
    api.functions.store.create_job(job(status=JobStatus.PENDING_RESOURCES, not_before=later(4_000)), "")
    assert "10:06:40" in api.get(f"/jobs/{JOB}/explain").body["pending"]["sentence"]


def passes(api: Api, key: str, seconds: int) -> JobStatus:
    """A pass of the scheduler so many seconds later, asked for by `key`; the job's status then."""
    api.functions.now += timedelta(seconds=seconds)
    api.functions.call("scheduler", {"Records": [{"body": json.dumps({"key": key})}]})
    return api.functions.job().status


def test_a_job_that_lost_the_race_for_its_gpus_is_tried_again_after_a_minute(api: Api) -> None:
    """Seed 004's `next_run_at`, in the listing and by itself."""
    store, recovery = api.functions.store, import_module("gpu_recovery.aws.wiring").recovery()
    store.create_job(job(), "")
    store.claim_instance(B, "faster", Claim(1, 8, 0), None)
    at = api.functions.now
    recovery.handle(JOB, events.JobPlaced(at=at, attempt=0, version=1, instances=(A, B), epochs=(0, 0)))
    assert api.functions.job().status is JobStatus.PENDING_RESOURCES
    (listed,) = api.get("/jobs").body["jobs"]
    assert listed["next_run_at"] == api.get(f"/jobs/{JOB}").body["next_run_at"] == "2026-11-21T10:01:00.000Z"
    store.release_instance(B, "faster", False, 1)
    assert passes(api, "#tick/0", 59) is JobStatus.PENDING_RESOURCES
    assert "10:01:00" in api.get(f"/jobs/{JOB}/explain").body["pending"]["sentence"]
    assert passes(api, "#tick/1", 1) is JobStatus.SUBMITTED
    assert api.get(f"/jobs/{JOB}").body["next_run_at"] is None


@pytest.mark.parametrize("changes", [{"held": True, "status": JobStatus.SUSPENDED}, {"status": JobStatus.CANCELED}])
def test_a_job_that_is_not_tried_again_by_itself_names_no_time(api: Api, changes: dict[str, Any]) -> None:
    """Held it waits for a person, ended for nothing."""
    api.functions.store.create_job(job(not_before=later(4_000), **changes), "")
    assert api.get(f"/jobs/{JOB}").body["next_run_at"] is None


def test_an_explanation_of_nothing_is_404(api: Api) -> None:
    """As everywhere."""
    assert JOB in refused(api.get(f"/jobs/{JOB}/explain"), 404)


# -- the line ----------------------------------------------------------------------------------------------------------


def test_the_queue_shows_the_line_what_runs_and_what_is_used(api: Api) -> None:
    """Each job in its order with what it is short of; quotas as used and limit; the reservation of the head."""
    api.functions.store.create_job(job(OTHER_JOB, queued_at=later(1)), "")
    api.functions.store.create_job(job(status=JobStatus.PENDING_RESOURCES), "")
    held = {"status": JobStatus.SUSPENDED, "held": True, "queued_at": later(-1)}
    api.functions.store.create_job(job("held", **held), "")
    runs(api, "low-1", A, spec=spec(user="bob", nnodes=1, max_runtime_s=7_200))
    api.functions.store.save_limits({"instances": {"ana/NORMAL/": 4, "*/*/*": 9}}, 0)
    api.functions.store.jobs.put({"job_id_rank": "#quota/bob/NORMAL/", "used": 1}, "attribute_not_exists(job_id_rank)")
    body = api.get("/queue").body
    assert [(one["job_id"], one["position"], one["short_of"], one["status"]) for one in body["waiting"]] == [
        (JOB, 1, "gpus", "PENDING_RESOURCES"),
        (OTHER_JOB, 2, "turn", "QUEUED"),
        ("held", None, None, "SUSPENDED"),
    ]
    assert "suspended by a user" in body["waiting"][2]["sentence"]
    (one,) = body["running"]
    assert one == {
        "job_id": "low-1",
        "name": None,
        "status": "RUNNING",
        "user": "bob",
        "priority": "NORMAL",
        "group": "",
        "nodes": 1,
        "nodes_max": None,
        "gpus": 8,
        "since": "2026-11-21T09:00:00.000Z",
        "ends_at": "2026-11-21T11:00:00.000Z",
        "can_suspend": True,
        "backend": "ecs",
    }
    assert body["quotas"] == [
        {"user": "ana", "priority": "NORMAL", "group": "", "used": 0, "limit": 4},
        {"user": "bob", "priority": "NORMAL", "group": "", "used": 1, "limit": 9},
    ]
    (promised,) = body["reservations"]
    assert (promised["job_id"], sorted(promised["hosts"]), promised["at"]) == (JOB, [A, B], "2026-11-21T11:00:00.000Z")


def test_a_quota_is_shown_before_anything_of_it_is_used(api: Api) -> None:
    """Of whoever waits by the entry that limits it; an entry for anybody that nobody falls under, as it was written."""
    api.functions.store.create_job(job(), "")
    limits = {"ana/*/*": 4, "*/LOW/*": 10, "bob/*/h100": 2, "*/*/*": 9, "eve/LOW/": 2, "eve/HIGH/": 1}
    api.functions.store.save_limits({"instances": limits}, 0)
    assert api.get("/queue").body["quotas"] == [
        {"user": "ana", "priority": "NORMAL", "group": "", "used": 0, "limit": 4},
        {"user": "eve", "priority": "HIGH", "group": "", "used": 0, "limit": 1},
        {"user": "eve", "priority": "LOW", "group": "", "used": 0, "limit": 2},
        {"user": "*", "priority": "*", "group": "*", "used": 0, "limit": 9},
        {"user": "*", "priority": "LOW", "group": "*", "used": 0, "limit": 10},
        {"user": "bob", "priority": "*", "group": "h100", "used": 0, "limit": 2},
    ]


def test_a_demotion_shows_in_the_priority_and_not_in_the_one_asked_for(api: Api) -> None:
    """After half an hour ABOVE_NORMAL is NORMAL."""
    own = spec(priority=Priority.ABOVE_NORMAL)
    api.functions.store.create_job(job(spec=own, ran_s=1_800), "")
    (one,) = api.get("/queue").body["waiting"]
    assert (one["priority"], one["asked_priority"]) == ("NORMAL", "ABOVE_NORMAL")


def test_a_job_about_to_start_has_no_place_in_the_line(api: Api) -> None:
    """It is shown first, with the instances in its sentence."""
    api.functions.store.create_job(job(), "")
    (one,) = api.get("/queue").body["waiting"]
    assert (one["position"], one["short_of"]) == (None, None) and A in one["sentence"]


def test_what_runs_is_shown_when_nobody_waits(api: Api) -> None:
    """A pass of the scheduler reads no instances then; a person wants to see them used."""
    runs(api, "low-1", A)
    assert [one["job_id"] for one in api.get("/queue").body["running"]] == ["low-1"]


def forget_views() -> None:
    """Have the next page answered by another process of the function."""
    import_module("gpu_recovery.aws.job_api_wiring").dependencies().queue_views.forget()


@pytest.mark.parametrize("elsewhere", [False, True], ids=["of one process", "of other processes"])
@pytest.mark.parametrize("leave", [(), (0,), (1,), (0, 1)], ids=["nobody", "the first", "the last told", "both told"])
def test_the_line_is_shown_page_by_page(api: Api, leave: tuple[int, ...], elsewhere: bool) -> None:
    """In its order, each job once, though others leave it meanwhile and everybody behind them moves up; who runs and
    quotas are on the first page alone."""
    runs(api, "low-1", A)
    for n in range(9):
        api.functions.store.create_job(job(f"job-{n}", queued_at=later(n)), "")
    whole = [one["job_id"] for one in api.get("/queue").body["waiting"]]
    assert [one["position"] for one in api.get("/queue").body["waiting"]] == [*range(1, 10)]
    first = api.get("/queue", limit="3").body
    assert len(first["waiting"]) == 3 and first["running"] and first["quotas"]
    for n in leave:
        assert api.post(f"/jobs/{first['waiting'][n + 1]['job_id']}/cancel").status == 202
    seen, cursor = [one["job_id"] for one in first["waiting"]], first["next_cursor"]
    while cursor is not None:
        if elsewhere:
            forget_views()
        page = api.get("/queue", limit="3", cursor=cursor).body
        assert (page["running"], page["quotas"], page["reservations"], page["totals"]) == ([], [], [], [])
        seen += [one["job_id"] for one in page["waiting"]]
        cursor = page["next_cursor"]
    assert seen == whole


def test_further_pages_are_of_the_view_of_the_first_and_read_nothing(api: Api) -> None:
    """Fifty pages would else be fifty readings of the whole cluster. The view is kept for half a minute at most."""
    for n in range(6):
        api.functions.store.create_job(job(f"job-{n}", spec=spec(nnodes=9), queued_at=later(n)), "")
    first = api.get("/queue", limit="2").body
    api.functions.store.create_job(job("job-new", spec=spec(nnodes=9), queued_at=later(9)), "")
    second = api.get("/queue", limit="2", cursor=first["next_cursor"])
    assert api.functions.aws.count("dynamodb") == 0
    api.functions.now += VIEW_CACHE_TTL
    last = api.get("/queue", limit="9", cursor=second.body["next_cursor"])
    assert api.functions.aws.operations("dynamodb")["Query"] == len(WAITING) + 1 + SHARDS
    assert [one["job_id"] for one in last.body["waiting"]] == ["job-4", "job-5", "job-new"]
    assert api.get("/queue").body["waiting"] and api.functions.aws.operations("dynamodb")["Query"] > 0


def test_running_jobs_that_the_first_page_has_no_room_for_are_on_the_last(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response has six megabytes at most, and a large cluster runs eighty thousand jobs of one GPU."""
    assert queue.RUNNING_FIRST_MAX * 400 + PAGE_MAX * 1_000 < 6_000_000
    monkeypatch.setattr(queue, "RUNNING_FIRST_MAX", 2)
    for n in range(5):
        name = f"i-0{n:016x}"
        api.functions.store.save_instance(instance(name))
        runs(api, f"run-{n}", name, running_at=later(n))
    for n in range(3):
        api.functions.store.create_job(job(f"job-{n}", spec=spec(nnodes=9), queued_at=later(n)), "")
    pages = [api.get("/queue", limit="2").body]
    while pages[-1]["next_cursor"] is not None:
        pages.append(api.get("/queue", limit="2", cursor=pages[-1]["next_cursor"]).body)
    waiting = [[one["job_id"] for one in page["waiting"]] for page in pages]
    running = [[one["job_id"] for one in page["running"]] for page in pages]
    assert waiting == [["job-0", "job-1"], ["job-2"], []]
    assert running == [["run-0", "run-1"], ["run-2"], ["run-3", "run-4"]]


def test_the_answers_of_a_pass_are_gone_through_once_for_all_jobs(api: Api) -> None:
    """Fifty thousand times fifty thousand comparisons took a minute and a half."""
    for n in range(20):
        api.functions.store.create_job(job(f"job-{n}", spec=spec(nnodes=9), queued_at=later(n)), "")

    class Counted(tuple[Any, ...]):
        """A tuple that counts how often its items are gone through."""

        times = 0

        def __iter__(self) -> Iterator[Any]:
            Counted.times += 1
            return super().__iter__()

    view = read_queue_view(import_module("gpu_recovery.aws.job_api_wiring").dependencies().recovery)
    placement = replace(view.placement, rejected=Counted(view.placement.rejected))
    counted = replace(view, placement=placement)
    assert [counted.of(f"job-{n}") == view.of(f"job-{n}") for n in range(20)] == [True] * 20
    assert Counted.times == 1


def test_a_page_of_another_list_or_of_no_size_is_refused(api: Api) -> None:
    """Its cursor leads nowhere else."""
    for n in range(2):
        api.functions.store.create_job(job(f"job-{n}", spec=spec(nnodes=9), queued_at=later(n)), "")
    cursor = api.get("/queue", limit="1").body["next_cursor"]
    refused(api.get("/queue", limit="0"), 400, "limit")
    refused(api.get("/instances", cursor=cursor), 400, "cursor")


def test_an_empty_queue_is_shown_as_one(api: Api) -> None:
    """To viewers, too."""
    empty = {"waiting": [], "running": [], "quotas": [], "reservations": [], "next_cursor": None, "unreadable": []}
    empty["totals"] = [{"priority": name, "running": NOTHING, "queued": NOTHING} for name in PRIORITIES]
    assert api.get("/queue").body == empty
    assert api.call("GET", "/api/v2/queue", token=user_token(api, "ana", "viewer")).body == empty
