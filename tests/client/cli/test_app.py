"""The command line: each verb in words and as JSON, its exit codes, and what it never prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpu_recovery_client.cli import app
from typer.testing import CliRunner, Result

from tests.client.conftest import without_history

HERE = Path(__file__).parents[1]
JOB = "sft-20261121-090000-1a2b"
INSTANCE = "i-0aaa00000000000a1"
TOKEN = "a-token-that-nobody-may-see"
SPEC = {"workload": "sft", "nnodes": 2, "n_gpus_per_node": 8, "task_definition": "gpu-training"}
OPTIONS = ("--workload", "sft", "--nnodes", "2", "--gpus-per-node", "8", "--task-definition", "gpu-training")
READS = [
    ("status", JOB),
    ("list",),
    ("list", "--all"),
    ("explain", JOB),
    ("instances",),
    ("instances", INSTANCE),
    ("logs", JOB),
    ("queue",),
    ("quota show",),
]
FLEET = ("fleet",), ("fleet pause", "--because", "new image"), ("fleet unpause",), ("fleet reset-breaker",)
LETTERS = ("redrive", "--dry-run"), ("redrive",)
ORDERS = ("quarantine", INSTANCE), ("release", INSTANCE), ("explain", INSTANCE)
ON_JOBS = ("cancel", JOB), ("suspend", JOB, "--because", "a demo"), ("resume", JOB), ("submit", *OPTIONS)
DRY = ("submit", "--dry-run", *OPTIONS)
LIMITS = ("quota set", "ana/NORMAL/a100=6")
VERBS = [*READS, *ON_JOBS, *ORDERS, *FLEET, *LETTERS, DRY, LIMITS]
Run = Callable[..., Result]


def answer_to(verb: tuple[str, ...], api: Any) -> dict[str, Any]:
    """What the API answers to a verb: the view, the first page, or all pages as one."""
    listed, machines = ([without_history(one) for one in views] for views in (api.jobs, api.instances))
    limits = api.queue["quotas"]["limits"]
    after = limits | {"instances": limits["instances"] | {"ana/NORMAL/a100": 6}}
    answers: dict[tuple[str, ...], dict[str, Any]] = {
        ("list",): {"jobs": listed[:2], "next_cursor": "2", "unreadable": []},
        ("list", "--all"): {"jobs": listed, "next_cursor": None, "unreadable": []},
        ("explain", JOB): {
            "job": api.jobs[0],
            "pending": None,
            "preflight": None,
            "instances": api.instances,
            "left_out": [],
        },
        ("instances",): {"instances": machines, "next_cursor": None, "unreadable": []},
        ("instances", INSTANCE): api.instances[0],
        **dict.fromkeys(ORDERS, api.instances[0]),
        **dict.fromkeys(FLEET, api.fleet),
        ("redrive", "--dry-run"): api.dead_letters,
        ("redrive",): api.redriven,
        ("logs", JOB): api.queue["logs"],
        ("queue",): api.queue["queue"],
        ("quota show",): api.queue["quotas"],
        DRY: api.queue["pending"],
        LIMITS: {"limits": after, "revision": 8},
    }
    job: dict[str, Any] = api.jobs[0]
    return answers.get(verb, job)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_json_equals_the_answer_of_the_api(run: Run, api: Any, verb: tuple[str, ...]) -> None:
    """One JSON document on stdout, nothing added and nothing lost."""
    name, *rest = verb
    result = run(*name.split(), "--json", *rest)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == answer_to(verb, api)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_words_are_plain_text_without_colour(run: Run, verb: tuple[str, ...]) -> None:
    """Human output has no escape sequence, no trailing space, and ends its last line."""
    result = run(*verb[0].split(), *verb[1:])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.isprintable() or set(filter(lambda c: not c.isprintable(), result.stdout)) == {"\n"}
    assert result.stdout.endswith("\n")
    assert [line for line in result.stdout.splitlines() if line != line.rstrip()] == []


def test_explain_prints_the_golden_text(run: Run) -> None:
    """The verb gathers the job and both instances; a pipe gets whole lines."""
    assert run("explain", JOB).stdout == (HERE / "explain.txt").read_text()


def test_explain_goes_on_without_an_instance_that_is_not_known(run: Run, api: Any) -> None:
    """The rest of the story is told, and what is missing is named."""
    api.instances = api.instances[1:]
    result = run("explain", JOB)
    assert result.exit_code == 0
    assert "without the history of i-0aaa00000000000a1" in result.stdout
    assert "its GPUs passed their check" in result.stdout


def test_explain_asks_for_a_bounded_number_of_instances(run: Run, api: Any) -> None:
    """A job on a thousand instances does not take a thousand requests."""
    api.jobs[0]["instances"] = [f"i-{n:017x}" for n in range(1_000)]
    story = json.loads(run("explain", "--json", JOB).stdout)
    assert len(api.requests) == 2 + 32
    assert len(story["instances"]) + len(story["left_out"]) == 1_002
    assert story["instances"][0]["instance_id"] == "i-0aaa00000000000a1"


def test_explain_fails_when_an_instance_cannot_be_read(run: Run, api: Any) -> None:
    """A server error is no gap in the story but a failure."""

    def answer(request: httpx.Request) -> httpx.Response:
        if "/instances/" in request.url.path:
            return httpx.Response(500, json={"title": "broken"})
        return httpx.Response(200, json=api.jobs[0] | {"decisions": [], "pending": None})

    api.answer = answer
    result = run("explain", JOB)
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "gpu-recovery: broken (500)\n")


def test_explain_tells_what_would_have_been_done(run: Run, api: Any) -> None:
    """Observe-only is worth nothing unless its decisions can be read."""
    would = "observe-only: it would be REBOOTING: XID 79; the orders would be DrainInstance, RebootInstance"
    entry = {
        "at": "2026-11-21T09:02:09.000Z",
        "from": "CHECKING",
        "to": "AVAILABLE",
        "event": "CheckEnded",
        "attempt": 1,
        "reason": would,
    }
    api.instances[0]["history"].append(entry)
    api.jobs[0]["history"].append({**entry, "from": "RUNNING", "to": "RUNNING", "reason": f"of the job: {would}"})
    told = run("explain", JOB).stdout
    assert told.count(would) == 2 and f"of the job: {would}" in told
    assert would in run("explain", INSTANCE).stdout


def test_an_instance_shows_what_is_known_of_it(run: Run, api: Any) -> None:
    """Why it takes no work must not have to be asked twice."""
    api.instances[0] |= {
        "health": {"SYSTEM_STATUS": {"status": "IMPAIRED", "since": "2026-11-21T09:00:00.000Z", "sentence": "power"}},
        "departure": {"kind": "RETIREMENT", "leaves_at": "2026-11-22T09:03:00.000Z", "source": "e", "sentence": "old"},
        "need": {"rung": "REPLACE", "evidence": "XID 79", "seen_at": "2026-11-21T09:00:00.000Z", "job_id": None},
        "held": {"since": "2026-11-21T09:02:00.000Z", "because": "the circuit breaker is open"},
        "drained": True,
        "incident_id": "i-0aaa00000000000a1/7",
    }
    rows = dict(line.split("  ", 1) for line in run("instances", INSTANCE).stdout.splitlines() if "  " in line)
    told = {name.strip(): value.strip() for name, value in rows.items()}
    assert told["health"] == "SYSTEM_STATUS is IMPAIRED since 2026-11-21 09:00:00Z: power"
    assert told["leaves"] == "2026-11-22 09:03:00Z (in 1d00h): RETIREMENT, old"
    assert told["needs"] == "REPLACE: XID 79"
    assert told["repair held"] == "since 2026-11-21 09:02:00Z (1m00s): the circuit breaker is open"
    assert (told["drained"], told["incident"]) == ("by gpu-recovery", "i-0aaa00000000000a1/7")


def test_fleet_prints_the_golden_text(run: Run) -> None:
    """Budget, breaker, pause, what is held and what waits for a person."""
    assert run("fleet").stdout == (HERE / "fleet.txt").read_text()


def test_a_fleet_at_rest_says_so_in_a_few_lines(run: Run, api: Any) -> None:
    """Nothing held, nothing open, nobody paused it."""
    closed = {"state": "CLOSED", "since": None, "because": None, "probe": None, "probe_at": None, "blamed": {}}
    api.fleet |= {
        "repairing": [],
        "held": [],
        "for_a_person": [],
        "out_of_use": [],
        "pause": None,
        "observe_only": False,
    }
    api.fleet["breaker"] |= closed
    lines = run("fleet").stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "under repair",
        "instances with GPUs",
        "circuit breaker",
        "paused",
        "replacing",
    ]
    assert "CLOSED; opens when 4 instances are suspected at once" in lines[2] and lines[3].endswith("no")


def test_reasons_are_sent_as_they_were_given(run: Run, api: Any) -> None:
    """They are what somebody finds at night."""
    run("fleet", "pause", "--because", "new driver")
    run("quarantine", INSTANCE, "--because", "smells of smoke")
    run("release", INSTANCE)
    sent = [(request.url.path.removeprefix("/prod/api/v2"), request.content) for request in api.requests]
    assert [(path, json.loads(body) if body else None) for path, body in sent] == [
        ("/fleet/pause", {"because": "new driver"}),
        (f"/instances/{INSTANCE}/quarantine", {"because": "smells of smoke"}),
        (f"/instances/{INSTANCE}/release", None),
    ]


def test_redrive_asks_for_its_queue_and_says_what_stays(run: Run, api: Any) -> None:
    """What nobody can read is listed with the reason, and whoever waits for the end of it all hears by the code."""
    stays = {
        "queue": "failed",
        "message_id": "m-2",
        "for": None,
        "kept_because": "it contains no event (requestPayload)",
    }
    api.redriven = api.redriven | {"letters": [*api.redriven["letters"], stays], "left": {"failed": 1}}
    result = run("redrive", "--queue", "failed", "--limit", "5")
    told = result.stdout
    assert result.exit_code == run("redrive", "--json").exit_code == 1
    assert dict(api.requests[0].url.params) == {"queue": "failed", "limit": "5"}
    assert "sent again" in told and "stays: it contains no event (requestPayload)" in told
    assert told.endswith("messages left, approximately: failed 1\n")


def test_a_redrive_that_broke_off_says_why_and_is_1(run: Run, api: Any) -> None:
    """After what became of the letters before."""
    api.redriven |= {"stopped_because": "ConnectionError: no answer"}
    result = run("redrive")
    assert result.exit_code == 1
    assert "sent again" in result.stdout and result.stdout.endswith(
        "stopped before the end: ConnectionError: no answer\n"
    )


@pytest.mark.parametrize("verb", [("instances",), ("list",), ("list", "--all")], ids=" ".join)
def test_what_the_api_cannot_read_is_named_on_stderr_and_is_1(run: Run, api: Any, verb: tuple[str, ...]) -> None:
    """A list that lacks some is not passed off as whole, neither to people nor to programs."""
    api.page_size, api.unreadable = 10, ["record x: a \x1b[2J schema"]
    for more in ((), ("--json",)):
        result = run(*verb, *more)
        assert result.exit_code == 1
        assert result.stderr == "gpu-recovery: not shown, because the record cannot be read: record x: a ?[2J schema\n"
    assert json.loads(result.stdout)["unreadable"] == api.unreadable


def test_a_fleet_with_an_instance_that_cannot_be_read_says_so(run: Run, api: Any) -> None:
    """A look at it fails; an order was followed, whatever else cannot be shown."""
    api.fleet |= {"unreadable": ["instance i-2: no schema"]}
    looked, ordered = run("fleet", "--json"), run("fleet", "unpause")
    assert (looked.exit_code, json.loads(looked.stdout)) == (1, api.fleet)
    assert (ordered.exit_code, ordered.stderr) == (0, looked.stderr)
    assert looked.stderr == "gpu-recovery: not shown, because the record cannot be read: instance i-2: no schema\n"


@pytest.mark.parametrize("verb", FLEET[1:], ids=" ".join)
def test_json_may_be_asked_for_before_an_order_to_the_fleet(run: Run, api: Any, verb: tuple[str, ...]) -> None:
    """`fleet --json pause` prints what `fleet pause --json` does."""
    group, order = verb[0].split()
    result = run(group, "--json", order, *verb[1:])
    assert (result.exit_code, json.loads(result.stdout)) == (0, api.fleet)


def test_a_dry_run_takes_nothing(run: Run, api: Any) -> None:
    """It only looks, at one queue if asked so."""
    told = run("redrive", "--dry-run", "--queue", "failed").stdout
    assert [request.method for request in api.requests] == ["GET"]
    assert told.startswith("failed  messages: 2\n") and "undelivered" not in told
    assert "would be sent" in told


def test_submit_sends_only_what_was_given(run: Run, api: Any) -> None:
    """Options become fields; the API's defaults stay the API's."""
    assert run("submit", *OPTIONS).exit_code == 0
    assert json.loads(api.requests[0].content) == SPEC


def test_submit_takes_every_field_and_the_command_as_it_is(run: Run, api: Any) -> None:
    """Words after -- are the command's, options among them."""
    more = ("--container", "trainer", "--user", "me", "--attempts-max", "2", "--max-runtime-s", "600")
    env = ("--env", "A=1", "--env", "B=x=y", "--env", "C=")
    assert run("submit", *OPTIONS, *more, *env, "--", "python", "train.py", "--json", "-f", "x").exit_code == 0
    assert json.loads(api.requests[0].content) == SPEC | {
        "container": "trainer",
        "user": "me",
        "attempts_max": 2,
        "max_runtime_s": 600,
        "env": {"A": "1", "B": "x=y", "C": ""},
        "command": ["python", "train.py", "--json", "-f", "x"],
    }


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_submit_reads_a_document_and_options_win(run: Run, api: Any, tmp_path: Path, source: str) -> None:
    """Fields of the document are kept, those with an option replaced, and env is joined."""
    text = json.dumps(SPEC | {"nnodes": 8, "env": {"A": "1", "B": "2"}, "command": ["sh"]})
    (tmp_path / "job.json").write_text(text)
    file = str(tmp_path / "job.json") if source == "file" else "-"
    assert run("submit", "--file", file, "--nnodes", "2", "--env", "B=3", stdin=text).exit_code == 0
    assert json.loads(api.requests[0].content) == SPEC | {"env": {"A": "1", "B": "3"}, "command": ["sh"]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("submit",), "a job needs --workload, --nnodes, --gpus-per-node, --task-definition"),
        (("submit", *OPTIONS[2:]), "a job needs --workload;"),
        (("submit", *OPTIONS, "--env", "A"), "'A' is not NAME=VALUE"),
        (("submit", *OPTIONS, "--env", "=A"), "'=A' is not NAME=VALUE"),
        (("submit", *OPTIONS, "--nnodes", "two"), "--nnodes: must be a whole number or MIN..MAX, not 'two'"),
        (("submit", "--file", "absent.json"), "absent.json cannot be read: No such file or directory"),
        (("submit", "--file", "."), ". cannot be read: Is a directory"),
        (("submit", "--file", "-"), "- is not JSON"),
        (("status",), "Error: JOB is needed"),
        (("list", "--limit", "0"), "--limit: must be a whole number from 1 to 200, not '0'"),
        (("log", JOB), "there is no verb log; did you mean logs"),
        (("logs", JOB, "--tail", "0"), "--tail: must be a whole number of at least 1, not '0'"),
        (("logs", JOB, "-f", "--json"), "does not go with --follow"),
        (("list", "--since", "soon"), "must be how long ago, such as 2h"),
        (("list", "--since", "9999999999d"), "--since: is too long ago"),
        (("list", "--since", "99999999999d"), "--since: is too long ago"),
        (("submit", "--example", "--backend", "k8s"), "--backend: must be one of ecs, ray, not 'k8s'"),
        (("submit", "--wait", "--dry-run", *OPTIONS), "a dry run creates no job to wait for"),
        (("submit", *OPTIONS, "python", "train.py"), "the command of the ranks begins after --"),
        (("submit", *OPTIONS, "--backend", "ray"), "a job needs --entrypoint;"),
        (("quota", "set"), "give at least one limit"),
        (("quota", "set", "ana=4"), "'ana=4' is not USER/PRIORITY/GROUP=NUMBER"),
        (("quota", "set", "ana/SOME/a100=4"), "'SOME' is no priority: one of EXTREME_HIGH,"),
        (("quota", "set", "--max-running-jobs", "0"), "must be a whole number of at least 1, or none"),
        (("fleet", "pause"), "Error: --because is needed"),
        (("fleet", "resume"), "there is no verb resume"),
        (("quarantine",), "Error: ID is needed"),
        (("redrive", "--queue", "mine"), "--queue: must be one of failed, undelivered, scheduler, not 'mine'"),
        (("redrive", "--limit", "101"), "--limit: must be a whole number from 1 to 100, not '101'"),
        (
            ("sandbox", "fault", "--instance", "i-1", "--kind", "fire"),
            "--kind: must be one of xid79, xid119, ecc, hang, agent_lost, spot, kill, not 'fire'",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_usage_error_is_2_and_asks_nothing(run: Run, api: Any, arguments: tuple[str, ...], text: str) -> None:
    """What is wrong with the command line is said on stderr before any request."""
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in " ".join(result.stderr.split())
    assert api.requests == []


@pytest.mark.parametrize("text", ["[]", '"job"', '{"env": [], "workload": "a"}'])
def test_a_document_of_the_wrong_kind_is_a_usage_error(run: Run, api: Any, text: str) -> None:
    """A job is an object, and so is its env where --env is to be added."""
    result = run("submit", "--file", "-", "--env", "A=1", stdin=text)
    assert result.exit_code == 2
    assert "--file" in result.stderr
    assert api.requests == []


def test_a_refusal_is_1_and_shows_its_field(run: Run, api: Any) -> None:
    """The problem document's title, field and detail are one line on stderr, what to do is the next."""
    body = {"title": "Invalid job", "status": 400, "detail": "must be a whole number", "field": "nnodes"}
    api.answer = lambda request: httpx.Response(400, json=body)
    result = run("submit", "--json", *OPTIONS)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "gpu-recovery: Invalid job (400): nnodes: must be a whole number\n"
        "  Correct the named value and send the request again. Nothing was changed.\n"
    )


