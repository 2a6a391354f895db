"""What the command line says of itself: its verbs, examples that work, its page, and what a shell completes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.core.queue.priority import Priority
from gpu_recovery_client.cli import app
from gpu_recovery_client.cli.verbs import SECTIONS
from typer.testing import CliRunner, Result

from tests.markdown import CLI, bare

HERE = Path(__file__).parents[1]
DOCS = Path(__file__).parents[3] / "docs"
ORDERS = {"redrive", "sandbox down", "simulate", "logout"}
"""What prints nothing that a program would read, or passes its options on; redrive has its own."""
Run = Callable[..., Result]


def commands(group: Any = None, *path: str) -> Iterator[tuple[str, Any]]:
    """Every verb that does something, by what is typed."""
    for name, command in (group or typer.main.get_command(app.app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


VERBS = dict(commands())
each_verb = pytest.mark.parametrize("verb", VERBS)


def shown(command: Any) -> list[str]:
    """The commands of a verb's examples; a line that ends in a backslash goes on."""
    text = re.sub(r"\\\n", " ", command.epilog or "")
    return [line.strip() for line in text.splitlines() if line.strip().startswith("gpu-recovery ")]


def test_help_is_the_golden_text(run: Run) -> None:
    """The first thing that anybody reads, as they see it in 80 columns."""
    assert run("--help").stdout.replace("Usage: root", "Usage: gpu-recovery") == (HERE / "help.txt").read_text()


def test_every_verb_of_the_command_line_is_in_one_section_of_the_help() -> None:
    """A verb that is in none is one that nobody finds."""
    listed = [verb.name for verbs in SECTIONS.values() for verb in verbs]
    assert listed == list(typer.main.get_command(app.app).commands)  # type: ignore[attr-defined]


@each_verb
def test_every_verb_shows_examples_that_the_command_line_understands(verb: str) -> None:
    """An example is what people copy: its verb and its options exist, its arguments are as many as it takes."""
    command = VERBS[verb]
    lines = shown(command)
    assert any(line.split(" ", 1)[1].startswith(verb) for line in lines)
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        name = next(name for name in sorted(VERBS, key=len, reverse=True) if line.split(" ", 1)[1].startswith(name))
        if name == "simulate":
            continue
        VERBS[name].make_context(name, words[len(name.split()) :], resilient_parsing=False)


@each_verb
def test_every_verb_says_what_it_does_in_a_sentence_that_fits_the_list(verb: str) -> None:
    """The list of verbs cuts nothing off."""
    assert not VERBS[verb].get_short_help_str(66).endswith("...")


@each_verb
def test_every_verb_that_reads_can_print_json(verb: str) -> None:
    """Programs read no tables."""
    options = {option for parameter in VERBS[verb].params for option in parameter.opts}
    assert "--json" in options or verb in ORDERS - {"redrive"}


def test_the_page_of_the_command_line_lists_every_verb() -> None:
    """docs/cli.md has one row for each, and none for what there is not."""
    listed = [bare(row[0]) for table in CLI.tables() if table[0][0] == "Verb" for row in table[1:]]
    assert sorted(listed) == sorted({*VERBS, "fleet"})


@each_verb
def test_the_first_sentence_of_the_help_is_that_of_the_list(verb: str) -> None:
    """The list of verbs is a table, so that no verb is imported for it; the help of a verb is its docstring."""
    listed = {each.name: each.summary for each in app.VERBS.values()}
    if verb in listed:
        assert " ".join((VERBS[verb].help or "").split()).startswith(listed[verb])


@pytest.mark.parametrize(
    ("typed", "meant"), [("sumbit", "submit"), ("explian", "explain"), ("que", "queue"), ("instance", "instances")]
)
def test_a_mistyped_verb_is_answered_with_the_one_that_was_meant(run: Run, typed: str, meant: str) -> None:
    """2, and a question."""
    result = run(typed)
    assert result.exit_code == 2
    assert f"there is no verb {typed}; did you mean {meant}?" in result.stderr


# -- completion --------------------------------------------------------------------------------------------------------


@pytest.fixture
def complete(api: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What bash is offered for the last word of what is typed."""
    monkeypatch.setenv("GPU_RECOVERY_API_URL", "https://api.example.test/prod")
    monkeypatch.setenv("GPU_RECOVERY_TOKEN", "a-token-that-nobody-may-see")

    def offered(typed: str) -> list[str]:
        words = typed.split(" ")
        environment = {
            "_GPU_RECOVERY_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(words) - 1),
        }
        runner = CliRunner()
        result = runner.invoke(
            app.app, [], prog_name="gpu-recovery", env=environment, obj=httpx.MockTransport(api), complete_var=None
        )
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout.split()

    return offered


def test_a_shell_completes_verbs(complete: Callable[[str], list[str]]) -> None:
    """Those that begin so."""
    assert complete("gpu-recovery su") == ["submit", "suspend"]
    assert complete("gpu-recovery quota s") == ["show", "set"]


@pytest.mark.parametrize("verb", ["status", "logs", "explain", "cancel", "suspend", "resume"])
def test_a_shell_completes_the_ids_of_jobs(complete: Callable[[str], list[str]], api: Any, verb: str) -> None:
    """In one request."""
    assert complete(f"gpu-recovery {verb} rl-") == ["rl-20261121-080001-0001"]
    (request,) = api.requests
    assert (request.url.path, request.url.params["limit"]) == ("/prod/api/v2/jobs", "200")


@pytest.mark.parametrize("verb", ["instances", "quarantine", "release", "explain", "token issue"])
def test_a_shell_completes_the_ids_of_instances(complete: Callable[[str], list[str]], verb: str) -> None:
    """What begins with i- is one."""
    assert complete(f"gpu-recovery {verb} i-0a") == ["i-0aaa00000000000a1"]


def test_a_shell_completes_words_without_asking_anybody(complete: Callable[[str], list[str]], api: Any) -> None:
    """Statuses, priorities and roles are known here."""
    assert complete("gpu-recovery list --status S") == [one for one in JobStatus if one.startswith("S")]
    assert complete("gpu-recovery submit --priority ") == list(Priority.__members__)
    assert complete("gpu-recovery token issue --role v") == ["viewer"]
    assert api.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(401, json={"title": "Unauthorized"}),
        httpx.Response(503, headers={"retry-after": "1"}),
        httpx.Response(200, content=b"<html>"),
        httpx.Response(200, json={"jobs": [{}]}),
        httpx.Response(200, json={"jobs": [7]}),
        httpx.ConnectError,
        httpx.ReadTimeout,
    ],
    ids=str,
)
def test_a_completion_that_fails_offers_nothing_and_says_nothing(
    complete: Callable[[str], list[str]], api: Any, answer: Any
) -> None:
    """A shell's line is no place for an error; and it waits for no second try."""

    def respond(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, type):
            raise answer("away", request=request)
        return answer

    api.answer = respond
    assert complete("gpu-recovery status ") == []
    assert len(api.requests) == 1


def test_a_completion_without_settings_offers_nothing(
    complete: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch, api: Any
) -> None:
    """There is nobody to ask."""
    monkeypatch.delenv("GPU_RECOVERY_API_URL")
    assert complete("gpu-recovery status ") == []
    assert api.requests == []


def test_a_completion_gives_up_on_a_slow_api_soon(complete: Callable[[str], list[str]], api: Any) -> None:
    """In two seconds, not in the half minute that a verb waits."""
    complete("gpu-recovery status ")
    limits = api.requests[0].extensions["timeout"]
    assert set(limits) == {"connect", "read", "write", "pool"} and max(limits.values()) <= 2
