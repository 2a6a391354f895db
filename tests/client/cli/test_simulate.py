"""`gpu-recovery simulate`: errors of the simulator's command line and files, in the user's language."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_recovery_client.cli import app
from gpu_recovery_client.cli.simulator_texts import sentence
from gpu_recovery_client.texts import Language, use_language
from rich.cells import cell_len
from typer.testing import CliRunner

from tests.markdown import ROOT

ENGLISH = re.compile(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}")
"""Three English words in a row."""


@pytest.fixture(autouse=True)
def english_again() -> Iterator[None]:
    """No other test sees the language of this one."""
    yield
    use_language(Language.ENGLISH)


def refused(*arguments: str) -> str:
    """The last line of the refusal of `simulate` with these arguments."""
    result = CliRunner().invoke(app.app, list(arguments))
    assert result.exit_code == 2
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "VERB is needed"),
        (("fly",), "VERB: must be one of 'run', 'play', 'explore', 'goodput', 'contract', 'queue', not 'fly'"),
        (("run", "--seeds", "x"), "--seeds: seeds are written A..B, not 'x'"),
        (("run", "--seeds", "3..2"), "--seeds: '3..2' holds no seed"),
        (("run", "--workers", "x"), "--workers: must be a number, not 'x'"),
        (("run", "--workers"), "--workers needs a value"),
        (("run", "more"), "there are too many arguments: more"),
        (("goodput", "--seeds", "5..1"), "--seeds: '5..1' holds no seed"),
        (("goodput", "--models", "--product"), "--product cannot be given together with --models"),
        (("explore", "--crashes", "x"), "--crashes: must be a whole number, not 'x'"),
        (("play", "no-such-file"), "no-such-file cannot be read: No such file or directory"),
    ],
)
def test_an_error_of_the_simulator_is_told_like_that_of_any_verb(arguments: tuple[str, ...], sentence: str) -> None:
    """In English and in Chinese; the text of the operating system stays as it is."""
    assert refused("simulate", *arguments) == f"Error: {sentence}"
    chinese = refused("--language", "zh", "simulate", *arguments).removesuffix("No such file or directory")
    assert chinese.startswith("错误：") and ENGLISH.search(chinese) is None


def test_an_error_of_a_scenario_file_is_told_in_chinese(tmp_path: Path) -> None:
    """Its names stay as the file has them."""
    scenario = tmp_path / "case.toml"
    scenario.write_text("[[job]]\ncolour = 1\n")
    english = refused("simulate", "play", str(scenario))
    assert "has no 'colour'; it may have" in english
    chinese = refused("--language", "zh", "simulate", "play", str(scenario))
    assert chinese.startswith("错误：") and "中没有 'colour'；可以有" in chinese


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("goodput", "--instances", "0"), "--instances 不得小于 1"),
        (("goodput", "--profile", "x"), "没有配置 'x'；有 "),
        (("queue", "--trace", "empty.csv"), "empty.csv 中没有列 "),
        (("goodput", "--failures", "empty.csv"), "empty.csv"),
    ],
)
def test_an_error_of_every_command_of_the_simulator_is_told_in_chinese(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its options and of its files."""
    monkeypatch.chdir(tmp_path)
    Path("empty.csv").write_text("")
    chinese = refused("--language", "zh", "simulate", *arguments)
    assert chinese.startswith(f"错误：{sentence}") and ENGLISH.search(chinese) is None


def messages() -> Iterator[str]:
    """Each message that the simulator raises about its options and files, with `x` for each value."""
    for folder in ("goodput", "queue", "trials"):
        for path in (ROOT / "simulator" / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call) or not node.exc.args:
                    continue
                name, text = ast.unparse(node.exc.func), node.exc.args[0]
                if name.endswith(("Invalid", "DoNotFit")) and isinstance(text, ast.JoinedStr | ast.Constant):
                    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                    yield "".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in parts)


@pytest.mark.parametrize("message", sorted({*messages()}))
def test_every_message_of_the_simulator_has_its_chinese_form(message: str) -> None:
    """A message that is new or changed fails here until its form is listed."""
    use_language(Language.CHINESE)
    assert ENGLISH.search(sentence(message)) is None


@pytest.mark.parametrize("verb", [(), ("run",), ("play",), ("explore",), ("goodput",), ("contract",), ("queue",)])
def test_the_help_of_the_simulator_is_in_chinese_within_80_columns(
    verb: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headings, options and verbs. The usage and names of options stay."""
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app.app, ["--language", "zh", "simulate", *verb, "--help"])
    usage, _, rest = result.stdout.partition("\n\n")
    assert result.exit_code == 0 and usage.startswith("用法：") and "显示本帮助并退出" in rest
    assert ENGLISH.search(rest) is None
    assert max(map(cell_len, result.stdout.splitlines())) <= 80
