"""The texts in other languages: each text of the code has one, none is left over, and values keep their places."""

from __future__ import annotations

import ast
import string
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import gpu_recovery_client
import pytest
from gpu_recovery_client.cli import error_hints, help_text, simulate, simulator_texts, usage_errors, verbs
from gpu_recovery_client.render import jobs, recovery
from gpu_recovery_client.texts import Language, heads, tr, use_language
from rich.cells import cell_len
from typer import Context
from typer.testing import Result

from simulator import __main__ as simulator
from tests import command_line

CLIENT = Path(gpu_recovery_client.__file__).parent
OTHERS = [one for one in Language if one is not Language.ENGLISH]
COLUMNS_ADDED = {"GROUP", "WORKLOAD", "SUBMITTED", "SINCE", "LEMON %", "NAME", "ROLE"}
"""Headings that a condition adds to a table."""
JOB = "sft-20261121-090000-1a2b"
Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    """No other test sees the language of this one."""
    yield
    use_language(Language.ENGLISH)


def table(language: Language) -> dict[str, str]:
    """The texts of a language."""
    texts: dict[str, str] = import_module(f"gpu_recovery_client.texts.{language}").TEXTS
    return texts


@cache
def of_code() -> frozenset[str]:
    """The texts that the code gives to `tr` and `heads`, and those of the tables that it takes texts from."""
    found = set[str]()
    for path in CLIENT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tr", "heads"):
                found |= {one.value for one in node.args if isinstance(one, ast.Constant)}
    hints = (*error_hints.BY_CODE.values(), *error_hints.BY_PLACE.values(), *error_hints.BY_STATUS.values())
    others = (error_hints.OF_GATEWAY, error_hints.OTHER_SERVER, error_hints.READ_AGAIN, error_hints.LOCAL)
    waits = (*jobs.WAITS_FOR.values(), jobs.HELD, jobs.DELAY)
    return frozenset(
        {
            *found,
            *hints,
            *others,
            error_hints.UNREACHABLE,
            *usage_errors.PLAIN.values(),
            *simulator_texts.ARGPARSE.values(),
            *simulator_texts.VALUES,
            *simulator_texts.FILES,
            *waits,
            *(
                text
                for forms in (recovery.PHASES, recovery.CAUSES, recovery.CHANGES, recovery.RATES)
                for text in forms.values()
            ),
            *COLUMNS_ADDED,
            *jobs.COLUMNS,
        }
    )


@cache
def of_help() -> frozenset[str]:
    """The texts of the help of every verb."""
    seen = set[str]()

    def record(text: str, **_: object) -> str:
        seen.add(text)
        return text

    def walk(command: Any, parent: Any, name: str) -> None:
        context = Context(command, parent=parent, info_name=name)
        command.get_help(context)
        for inner_name, inner in getattr(command, "commands", {}).items():
            walk(inner, context, inner_name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(help_text, "tr", record)
        walk(command_line.command(), None, "gpu-recovery")
    return frozenset({*seen, *(verb.summary for verb in verbs.VERBS.values())})


@cache
def of_simulator() -> frozenset[str]:
    """The texts of the help of `simulate` and of its verbs."""
    seen = set[str]()

    def record(text: str, **_: object) -> str:
        seen.add(text)
        return text

    def walk(parser: Any) -> None:
        parser.format_help()
        for action in parser._actions:
            for inner in action.choices.values() if isinstance(action.choices, dict) else ():
                walk(inner)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator_texts, "tr", record)
        walk(simulator.build_parser(parser_class=simulate.Parser))
    return frozenset(seen)


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_has_a_translation_and_no_translation_is_left_over(language: Language) -> None:
    """A text that changes in the code changes here, too."""
    needed = {
        text for text in of_code() | of_help() | of_simulator() if text.strip() and not text.startswith("gpu-recovery ")
    }
    assert {"missing": sorted(needed - set(table(language))), "left over": sorted(set(table(language)) - needed)} == {
        "missing": [],
        "left over": [],
    }


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_values_of_its_text(language: Language) -> None:
    """A name in braces that is misspelt would end in a traceback."""
    texts = {text: form for text, form in table(language).items() if text in of_code()}
    names = {text: {name for _, name, _, _ in string.Formatter().parse(text) if name} for text in texts}
    assert [
        text for text in texts if names[text] != {n for _, n, _, _ in string.Formatter().parse(texts[text]) if n}
    ] == []


def test_a_command_is_translated_and_its_document_is_not(run: Run) -> None:
    """Programs read one language; ids and statuses are the same in all."""
    shown = run("--language", "zh", "status", JOB).stdout
    assert shown.splitlines()[0].split() == ["作业", JOB]
    assert "RECOVERING" in shown
    assert run("--language", "zh", "status", JOB, "--json").stdout == run("status", JOB, "--json").stdout
    assert run("status", JOB).stdout.startswith("job ")


def test_the_variable_chooses_the_language_of_every_call(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the option wins over it."""
    monkeypatch.setenv("GPU_RECOVERY_LANGUAGE", "zh")
    assert run("status", JOB).stdout.startswith("作业")
    assert run("--language", "en", "status", JOB).stdout.startswith("job ")


def test_hints_and_questions_are_translated(run: Run, api: Any) -> None:
    """What the API says stays as it is, what the command line adds does not."""
    told = run("--language", "zh", "status", "nope").stderr
    assert "there is no nope" in told
    assert table(Language.CHINESE)[error_hints.BY_STATUS[404]] in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("submit", "--help"),
        ("fleet", "--help"),
        ("quota", "set", "-h"),
    ],
)
def test_help_in_chinese_fits_into_80_columns(run: Run, arguments: tuple[str, ...]) -> None:
    """A Chinese character takes two of them; examples are commands, as they are."""
    text = run("--language", "zh", *arguments).stdout
    assert max(map(cell_len, text.splitlines())) <= 80
    assert "用法：" in text and "  gpu-recovery " in text


def test_braces_are_text_without_values() -> None:
    """A reason of the API may hold them."""
    assert tr("{not a value}") == "{not a value}"
    assert heads("JOB") == ("JOB",)
