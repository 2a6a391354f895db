"""Usage errors: plain words in the language of the user, and the help without signs of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gpu_recovery_client.cli.usage_errors import PLAIN
from gpu_recovery_client.texts import Language, use_language
from typer.testing import Result

JOB = "sft-20261121-090000-1a2b"
Run = Callable[..., Result]
WRONG = {
    ("lst",): "there is no verb lst; did you mean list?",
    ("zzz",): "there is no verb zzz",
    ("list", "extra"): "there are too many arguments: extra",
    ("list", "--limit"): "--limit needs a value",
    ("list", "--json=3"): "--json takes no value",
    ("list", "--lim", "3"): "there is no option --lim; did you mean --limit, --all?",
    ("list", "--qqqqqq"): "there is no option --qqqqqq",
    ("-o", "json", "list"): "-o goes after the verb",
    ("--json", "list"): "--json goes after the verb",
    ("list", "--token", "x"): "--token goes before the verb",
    ("list", "-o", "xml"): "--output, -o: must be one of json, yaml, wide, name, not 'xml'",
    ("list", "--state", "over"): "--state: must be one of waiting, running, ended, not 'over'",
    ("logs", JOB, "--rank", "-1"): "--rank: must be a whole number of at least 0, not '-1'",
    ("submit", "--nnodes", "1.5"): "--nnodes: must be a whole number or MIN..MAX, not '1.5'",
    ("submit", "--nnodes", "2..x"): "--nnodes: must be a whole number or MIN..MAX, not '2..x'",
    ("submit", "--gpus-per-node", "1.5"): "--gpus-per-node: must be a whole number, not '1.5'",
    (
        "sandbox",
        "fault",
        "--instance",
        "i-1",
    ): "--kind is needed: one of xid79, xid119, ecc, hang, agent_lost, spot, kill",
    ("--language", "xx", "list"): "--language: must be one of en, zh, not 'xx'",
    ("token", "issue", "i-1", "--role", "user"): "--role: is for the token of a user",
}
OF_THE_LIBRARIES = ("Input should", "Invalid value", "Missing ", "No such", "Got unexpected", "Value error", "Try '")


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    """No other test sees the language of this one."""
    yield
    use_language(Language.ENGLISH)


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_a_usage_error_says_in_plain_words_what_is_wrong(run: Run, api: Any, arguments: tuple[str, ...]) -> None:
    """The last line; above it the usage and the command that shows the help. Nothing is sent."""
    result = run(*arguments)
    *_, last = result.stderr.splitlines()
    assert (result.exit_code, result.stdout, last) == (2, "", f"Error: {WRONG[arguments]}")
    assert not any(words in result.stderr for words in OF_THE_LIBRARIES)
    assert api.requests == []


@pytest.mark.parametrize("arguments", [one for one in WRONG if "--language" not in one], ids=" ".join)
def test_a_usage_error_is_in_the_language_of_the_user(run: Run, arguments: tuple[str, ...]) -> None:
    """The option before the verb counts, also if a later option before the verb is wrong."""
    shown = run("--language", "zh", *arguments).stderr
    assert shown.splitlines()[-1].startswith("错误：")
    assert not any(words in shown for words in (*OF_THE_LIBRARIES, "must be", "is needed", "there is"))


def test_the_variable_chooses_the_language_of_usage_errors(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those in the options before the verb."""
    monkeypatch.setenv("GPU_RECOVERY_LANGUAGE", "zh")
    assert run("--qqqqqq").stderr.splitlines()[-1] == "错误：没有选项 --qqqqqq"


def test_every_text_of_the_library_that_we_know_is_met() -> None:
    """A release of typer with other words would show them instead of ours."""
    patterns = {text.partition("{")[0].strip() or text.rpartition("}")[2].strip() for text in PLAIN.values()}
    said = "\n".join(WRONG.values())
    assert {part for part in patterns if part not in said} <= {"a verb is missing"}


def test_the_answer_no_is_said_in_the_language_of_the_user(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 1, as before."""
    monkeypatch.setattr("gpu_recovery_client.cli.confirmation.is_interactive", lambda: True)
    result = run("--language", "zh", "cancel", JOB, stdin="n\n")
    assert (result.exit_code, result.stderr.endswith("已停止；未做任何修改。\n")) == (1, True)


@pytest.mark.parametrize(
    ("verb", "usage"), [(("status",), " JOB"), (("instances",), " [ID]"), (("cancel",), " [JOB]...")]
)
def test_the_usage_line_has_plain_placeholders(run: Run, verb: tuple[str, ...], usage: str) -> None:
    """Neither braces nor double brackets."""
    first = run(*verb, "--help").stdout.splitlines()[0]
    assert first.endswith(usage) and "{" not in first and "[[" not in first


def test_the_help_writes_ranges_and_defaults_in_words(run: Run) -> None:
    """In both languages."""
    assert "[default: 50; 1 to 200]" in " ".join(run("list", "--help").stdout.split())
    assert "[默认：50; 1 到 200]" in " ".join(run("--language", "zh", "list", "--help").stdout.split())
    assert "[required]" in run("sandbox", "fault", "--help").stdout


@pytest.mark.parametrize(
    "arguments", [("list", "--state", "RUNNING"), ("list", "-o", "JSON"), ("list", "--sort", "Oldest")]
)
def test_fixed_values_may_be_written_in_any_case(run: Run, arguments: tuple[str, ...]) -> None:
    """`--state RUNNING` is what people write who read statuses."""
    assert run(*arguments).exit_code == 0


def test_priorities_may_be_written_in_any_case(run: Run, api: Any) -> None:
    """Of a limit, too: it is sent in capitals."""
    assert run("quota", "set", "ana/normal/a100=6").exit_code == 0
    assert b'"ana/NORMAL/a100":6' in api.requests[-1].content.replace(b" ", b"")
