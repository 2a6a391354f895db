"""`gpu-recovery submit` from documents, under a key, dry, and with somebody who waits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
import yaml
from gpu_recovery.job_api.job_spec import parse_spec
from gpu_recovery.job_api.yaml_reader import read_yaml
from gpu_recovery_client.cli import submit
from gpu_recovery_client.cli.submit_options import node_count
from typer.testing import Result

JOB = "sft-20261121-090000-1a2b"
YAML = """\
# fine-tuning, the seventeenth try
workload: sft
nnodes: 2
n_gpus_per_node: 8
task_definition: gpu-training
env: {LEARNING_RATE: "0.1"}
"""
SPEC = {
    "workload": "sft",
    "nnodes": 2,
    "n_gpus_per_node": 8,
    "task_definition": "gpu-training",
    "env": {"LEARNING_RATE": "0.1"},
}
OPTIONS = ("--workload", "sft", "--nnodes", "2", "--gpus-per-node", "8", "--task-definition", "gpu-training")
Run = Callable[..., Result]


@pytest.fixture
def yaml_file(tmp_path: Path) -> str:
    """A job in YAML, as somebody wrote it."""
    (tmp_path / "job.yaml").write_text(YAML)
    return str(tmp_path / "job.yaml")


def moves(api: Any, *views: dict[str, Any] | httpx.Response | type[httpx.TransportError]) -> None:
    """From the submission on, the job is in these states, one for each look at it."""
    story: Iterator[Any] = iter(views)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(201, json={"job_id": JOB, "status": "QUEUED", "reason": "submitted"})
        if request.url.path.endswith("/explain"):
            return httpx.Response(200, json={"decisions": [], "pending": api.queue["pending"]})
        one = next(story)
        if isinstance(one, type):
            raise one("away", request=request)
        return one if isinstance(one, httpx.Response) else httpx.Response(200, json={"job_id": JOB, **one})

    api.answer = answer


def at(status: str, reason: str = "") -> dict[str, Any]:
    """A job in this state since a minute ago."""
    return {"status": status, "reason": reason, "status_at": "2026-11-21T09:02:00.000Z"}


# -- documents ---------------------------------------------------------------------------------------------------------


def test_a_document_of_a_template_is_sent_as_it_was_written(run: Run, api: Any, tmp_path: Path) -> None:
    """The API makes its command, so none is missing."""
    text = "template: verl\nworkload: ppo\ncode_path: /private/verl\nnnodes: 2\nn_gpus_per_node: 4\n"
    (tmp_path / "job.yaml").write_text(text)
    assert run("submit", str(tmp_path / "job.yaml")).exit_code == 0
    assert api.requests[-1].content.decode() == text


@pytest.mark.parametrize("way", ["FILE", "--file", "stdin"])
def test_a_yaml_document_goes_as_it_was_written(run: Run, api: Any, yaml_file: str, way: str) -> None:
    """With its comments: the API keeps the text."""
    arguments = {"FILE": (yaml_file,), "--file": ("--file", yaml_file), "stdin": ("-",)}[way]
    assert run("submit", *arguments, stdin=YAML).exit_code == 0
    (request,) = api.requests
    assert request.content.decode() == YAML
    assert request.headers["content-type"] == "application/yaml"


def test_a_json_document_goes_as_it_was_written(run: Run, api: Any, tmp_path: Path) -> None:
    """Down to its spaces."""
    text = json.dumps(SPEC, indent=3)
    (tmp_path / "job.json").write_text(text)
    assert run("submit", str(tmp_path / "job.json")).exit_code == 0
    assert (api.requests[0].content.decode(), api.requests[0].headers["content-type"]) == (text, "application/json")


def test_an_option_wins_over_its_field_of_a_yaml_document(run: Run, api: Any, yaml_file: str) -> None:
    """What is sent then is the sum of both."""
    more = ("--priority", "HIGH", "--group", "a100", "--user", "ana", "--nnodes", "4", "--env", "A=1")
    assert run("submit", yaml_file, *more, "--", "python", "train.py", "--wait").exit_code == 0
    assert json.loads(api.requests[0].content) == SPEC | {
        "priority": "HIGH",
        "group": "a100",
        "user": "ana",
        "nnodes": 4,
        "command": ["python", "train.py", "--wait"],
        "env": {"LEARNING_RATE": "0.1", "A": "1"},
    }


def test_options_may_stand_before_and_after_the_file(run: Run, api: Any, yaml_file: str) -> None:
    """Nobody remembers an order."""
    run("submit", "--priority", "HIGH", yaml_file)
    run("submit", yaml_file, "--priority", "HIGH")
    assert [json.loads(one.content) for one in api.requests] == [SPEC | {"priority": "HIGH"}] * 2


def test_a_job_on_ray_needs_its_entrypoint_and_no_task_definition(run: Run, api: Any) -> None:
    """Each backend asks for its own."""
    assert run("submit", *OPTIONS[:-2], "--backend", "ray", "--entrypoint", "python train.py").exit_code == 0
    assert json.loads(api.requests[0].content) == {
        "workload": "sft",
        "nnodes": 2,
        "n_gpus_per_node": 8,
        "backend": "ray",
        "entrypoint": "python train.py",
    }


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("job.yaml", "workload: [sft", "is not YAML"),
        ("job.yaml", "a: !!python/object/apply:os.system [ls]", "is not YAML"),
        ("job.yaml", "a: 2026-99-99", "is not YAML"),
        ("job.yaml", "- sft\n- ppo\n", "does not hold an object of named fields"),
        ("job.yaml", "1: sft\n", "does not hold an object of named fields"),
        ("job.yaml", "", "does not hold an object of named fields"),
        ("job.json", YAML, "is not JSON"),
        ("job.json", "[" * 100_000, "is not JSON"),
        ("job.txt", "neither of both", "is not JSON: "),
        ("job.yaml", "workload: sft\n", "a job needs --nnodes, --gpus-per-node, --task-definition;"),
        ("job.yaml", "a: " + "x" * 262_144, "262,144 are accepted"),
    ],
)
def test_a_document_that_is_no_job_is_a_usage_error(
    run: Run, api: Any, tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    """2, with what is wrong, before anything is sent."""
    (tmp_path / name).write_text(text)
    result = run("submit", str(tmp_path / name))
    assert (result.exit_code, api.requests) == (2, [])
    assert complaint in " ".join(result.stderr.split())


def test_bytes_that_are_no_text_are_a_usage_error(run: Run, api: Any, tmp_path: Path) -> None:
    """A picture is not a job."""
    (tmp_path / "job.yaml").write_bytes(b"workload: \xff\xfe")
    result = run("submit", str(tmp_path / "job.yaml"))
    assert (result.exit_code, api.requests) == (2, [])
    assert "is not UTF-8" in " ".join(result.stderr.split())


def test_two_documents_are_a_usage_error(run: Run, api: Any, yaml_file: str) -> None:
    """Which of them counts would be a guess."""
    result = run("submit", yaml_file, "--file", yaml_file)
    assert (result.exit_code, api.requests) == (2, [])
    assert "not in both" in result.stderr


# -- the key -----------------------------------------------------------------------------------------------------------


def test_each_call_has_a_key_of_its_own(run: Run, api: Any) -> None:
    """Two calls are two jobs; one call is one, however often its request is sent."""
    run("submit", *OPTIONS)
    run("submit", *OPTIONS)
    keys = [one.headers["idempotency-key"] for one in api.requests]
    assert len(set(keys)) == 2
    assert all(len(key) >= 32 and key.isascii() and key.isprintable() for key in keys)


def test_a_lost_answer_makes_no_second_job(run: Run, api: Any) -> None:
    """The API hears the submission twice, under one key."""

    def answer(request: httpx.Request) -> httpx.Response:
        api.answer = None
        api._submitted(request)
        raise httpx.ReadTimeout("lost", request=request)

    api.answer = answer
    result = run("submit", *OPTIONS)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (len(api.requests), len(api.keys)) == (2, 1)


def test_a_key_that_was_used_for_another_job_is_refused_with_advice(run: Run, api: Any) -> None:
    """Rather a question than the wrong job."""
    assert run("submit", *OPTIONS, "--idempotency-key", "k1").exit_code == 0
    result = run("submit", *OPTIONS, "--idempotency-key", "k1", "--nnodes", "3")
    assert result.exit_code == 1
    assert "leave --idempotency-key out, or give a new key" in result.stderr


def test_a_submission_that_nobody_answered_names_its_key(run: Run, api: Any) -> None:
    """With it one can find out, without making a second job."""

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("lost", request=request)

    api.answer = fail
    result = run("submit", *OPTIONS)
    key = api.requests[0].headers["idempotency-key"]
    assert result.exit_code == 1
    assert f"--idempotency-key {key}, which creates no second job" in result.stderr


# -- dry runs ----------------------------------------------------------------------------------------------------------


def test_a_dry_run_tells_why_not_and_keeps_nothing(run: Run, api: Any, yaml_file: str) -> None:
    """What is short, the place it would have, whom it would wait for, and the earliest start."""
    result = run("submit", yaml_file, "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "would wait      needs 8 instances, 3 are free",
        "short of        gpus",
        "position        2",
        "waits for       sft-20261121-085000-00a1",
        "earliest start  2026-11-21 09:33:00Z (in 30m00s)",
    ]
    (request,) = api.requests
    assert request.url.params["dry_run"] == "1" and api.keys == {}


def test_a_dry_run_tells_where_it_would_start_and_who_would_give_way(run: Run, api: Any) -> None:
    """Ids in full, to be looked at."""
    api.queue["pending"] |= {
        "would_start": True,
        "instances": ["i-0aaa00000000000a1", "i-0bbb00000000000b2"],
        "would_suspend": ["rl-20261121-080001-0001"],
    }
    assert run("submit", *OPTIONS, "--dry-run").stdout.splitlines() == [
        "would start    now",
        "on instances   i-0aaa00000000000a1, i-0bbb00000000000b2",
        "would suspend  rl-20261121-080001-0001",
    ]


def test_a_dry_run_admits_that_nobody_can_tell_when(run: Run, api: Any) -> None:
    """A blank would look like an oversight."""
    api.queue["pending"] |= {"earliest_at": None, "blockers": []}
    lines = run("submit", *OPTIONS, "--dry-run").stdout.splitlines()
    assert lines[-1] == "earliest start  unknown"
    assert not any(line.startswith("waits for") for line in lines)


def test_timeouts_that_do_not_fit_are_shown_wherever_the_job_is(run: Run, api: Any) -> None:
    """At submission beside the line of the job, in a dry run, and in status and explain."""
    warnings = [{"inner": "a", "inner_s": 2, "outer": "b", "outer_s": 1, "sentence": "a is 2 s and b is 1 s"}]
    api.jobs[0]["timeout_warnings"] = api.queue["pending"]["timeout_warnings"] = warnings
    submitted = run("submit", *OPTIONS, "--progress-timeout-s", "300")
    assert "timeouts: a is 2 s and b is 1 s" in submitted.stderr and "a is 2 s" not in submitted.stdout
    assert json.loads(api.requests[-1].content)["progress_timeout_s"] == 300
    for verb in (("submit", *OPTIONS, "--dry-run"), ("status", api.jobs[0]["job_id"])):
        assert "a is 2 s and b is 1 s" in run(*verb).stdout
    assert "timeouts: a is 2 s and b is 1 s" in run("explain", api.jobs[0]["job_id"]).stdout


def test_the_timeouts_of_a_running_rank_are_asked_for(run: Run, api: Any) -> None:
    """Only the explanation has them; the view of the job has those of its submission."""
    known = api._of_jobs
    seen = [{"sentence": "a is 3 s and b is 1 s"}]
    api._of_jobs = lambda request, path: (
        httpx.Response(200, json={"pending": None, "timeout_warnings": seen, "decisions": []})
        if path[-1] == "explain"
        else known(request, path)
    )
    api.jobs[0] |= {"status": "RUNNING", "timeout_warnings": [{"sentence": "a is 2 s and b is 1 s"}]}
    text = run("explain", api.jobs[0]["job_id"]).stdout
    assert "timeouts: a is 3 s and b is 1 s" in text and "a is 2 s" not in text


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "code"), [("SUCCEEDED", 0), ("FAILED", 1), ("CANCELED", 1)])
def test_waiting_ends_with_the_job_and_its_code(run: Run, api: Any, pauses: list[float], end: str, code: int) -> None:
    """Every change is told once, beside what is printed."""
    moves(
        api,
        at("PENDING_RESOURCES", "3 are free"),
        at("PENDING_RESOURCES", "3 are free"),
        at("RUNNING"),
        at(end, "over"),
    )
    result = run("submit", *OPTIONS, "--wait")
    assert (result.exit_code, result.stdout) == (code, f"{JOB}  {end}  over\n")
    assert result.stderr.splitlines() == [
        f"submitted {JOB}; Ctrl-C leaves the job running",
        "2026-11-21 09:02:00Z PENDING_RESOURCES: 3 are free",
        "2026-11-21 09:02:00Z RUNNING",
        f"2026-11-21 09:02:00Z {end}: over",
    ]
    assert len(pauses) == 3


def test_waiting_for_json_prints_the_end_alone(run: Run, api: Any) -> None:
    """One document on stdout: the job as it ended."""
    moves(api, at("RUNNING"), at("SUCCEEDED"))
    result = run("submit", *OPTIONS, "--wait", "--json")
    assert json.loads(result.stdout) == {"job_id": JOB, **at("SUCCEEDED")}


def test_waiting_outlasts_an_api_that_is_away_for_a_while(run: Run, api: Any) -> None:
    """A deployment's update must not end a night's watch."""
    moves(api, at("RUNNING"), httpx.ConnectError, httpx.Response(502), httpx.ReadTimeout, at("SUCCEEDED"))
    assert run("submit", *OPTIONS, "--wait").exit_code == 0


def test_waiting_outlasts_too_many_requests(run: Run, api: Any) -> None:
    """A refusal with 429, after the client's own retries, is no end of the wait."""
    refusals = [httpx.Response(429, json={"title": "Too many requests"}) for _ in range(6)]
    moves(api, at("RUNNING"), *refusals, at("SUCCEEDED"))
    assert run("submit", *OPTIONS, "--wait").exit_code == 0


