"""`gpu-recovery simulate`: errors of the simulator's command line and files, in the user's language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_recovery_client.cli import app
from gpu_recovery_client.texts import Language, use_language
from typer.testing import CliRunner

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
        (("fly",), "VERB: must be one of 'run', 'play', 'explore', 'goodput', 'queue', not 'fly'"),
        (("run", "--seeds", "x"), "--seeds: seeds are written A..B, not 'x'"),
        (("run", "--seeds", "3..2"), "--seeds: '3..2' holds no seed"),
        (("run", "--workers", "x"), "--workers: must be a number, not 'x'"),
        (("run", "--workers"), "--workers needs a value"),
        (("run", "more"), "there are too many arguments: more"),
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