def test_an_error_text_cannot_steer_the_terminal(run: Run, api: Any) -> None:
    """What a server writes into its error is shown, not obeyed."""
    api.answer = lambda request: httpx.Response(500, json={"title": "bad \x1b[2J luck"})
    assert run("list").stderr == "gpu-recovery: bad ?[2J luck (500)\n"


@pytest.mark.parametrize("verb", [("status", "no"), ("explain", "no"), ("cancel", "no"), ("instances", "no")])
def test_an_unknown_id_is_1(run: Run, verb: tuple[str, ...]) -> None:
    """A 404 is said in the API's words, and where to look ids up."""
    result = run(*verb)
    assert (result.exit_code, result.stderr) == (
        1,
        "gpu-recovery: Not Found (404): there is no no\n"
        "  `gpu-recovery list` and `gpu-recovery instances` show the ids.\n",
    )


def test_a_service_that_does_not_answer_is_1(run: Run, api: Any) -> None:
    """The address is named."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    api.answer = fail
    result = run("list")
    assert result.exit_code == 1
    assert result.stderr == (
        "gpu-recovery: cannot reach https://api.example.test/prod: refused\n"
        "  Check the address in GPU_RECOVERY_API_URL, --api-url or the profile, and the network.\n"
        "  The deployment was https://api.example.test/prod, from options and environment.\n"
    )


def test_missing_settings_are_2() -> None:
    """Without an address there is nothing to ask."""
    result = CliRunner().invoke(app.app, ["list"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "GPU_RECOVERY_API_URL" in result.stderr


def test_options_before_the_verb_choose_the_deployment(run: Run, api: Any) -> None:
    """--api-url and --token win over the environment."""
    result = run("--api-url", "https://other.test/prod", "--token", "other", "list")
    assert str(api.requests[0].url).startswith("https://other.test/prod/api/v2/jobs")
    assert api.requests[0].headers["authorization"] == "Bearer other"
    assert (result.exit_code, result.stderr) == (
        1,
        "gpu-recovery: Unauthorized (401): give the operator token as a bearer token\n"
        "  Check the token in GPU_RECOVERY_TOKEN, --token or the profile. An operator issues a new token with"
        " `gpu-recovery token issue --user NAME`.\n"
        "  The deployment was https://other.test/prod, from options and environment.\n",
    )


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_no_verb_prints_the_token(run: Run, api: Any, verb: tuple[str, ...], broken: bool) -> None:
    """Neither when all is well nor when the server repeats the token in its error."""
    if broken:
        api.answer = lambda request: httpx.Response(500, json={"title": f"bad {TOKEN}", "detail": TOKEN})
    name, *rest = verb
    for result in (run(*name.split(), *rest), run(*name.split(), "--json", *rest)):
        assert result.exit_code == int(broken)
        assert TOKEN not in result.output + result.stderr


def test_help_shows_the_verbs_and_no_token(run: Run) -> None:
    """The verbs of the command line, in the order of use."""
    text = run("--help").stdout
    verbs = [
        "submit",
        "status",
        "list",
        "logs",
        "explain",
        "queue",
        "cancel",
        "suspend",
        "resume",
        "instances",
        "quarantine",
        "release",
        "fleet",
        "redrive",
        "console",
        "token",
        "quota",
        "sandbox",
        "simulate",
    ]
    positions = [text.index(f"\n  {verb} ") for verb in verbs]
    assert positions == sorted(positions)
    assert TOKEN not in text