def test_waiting_is_given_up_when_the_api_stays_away(run: Run, api: Any, pauses: list[float]) -> None:
    """After a minute, which the absences before it do not shorten."""
    moves(api, *[httpx.ConnectError] * 12, at("RUNNING"), *[httpx.ConnectError] * 13)
    result = run("submit", *OPTIONS, "--wait")
    assert result.exit_code == 1
    assert "cannot reach https://api.example.test/prod" in result.stderr
    assert len(pauses) == 12 + 1 + 12


def test_waiting_stops_at_once_when_the_api_refuses(run: Run, api: Any, pauses: list[float]) -> None:
    """A token that was revoked does not come back by itself."""
    moves(api, at("RUNNING"), httpx.Response(401, json={"title": "Unauthorized"}))
    result = run("submit", *OPTIONS, "--wait")
    assert (result.exit_code, len(pauses)) == (1, 1)
    assert "gpu-recovery: Unauthorized (401)" in result.stderr


def test_ctrl_c_leaves_the_job_running_and_says_so(run: Run, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is ordered; how to look and how to end it is told."""
    moves(api, at("RUNNING"))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(submit, "pause", interrupt)
    result = run("submit", *OPTIONS, "--wait")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1] == (
        f"{JOB} continues: `gpu-recovery status {JOB}` shows the job, `gpu-recovery cancel {JOB}` ends it"
    )
    assert [one.method for one in api.requests] == ["POST", "GET"]


# -- following, next commands, examples --------------------------------------------------------------------------------


def test_following_prints_the_log_and_ends_with_the_code_of_the_job(run: Run, api: Any) -> None:
    """The lines on stdout, what happened to the job on stderr."""
    views = iter([at("RUNNING"), at("FAILED", "exit code 1"), at("FAILED", "exit code 1")])

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            return httpx.Response(201, json={"job_id": JOB, "status": "QUEUED", "reason": "submitted"})
        if request.url.path.endswith("/logs"):
            return httpx.Response(200, json={"attempt": 1, "lines": [{"text": "step 1"}], "next_cursor": None})
        return httpx.Response(200, json={"job_id": JOB, "attempt": 1, **next(views)})

    api.answer = answer
    result = run("submit", *OPTIONS, "--follow")
    assert (result.exit_code, result.stdout) == (1, "step 1\n")
    assert result.stderr.splitlines() == [
        f"submitted {JOB}; Ctrl-C leaves the job running",
        f"{JOB} FAILED exit code 1",
    ]


def test_following_goes_with_no_document(run: Run, api: Any) -> None:
    """A log is no JSON."""
    assert (run("submit", *OPTIONS, "--follow", "--json").exit_code, api.requests) == (2, [])


def test_a_terminal_is_told_the_next_commands_and_a_script_is_not(
    run: Run, api: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, so that what reads stdout sees one line in either case."""
    assert run("submit", *OPTIONS).stderr == ""
    submit._name_next_commands(JOB)
    told = capsys.readouterr()
    assert told.out == ""
    assert [line.split(" # ")[0] for line in told.err.splitlines()] == [
        f"gpu-recovery logs {JOB} --follow",
        f"gpu-recovery status {JOB}",
        f"gpu-recovery explain {JOB}",
        f"gpu-recovery cancel {JOB}",
    ]


@pytest.mark.parametrize("backend", ["ecs", "ray"])
def test_the_example_is_a_job_that_the_api_accepts(run: Run, api: Any, backend: str) -> None:
    """With every commented field set, too; nothing is sent."""
    text = run("submit", "--example", "--backend", backend).stdout
    assert api.requests == []
    full = re.sub(r"^# ([a-z_]+: )", r"\1", text, flags=re.MULTILINE)
    assert full != text
    for document in (text, full):
        spec = parse_spec(read_yaml(document))
        assert spec == parse_spec(yaml.safe_load(document))
        assert spec.backend == backend


# -- mistakes in a document --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--priority", "HIGH")])
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("workload: ppo\n", "the key 'workload' is given twice (line "),
        ("command: &a [x]\n", "anchors and aliases are not accepted"),
    ],
)
def test_yaml_is_read_alike_with_and_without_options(
    run: Run, api: Any, tmp_path: Path, options: tuple[str, ...], line: str, complaint: str
) -> None:
    """An option must not decide whether a repeated key is an error: the last one would win silently."""
    (tmp_path / "job.yaml").write_text(YAML + line)
    result = run("submit", str(tmp_path / "job.yaml"), *options)
    assert (result.exit_code, api.requests) == (2, [])
    assert complaint in " ".join(result.stderr.split())


