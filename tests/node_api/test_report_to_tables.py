"""A report all the way: from the request of an agent to the tables, and what each costs in calls."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.heartbeat import REPORTS_MAX, running_log_id
from gpu_recovery.core.job.lost_contact import EXIT_REPORT_WITHIN
from gpu_recovery.core.job.record import JobStatus

from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import JOB, NOW, OTHER_JOB, A, B, claim, instance, job, later
from tests.lambdas.conftest import Functions
from tests.lambdas.starting_states import gang
from tests.node_api.test_router import BEAT, BOOT, OLDER, REPORTS, ROLE, SIGNED, SIGNER, Agent, Ear

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
RANK = {"job": JOB, "attempt": 1, "rank": 0, "pid": 4242, "ticks": 99}


@pytest.fixture
def agent(functions: Functions) -> Agent:
    """The agent of instance A, on which rank 0 of a running gang has its GPUs; the hearing is the real one."""
    gang(functions, instances=(A, B))
    for rank, name in enumerate((A, B)):
        functions.store.save_instance(instance(name, claims={JOB: replace(claim(), rank=rank)}))
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken()))


def test_an_older_agents_tasks_are_known_by_their_logs(agent: Agent) -> None:
    """The number that we handed out counts; another instance's and an invented one do not."""
    logs = [running_log_id(JOB, 1, 0), running_log_id(JOB, 1, 1), running_log_id(JOB, 2, 0), 17]
    said = agent.older(OLDER[1], tasks=[{"running_log_id": str(log), "remote_pid": "1"} for log in logs])
    assert (said.status, said.body["updated"], said.body["revived"]) == (200, 1, 0)


def test_a_report_of_a_rank_that_is_not_there_is_refused_with_the_reason(agent: Agent) -> None:
    """Another attempt, or the same rank of the gang elsewhere: told to the agent, and written nowhere."""
    running = [RANK, RANK | {"attempt": 2}, RANK | {"rank": 1}]
    said = agent.call(REPORTS, BEAT | {"running": running})
    assert [(one["job"], one["attempt"]) for one in said.body["refused"]] == [(JOB, 2), (JOB, 1)]
    assert all(one["why"] for one in said.body["refused"])
    beat = agent.functions.store.load_heartbeats([A])[A]
    assert set(beat.ranks) == {str(running_log_id(JOB, 1, 0))} and beat.boot_id == BOOT


@pytest.mark.parametrize(
    "say",
    [
        lambda agent, n: agent.call(REPORTS, BEAT | {"sequence": n, "running": [RANK]}),
        lambda agent, n: agent.call(REPORTS, BEAT | {"sequence": n, "running": [RANK] * 8}),
        lambda agent, n: agent.older(OLDER[1], tasks=[{"running_log_id": running_log_id(JOB, 1, 0)}]),
    ],
    ids=["one rank", "eight ranks", "older"],
)
def test_a_heartbeat_is_one_call_once_its_token_is_known(agent: Agent, say: Callable[[Agent, int], Any]) -> None:
    """One write; with the token to be read anew, and the claims with it, two calls."""
    for number in (1, 2, 3):
        agent.functions.now = later(number * 15)
        assert say(agent, number).status == 200
    assert agent.functions.aws.operations() == {"UpdateItem": 1}
    agent.functions.now = later(90)
    assert say(agent, 4).status == 200
    assert agent.functions.aws.operations() == {"UpdateItem": 1, "BatchGetItem": 1}


MINUTES, BEAT_S = 15, 15
READS = ("GetItem", "BatchGetItem", "Query", "Scan")
SPOKEN_OF = [
    *(RANK | {"job": f"{JOB}-{n}", "pid": 100 + n} for n in range(6)),
    {"job": f"{JOB}-6", "attempt": 0, "rank": 0, "pid": 106, "ticks": 99},
    {"job": "nobodys", "attempt": 3, "rank": 0, "pid": 107, "ticks": 99},
]
"""Eight ranks: six of ours, one that a person started and that was told no attempt, and one that is not known there."""


def crowd(agent: Agent) -> None:
    """Instance A works for seven jobs, one GPU each."""
    claims = {f"{JOB}-{n}": replace(claim(), rank=0, gpus=1) for n in range(7)}
    agent.functions.store.save_instance(replace(agent.functions.instance(), claims=claims))


