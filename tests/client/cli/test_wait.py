"""How progress is shown: lines that stay, one that moves, and what NO_COLOR and a narrow terminal change."""

from __future__ import annotations

from io import StringIO

import pytest
from gpu_recovery_client.cli.wait import LiveDisplay, PlainDisplay, progress_display
from rich.console import Console
from rich.text import Text


def terminal(width: int = 60) -> Console:
    """A console that takes itself for a terminal."""
    return Console(file=StringIO(), width=width, force_terminal=True, highlight=False)


def written(console: Console) -> str:
    """What has reached it."""
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_pipe_gets_plain_lines() -> None:
    """No spinner turns in a log file."""
    with progress_display(Console(file=StringIO(), force_terminal=False)) as teller:
        assert isinstance(teller, PlainDisplay)


def test_a_terminal_keeps_what_happened_and_moves_what_stands() -> None:
    """What happened is a line of its own, in full; what stands replaces what stood."""
    console = terminal()
    shown: list[Text] = []
    teller = LiveDisplay(console, shown.append)
    teller.event("RUNNING: " + "word " * 20)
    teller.status("RUNNING for 5s")
    teller.status("RUNNING for 10s")
    assert written(console).count("word") == 20
    assert [one.plain for one in shown] == ["RUNNING for 5s", "RUNNING for 10s"]


@pytest.mark.parametrize("width", [1, 3, 20, 60])
def test_the_line_that_moves_is_one_line_however_narrow_the_terminal(width: int) -> None:
    """A moving line that wraps leaves its pieces behind."""
    shown: list[Text] = []
    LiveDisplay(terminal(width), shown.append).status(
        "a sentence that is longer than any of these terminals is wide, by far"
    )
    assert shown[0].cell_len <= max(1, width - 2)


def test_nothing_that_a_job_says_steers_the_terminal() -> None:
    """A reason may hold what a task wrote; brackets are text, not markup."""
    console = terminal()
    shown: list[Text] = []
    teller = LiveDisplay(console, shown.append)
    for tell in (teller.event, teller.status):
        tell("FAILED: \x1b[2J\r [red]gone[/red]")
    assert "\x1b[2J" not in written(console) and "[red]gone[/red]" in written(console)
    assert shown[0].plain == "FAILED: ?[2J [red]gone[/red]"


@pytest.mark.parametrize(("variable", "coloured"), [("1", False), ("", True)])
def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch, variable: str, coloured: bool) -> None:
    """Whoever sets it sees the moving line without colour (no-color.org)."""
    monkeypatch.setenv("NO_COLOR", variable)
    monkeypatch.setenv("TERM", "xterm-256color")
    console = terminal()
    with progress_display(console) as teller:
        teller.status("RUNNING for 5s")
    assert ("\x1b[32m" in written(console)) is coloured
    assert "for 5s" in written(console)