def test_a_mistyped_field_is_named_where_a_field_is_missing(run: Run, api: Any, tmp_path: Path) -> None:
    """`nodes` is what people write for `nnodes`."""
    (tmp_path / "job.yaml").write_text(YAML.replace("nnodes", "nodes"))
    result = run("submit", str(tmp_path / "job.yaml"))
    assert (result.exit_code, api.requests) == (2, [])
    told = " ".join(result.stderr.split())
    assert "a job needs --nnodes;" in told and "Did you mean nnodes by 'nodes'?" in told


def test_a_priority_may_be_written_small(run: Run, api: Any) -> None:
    """Its names are capitals in the API."""
    run("submit", *OPTIONS, "--priority", "high")
    assert json.loads(api.requests[0].content)["priority"] == "HIGH"


@pytest.mark.parametrize("key", ["ключ", "", "x" * 256, "a\nb"])
def test_a_key_that_no_header_carries_is_a_usage_error(run: Run, api: Any, key: str) -> None:
    """2, with the form of a key."""
    result = run("submit", *OPTIONS, "--idempotency-key", key)
    assert (result.exit_code, api.requests) == (2, [])
    assert "must be 1 to 255 printable ASCII characters" in " ".join(result.stderr.split())


@pytest.mark.parametrize(("text", "sent"), [("4", 4), ("2..4", {"min": 2, "max": 4})])
def test_the_number_of_instances_may_be_a_range(text: str, sent: Any) -> None:
    """The API checks the numbers."""
    assert node_count(text) == sent


@pytest.mark.parametrize("text", ["", "two", "2..", "..4", "2..x", "2...4"])
def test_what_is_neither_a_number_nor_a_range_is_refused(text: str) -> None:
    """Before anything is sent."""
    with pytest.raises(typer.BadParameter, match=r"must be a whole number or MIN\.\.MAX, not '"):
        node_count(text)