def beats_for_minutes(agent: Agent, running: list[dict[str, Any]], inventories: bool = True) -> list[Counter[str]]:
    """What each report of a quarter of an hour costs, as an agent makes them that sends inventories when it must."""
    costs, due, wanted = [], 0, False
    for number in range(MINUTES * 60 // BEAT_S):
        agent.functions.now = later(number * BEAT_S)
        body = BEAT | {"sequence": number + 1, "uptime_s": 600 + number * BEAT_S, "running": running}
        body |= {"health": {"status": "ok", "digest": "d-1"}}
        if inventories and (wanted or number * BEAT_S >= due):
            body |= {"inventory": {"agent": "0.3.0", "driver": "580", "gpus": [{"uuid": "GPU-1", "power_w": number}]}}
            due = number * BEAT_S + 300
        said = agent.call(REPORTS, body)
        assert said.status == 200
        wanted = said.body["inventory"]
        costs.append(agent.functions.aws.operations("dynamodb"))
    return costs


def test_no_heartbeat_costs_more_than_two_calls_whatever_runs_there(agent: Agent) -> None:
    """A quarter of an hour: windows begin, tokens are read anew, inventories come, ranks are not told their attempt."""
    crowd(agent)
    first, *rest = beats_for_minutes(agent, SPOKEN_OF)
    assert first.total() == 5  # the token, the claims, two for the first item, the inventory
    assert max(cost.total() for cost in rest) == 2
    assert all(cost["UpdateItem"] == 1 for cost in rest)
    reads, kept = sum(cost[read] for cost in rest for read in READS), sum(cost["PutItem"] for cost in rest)
    assert reads == MINUTES - 1 and kept == MINUTES // 5 - 1
    # The token and the claims in one: with the token cached nothing is read, whoever runs there.
    assert {read for cost in rest for read in READS if cost[read]} == {"BatchGetItem"}
    beat, inventory = agent.functions.store.load_heartbeats([A])[A], agent.functions.store.load_inventory(A)
    assert {rank.seen_at for rank in beat.ranks.values()} == {later(MINUTES * 60 - BEAT_S)} and len(beat.ranks) == 7
    assert inventory is not None and inventory[2] >= later(600)


def test_ranks_that_were_told_who_they_are_cost_no_read_of_their_own(agent: Agent) -> None:
    """Their claims are read with the token, once a minute: with it cached there is no read."""
    crowd(agent)
    _, *rest = beats_for_minutes(agent, SPOKEN_OF[:6], inventories=False)
    assert all(cost in (Counter(UpdateItem=1), Counter(UpdateItem=1, BatchGetItem=1)) for cost in rest)
    assert sum(cost["BatchGetItem"] for cost in rest) == MINUTES - 1


def test_an_instance_without_ranks_has_its_token_read_alone(agent: Agent) -> None:
    """There is nothing to confirm, so the record of the instance is not read."""
    _, *rest = beats_for_minutes(agent, [], inventories=False)
    assert all(cost in (Counter(UpdateItem=1), Counter(UpdateItem=1, GetItem=1)) for cost in rest)
    assert sum(cost["GetItem"] for cost in rest) == MINUTES - 1


def test_a_rank_without_an_attempt_is_of_the_attempt_that_has_the_gpus_within_a_minute(agent: Agent) -> None:
    """What it was taken for is believed no longer than a token is; another process is asked about at once."""
    crowd(agent)
    beats_for_minutes(agent, SPOKEN_OF[6:7], inventories=False)
    again = replace(agent.functions.instance(), claims={f"{JOB}-6": replace(claim(2), rank=0, gpus=1)})
    agent.functions.store.save_instance(again)
    begun = MINUTES * 60

    def attempt_seen(after: int, **rank: int) -> int:
        at = begun + after
        agent.functions.now = later(at)
        body = BEAT | {"sequence": at, "uptime_s": 600 + at, "running": [SPOKEN_OF[6] | rank]}
        assert agent.call(REPORTS, body).status == 200
        seen = agent.functions.store.load_heartbeats([A])[A].ranks.values()
        return next(one.attempt for one in seen if one.seen_at == later(at))

    assert attempt_seen(0, pid=207) == 2
    assert attempt_seen(75) == 2


UNTOLD = SPOKEN_OF[6]
LOG_OF_NOBODY = 4_711


@dataclass
class Beats:
    """Says at a second of the day who runs on instance A, by our agent or by GPUTasker's, and what that cost."""

    agent: Agent
    sequence: int = 0

    def ours(self, at: int, *running: dict[str, Any]) -> Counter[str]:
        self.agent.functions.now, self.sequence = later(at), self.sequence + 1
        body = BEAT | {"sequence": self.sequence, "uptime_s": 600 + at, "running": list(running)}
        assert self.agent.call(REPORTS, body).status == 200
        return self.agent.functions.aws.operations("dynamodb")

    def gputaskers(self, at: int, *logs: int) -> Counter[str]:
        self.agent.functions.now = later(at)
        assert self.agent.older(OLDER[1], tasks=[{"running_log_id": log} for log in logs]).status == 200
        return self.agent.functions.aws.operations("dynamodb")

    def claims(self, attempt: int, *jobs: str) -> None:
        claims = {one: replace(claim(attempt), rank=0, gpus=1) for one in jobs}
        self.agent.functions.store.save_instance(replace(self.agent.functions.instance(), claims=claims))

    def seen(self, at: int) -> set[tuple[str, int]]:
        """Whose ranks, and of which attempt, were seen at that second."""
        ranks = self.agent.functions.store.load_heartbeats([A])[A].ranks.values()
        return {(one.job_id, one.attempt) for one in ranks if one.seen_at == later(at)}


WRITE, WITH_BOTH = Counter(UpdateItem=1), Counter(UpdateItem=1, BatchGetItem=1)


def test_a_rank_without_an_attempt_follows_its_claim_with_the_next_reading_of_the_token(agent: Agent) -> None:
    """The job was launched anew, and the process is the same: a minute later it is of the attempt that has the GPUs."""
    beats = Beats(agent)
    beats.claims(1, UNTOLD["job"])
    beats.ours(0, UNTOLD)
    beats.claims(2, UNTOLD["job"])
    assert [beats.ours(at, UNTOLD) for at in (15, 30, 45)] == [WRITE] * 3
    assert beats.seen(45) == {(UNTOLD["job"], 1)}
    assert beats.ours(60, UNTOLD) == WITH_BOTH
    assert beats.seen(60) == {(UNTOLD["job"], 2)}


def test_a_rank_that_nobody_knew_is_known_with_the_next_reading_of_the_token(agent: Agent) -> None:
    """A task that a person started may be reported before it is entered."""
    beats = Beats(agent)
    beats.claims(1)
    beats.ours(0, UNTOLD)
    beats.claims(1, UNTOLD["job"])
    assert (beats.ours(45, UNTOLD), beats.seen(45)) == (WRITE, set())
    assert (beats.ours(60, UNTOLD), beats.seen(60)) == (WITH_BOTH, {(UNTOLD["job"], 1)})


def test_what_was_read_with_a_token_speaks_for_whoever_the_report_names(agent: Agent) -> None:
    """Also for a rank that is seen for the first time: nothing is read twice."""
    beats = Beats(agent)
    beats.claims(1, UNTOLD["job"])
    beats.ours(0, UNTOLD)
    assert beats.ours(60, UNTOLD, UNTOLD | {"pid": 907}) == WITH_BOTH


def test_what_was_read_with_a_token_speaks_for_nobody_who_is_reported_later(agent: Agent) -> None:
    """A claim may have been made in between: a rank that is seen for the first time is looked up at once, and once."""
    beats = Beats(agent)
    beats.claims(1)
    beats.ours(0, UNTOLD)
    assert beats.ours(60) == WITH_BOTH
    beats.claims(1, UNTOLD["job"])
    another = UNTOLD | {"pid": 907}
    assert (beats.ours(75, another), beats.seen(75)) == (WRITE + Counter(GetItem=1), {(UNTOLD["job"], 1)})
    assert beats.ours(90, another) == WRITE


def test_two_agents_of_one_instance_make_each_others_ranks_no_dearer(agent: Agent) -> None:
    """GPUTasker's and ours, with tasks of GPUTasker's own that nobody here has launched: one call and two by turns."""
    beats = Beats(agent)
    beats.claims(1, UNTOLD["job"])
    beats.ours(0, UNTOLD)
    beats.gputaskers(1, LOG_OF_NOBODY)
    costs = []
    for at in range(15, 600, 15):
        costs += [beats.ours(at, UNTOLD), beats.gputaskers(at + 1, LOG_OF_NOBODY)]
    assert costs.count(WITH_BOTH) == 600 // 60 - 1
    assert costs.count(WRITE) == len(costs) - costs.count(WITH_BOTH)


def test_who_has_ended_is_asked_about_no_more(agent: Agent) -> None:
    """Then a token is read alone again, as where all ranks were told who they are."""
    beats = Beats(agent)
    beats.claims(1, UNTOLD["job"])
    beats.ours(0, UNTOLD)
    costs = [beats.ours(at) for at in range(15, 300, 15)]
    assert [cost for cost in costs if cost != WRITE] == [WITH_BOTH] * 2 + [WRITE + Counter(GetItem=1)] * 2


def test_a_signed_report_reads_the_claims_once_a_minute(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no token to read them with."""
    monkeypatch.setenv("NODE_ROLE_ARNS", ROLE)
    beats = Beats(agent)
    beats.claims(1, UNTOLD["job"])
    costs = []
    for at in range(0, 300, 15):
        agent.functions.now = later(at)
        body = BEAT | {"sequence": at + 1, "uptime_s": 600 + at, "running": [UNTOLD]}
        assert agent.call(SIGNED, body, headers={}, signer=SIGNER.format(A)).status == 200
        costs.append(agent.functions.aws.operations("dynamodb"))
    assert max(cost.total() for cost in costs[1:]) == 2
    assert sum(cost["GetItem"] for cost in costs[1:]) == 300 // 60 - 1


def test_a_report_that_comes_late_is_stale(agent: Agent) -> None:
    """409 with the newest number; the same report again, after a lost answer, is heard."""
    assert agent.call(REPORTS, BEAT | {"sequence": 5}).status == 200
    agent.functions.now = later(15)
    said = agent.call(REPORTS, BEAT | {"sequence": 4})
    assert (said.status, said.body["error"], said.body["last"]) == (409, "stale_sequence", 5)
    assert agent.call(REPORTS, BEAT | {"sequence": 5}).status == 200


def test_an_inventory_is_asked_for_until_it_is_there(agent: Agent) -> None:
    """By its digest: sent once, and not again while it stays the same."""
    health = {"status": "ok", "digest": "d-1"}
    inventory = {"agent": "0.3.0", "driver": "580", "gpus": [{"uuid": "GPU-1", "power_w": 700.5}]}
    wishes = [
        agent.call(REPORTS, BEAT | {"sequence": number, "health": health} | more).body["inventory"]
        for number, more in enumerate([{}, {"inventory": inventory}, {}], 1)
    ]
    assert wishes[0] is True and wishes[2] is False
    kept = agent.functions.store.load_inventory(A)
    assert kept is not None and kept[0] == "d-1" and "power_w" in kept[1]


def test_a_failure_that_an_agent_reports_is_looked_into_soon(agent: Agent) -> None:
    """Its word alone ends nothing: within a minute ECS is asked, if it has not told by itself."""
    said = agent.call(REPORTS, BEAT | {"exits": [RANK | {"signal": 9, "age_s": 0.5}]})
    assert said.status == 200
    job = agent.functions.job()
    assert job.status is JobStatus.RUNNING
    assert job.look_at is not None and NOW < job.look_at <= later(60)


@pytest.mark.parametrize(
    ("changed", "polled"),
    [
        ({}, True),
        ({"unchanged_s": 59.0}, False),
        ({"paused": "evaluation"}, False),
        ({"steps": 10}, False),
        ({"steps": None}, False),
        ({"job": OTHER_JOB}, False),
    ],
)
def test_a_rank_that_stands_still_for_too_long_has_the_gang_polled_now(
    agent: Agent, changed: dict[str, Any], polled: bool
) -> None:
    """The command is left to the executor, and the same stall brings the poll forward once in half a minute."""
    progress = {"type": "progress", "job": JOB, "attempt": 1, "rank": 0, "value": 40, "unchanged_s": 61.5}
    progress |= {"steps": 35, "step_s": 2.5, "slowest_s": 4.0, "age_s": 0.1} | changed
    for number in (1, 2):
        body = BEAT | {"sequence": number, "running": [RANK], "diagnosis": [{"id": f"p{number}"} | progress]}
        assert agent.call(REPORTS, body).status == 200
    job = agent.functions.job()
    orders = [type(pending.command).__name__ for pending in job.commands]
    assert orders == (["ObserveAttempt"] if polled else [])
    assert job.look_at == (later(120) if polled else None)
    decided = [line for line in agent.functions.logged("job_decided") if line["event_type"] == "StallReported"]
    assert [line["outcome"] for line in decided] == (["APPLIED", "IGNORED"] if polled else [])


def test_an_instance_that_reports_all_the_time_is_told_to_wait(agent: Agent) -> None:
    """429 with Retry-After, after 300 reports in five minutes."""
    answers = [agent.call(REPORTS, BEAT | {"sequence": number}).status for number in range(1, 305)]
    assert answers[:300] == [200] * 300 and 429 in answers[300:]


def test_the_limit_is_that_of_a_token_and_one_that_floods_silences_no_other(agent: Agent) -> None:
    """One holder of a token misbehaves: they are told to wait, and the instance is heard with its other token."""
    second, others = (
        issue(agent.tokens, NODE_KEY, A, NOW, "a test", AskedToken()),
        issue(agent.tokens, NODE_KEY, B, NOW, "a test", AskedToken()),
    )
    sequences = itertools.count(1)

    def statuses(token: str, reports: int) -> Counter[int]:
        return Counter(
            agent.call(REPORTS, BEAT | {"sequence": next(sequences)}, token=token).status for _ in range(reports)
        )

    assert statuses(agent.issued.token, REPORTS_MAX + 9) == {200: REPORTS_MAX, 429: 9}
    assert agent.older(OLDER[1], tasks=[]).body["error"] == "too_many"
    assert statuses(second.token, 20) == {200: 20}
    assert agent.functions.aws.operations() == {"UpdateItem": 1}
    assert statuses(others.token, 1) == {200: 1}
    assert statuses(agent.issued.token, 1) == {429: 1}


def test_a_signed_report_has_a_limit_of_its_own(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no token, and who may sign may do so as often as who has one."""
    monkeypatch.setenv("NODE_ROLE_ARNS", ROLE)
    said = [
        agent.call(SIGNED, BEAT | {"sequence": number}, headers={}, signer=SIGNER.format(A)).status
        for number in range(1, REPORTS_MAX + 3)
    ]
    assert Counter(said) == {200: REPORTS_MAX, 429: 2}
    assert agent.call(REPORTS, BEAT | {"sequence": REPORTS_MAX + 5}).status == 200


# -- what trainings tell -----------------------------------------------------------------------------------------------

OF_A_TRAINING = {"type": "progress", "job": JOB, "attempt": 1, "rank": 0, "value": 5, "age_s": 2}


def told(*numbers: int, **changes: Any) -> dict[str, Any]:
    """A body's list of progress reports."""
    return {"diagnosis": [OF_A_TRAINING | {"id": f"0a1b2c3d-{n}"} | changes for n in numbers]}


def test_what_a_training_tells_is_kept_beside_its_attempt(agent: Agent) -> None:
    """By the server's clock less its age; a heartbeat with it is one read and one write more, and only that one."""
    assert agent.call(REPORTS, BEAT | {"sequence": 1, "running": [RANK]}).status == 200
    agent.functions.now = later(15)
    said = agent.call(REPORTS, BEAT | {"sequence": 2, "running": [RANK]} | told(1, 2))
    assert said.status == 200 and "left_out" not in said.body
    assert agent.functions.aws.operations() == {"UpdateItem": 1, "GetItem": 1, "PutItem": 1}
    found = agent.functions.store.observations_of(JOB, 1, (A,))[A]
    assert [one.report_id for one in found.reports] == [f"{A}/0a1b2c3d-1", f"{A}/0a1b2c3d-2"]
    assert {(one.at_s, one.instance_id) for one in found.reports} == {(later(13).timestamp(), A)}
    agent.functions.now = later(30)
    assert agent.call(REPORTS, BEAT | {"sequence": 3, "running": [RANK], "diagnosis": []}).status == 200
    assert agent.functions.aws.operations() == {"UpdateItem": 1}


def test_the_age_of_a_report_and_of_its_observation_add_up(agent: Agent) -> None:
    """The report was 4 s under way, and the observation was 2 s old when the agent reported."""
    said = agent.call(REPORTS, BEAT | {"sequence": 1, "age_s": 4, "running": [RANK]} | told(1))
    assert said.status == 200
    (kept,) = agent.functions.store.observations_of(JOB, 1, (A,))[A].reports
    assert kept.at_s == later(-6).timestamp()


def test_a_heartbeat_that_is_repeated_brings_nothing_twice(agent: Agent) -> None:
    """Its answer was lost: it comes again, with more beside it."""
    for sequence, numbers in ((1, (1, 2)), (1, (1, 2)), (2, (1, 2, 3))):
        body = BEAT | {"sequence": sequence, "running": [RANK]} | told(*numbers)
        assert agent.call(REPORTS, body).status == 200
    assert len(agent.functions.store.observations_of(JOB, 1, (A,))[A].reports) == 3


def test_the_last_word_of_a_rank_counts_after_its_end(agent: Agent) -> None:
    """It is told with the heartbeat after the crash, when the instance may be nobody's any more."""
    assert agent.call(REPORTS, BEAT | {"sequence": 1, "running": [RANK]}).status == 200
    agent.functions.store.release_instance(A, JOB, False)
    agent.functions.chill()
    assert "left_out" not in agent.call(REPORTS, BEAT | {"sequence": 2, "running": []} | told(1)).body
    assert len(agent.functions.store.observations_of(JOB, 1, (A,))[A].reports) == 1


def test_a_token_tells_of_its_own_instance_only(agent: Agent) -> None:
    """Reports of an attempt that is not there are left out, and the agent hears how many; the others are kept."""
    body = told(1) | {"diagnosis_lost": 4}
    body["diagnosis"] += told(2, attempt=2)["diagnosis"] + told(3, job="sft-x")["diagnosis"] + [{"type": "exit"}]
    said = agent.call(REPORTS, BEAT | {"sequence": 1, "running": [RANK]} | body)
    assert (said.status, said.body["left_out"]) == (200, 3)
    found = agent.functions.store.observations_of(JOB, 1, (A,))[A]
    assert len(found.reports) == 1 and found.lost == 7
    assert agent.functions.store.observations_of(JOB, 2, (A,)) == {}
    assert agent.functions.store.observations_of("sft-x", 1, (A,)) == {}


@pytest.mark.parametrize(
    "foreign",
    [{"job": OTHER_JOB}, {"rank": 1}, {"attempt": 2}, {"job": "sft-x"}],
    ids=["a job on another instance", "a rank on another instance", "another attempt", "no such job"],
)
def test_an_exit_concerns_ranks_of_the_agents_own_instance_only(agent: Agent, foreign: dict[str, Any]) -> None:
    """The token of one instance causes no read, no decision and no poll of ranks that are not there."""
    gang(agent.functions, OTHER_JOB, instances=(B,))
    ended = {"job": JOB, "attempt": 1, "rank": 0, "code": 1, "age_s": 1}
    assert agent.call(REPORTS, BEAT | {"sequence": 1, "running": [RANK]}).status == 200
    assert agent.call(REPORTS, BEAT | {"sequence": 2, "running": [], "exits": [ended | foreign] * 32}).status == 200
    assert agent.functions.aws.operations() == {"UpdateItem": 1, "GetItem": 1}  # the heartbeat and its claims
    assert agent.functions.logged("job_decided") == agent.functions.logged("record_unknown") == []
    assert agent.functions.job(JOB).look_at is agent.functions.job(OTHER_JOB).look_at is None
    assert agent.call(REPORTS, BEAT | {"sequence": 3, "running": [], "exits": [ended]}).status == 200
    assert agent.functions.job(JOB).look_at == agent.functions.now + EXIT_REPORT_WITHIN


def test_a_persons_task_that_was_told_no_attempt_tells_of_the_one_that_is_there(agent: Agent) -> None:
    """As its heartbeat does."""
    said = agent.call(REPORTS, BEAT | {"sequence": 1, "running": [RANK | {"attempt": 0}]} | told(1, attempt=0))
    assert "left_out" not in said.body
    assert len(agent.functions.store.observations_of(JOB, 1, (A,))[A].reports) == 1


def test_where_jobs_share_an_instance_nobody_speaks_for_another(agent: Agent) -> None:
    """Any process there may write to the socket, in any job's name: what is told is left out."""
    other, store = "sft-20261121-100000-00ff", agent.functions.store
    store.create_job(job(other, status=JobStatus.RUNNING, attempt=1, instances=(A,)), "")
    store.claim_instance(A, other, replace(claim(1), rank=0), None)
    ranks = [RANK, RANK | {"job": other, "pid": 4243}]
    said = agent.call(REPORTS, BEAT | {"sequence": 1, "running": ranks} | told(1, 2))
    assert (said.status, said.body["left_out"]) == (200, 2)
    assert store.observations_of(JOB, 1, (A,)) == {}


@pytest.mark.parametrize("diagnosis", ["text", {}, [None], [{"type": "stage"}] * 200])
def test_no_word_of_a_training_silences_its_instance(agent: Agent, diagnosis: Any) -> None:
    """Only a body that is no JSON is refused."""
    said = agent.call(REPORTS, BEAT | {"sequence": 1, "running": [RANK], "diagnosis": diagnosis})
    assert said.status == 200 and said.body["left_out"] >= 1
    assert A in agent.functions.store.load_heartbeats([A])
