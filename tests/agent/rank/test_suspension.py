"""What ends a rank early, and when: decided without a process and by a clock of the test's."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from gpu_recovery_agent.rank import settings
from gpu_recovery_agent.rank.paths import AgentSettingsError
from gpu_recovery_agent.rank.process import Ended
from gpu_recovery_agent.rank.settings import MARGIN_S, REST_S, RankTimeouts, rank_timeouts, rehearsal_and_command
from gpu_recovery_agent.rank.suspension import STARTUP_S, SUSPENDED, TIMED_OUT, SuspensionHandler
from gpu_recovery_agent.rank.suspension_folder import (
    ASKED,
    NOTICE,
    PROGRESS,
    SUSPEND,
    WATCHDOG,
    SuspensionFolder,
    suspension_folder,
)

TERM, KILL, NOTHING = signal.SIGTERM, signal.SIGKILL, 0
CRASHED = Ended(code=7)
USUAL = RankTimeouts(5.0, 30.0)


class Rank:
    """A suspension whose clock is the test's. Its command is whoever leaves marks in `folder`."""

    def __init__(
        self,
        folder: Path | None,
        within: RankTimeouts = USUAL,
        *,
        leads: bool = True,
        rehearse_s: float | None = None,
    ) -> None:
        self.now, self.said = 1_000.0, list[str]()
        self.folder = folder
        self.judge = SuspensionHandler(
            within,
            SuspensionFolder(folder) if folder else None,
            leads=leads,
            say=self.said.append,
            rehearse_s=rehearse_s,
            now=lambda: self.now,
        )

    def told(self, number: int = TERM) -> int:
        return self.judge.on_signal(number)

    def after(self, seconds: float) -> int:
        """What is due when so many seconds have passed."""
        self.now += seconds
        return self.judge.due()

    def mark(self, name: str, text: str = "") -> None:
        assert self.folder is not None
        (self.folder / name).write_text(text)

    def has_notice(self) -> bool:
        return self.folder is not None and (self.folder / NOTICE).exists()


@pytest.mark.parametrize("forwards", [False, True])
def test_the_wrapper_knows_when_its_container_would_be_killed(tmp_path: Path, forwards: bool) -> None:
    """SIGTERM may come at any moment, and the stopTimeout counts from the first."""
    rank = Rank(tmp_path, RankTimeouts(5.0, 30.0, forwards=forwards))
    rank.after(600.0)
    assert rank.judge.left_s == 28.0
    rank.told()
    rank.after(10.0)
    rank.told()
    assert rank.judge.left_s == 18.0
    rank.after(600.0)
    assert rank.judge.left_s == 0.0


def test_rank_0_has_its_grace_then_sigterm_then_sigkill(tmp_path: Path) -> None:
    """The notice is there at once, and nothing reaches the command before its time to save is over."""
    rank = Rank(tmp_path)
    assert not rank.has_notice()
    assert (rank.told(), rank.has_notice()) == (NOTHING, True)
    assert [rank.after(s) for s in (0, 4.9, 0.1, 0, 4.9, 0.1)] == [NOTHING, NOTHING, TERM, NOTHING, NOTHING, KILL]
    assert [rank.after(s) for s in (REST_S - 0.1, 0.1)] == [NOTHING, KILL]
    assert json.loads((tmp_path / NOTICE).read_text()) == {"grace_s": 5.0}


def test_another_rank_gets_sigterm_at_once_and_no_notice(tmp_path: Path) -> None:
    """It is told last, when rank 0 has left: there is nothing to wait for."""
    rank = Rank(tmp_path, leads=False)
    assert (rank.told(), rank.has_notice()) == (TERM, False)
    assert [rank.after(s) for s in (9.9, 0.1)] == [NOTHING, KILL]
    assert rank.judge.facts() == {"notice": True}


def test_a_second_sigterm_cuts_the_grace_and_prolongs_nothing(tmp_path: Path) -> None:
    """Whoever stops a rank twice does not want to wait; SIGKILL comes when it would have come."""
    rank = Rank(tmp_path)
    rank.told()
    assert rank.after(1) == NOTHING
    assert rank.told() == TERM
    assert [rank.after(s) for s in (4, 4.9, 0.1)] == [NOTHING, NOTHING, KILL]


def test_a_command_with_a_handler_of_its_own_gets_every_sigterm_as_without_us(tmp_path: Path) -> None:
    """GPU_RECOVERY_FORWARD_SIGTERM=1: at once, each time, and the container's own SIGKILL is the only one."""
    rank = Rank(tmp_path, RankTimeouts(5.0, 30.0, forwards=True))
    assert [rank.told(), rank.told(), rank.after(10_000)] == [TERM, TERM, NOTHING]
    assert not rank.has_notice()


@pytest.mark.parametrize("folder", [None, Path("/proc/nowhere")])
def test_where_no_notice_can_be_given_sigterm_is_the_notice(folder: Path | None) -> None:
    """Nobody waits for a command that nobody can tell."""
    rank = Rank(folder)
    assert rank.told() == TERM
    assert rank.after(10) == KILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_other_signals_are_the_commands_affair(tmp_path: Path, number: int) -> None:
    """They begin nothing and end nothing, before a notice and under it."""
    rank = Rank(tmp_path)
    assert (rank.told(number), rank.has_notice(), rank.judge.facts()) == (number, False, {})
    rank.told()
    assert (rank.told(number), rank.after(4.9), rank.after(0.1)) == (number, NOTHING, TERM)


@pytest.mark.parametrize("stop_timeout_s", range(0, 41, 5))
@pytest.mark.parametrize("grace_s", [0, 1, 5, 20, 27, 30, 90])
def test_the_container_is_never_first(grace_s: int, stop_timeout_s: int) -> None:
    """What Docker kills writes no exit: SIGTERM, SIGKILL and the exit's file fit into the stopTimeout."""
    found = RankTimeouts(grace_s, stop_timeout_s)
    assert 0 <= found.term_s <= found.kill_s <= max(stop_timeout_s - MARGIN_S, 0)
    assert found.term_s <= grace_s
    if grace_s + REST_S + MARGIN_S <= stop_timeout_s:
        assert (found.term_s, found.kill_s) == (grace_s, grace_s + REST_S)


def test_go_suspend_ends_the_rank_without_any_notice(tmp_path: Path) -> None:
    """From any rank: the mark is enough, and the exit status is its own whatever the command's is."""
    rank = Rank(tmp_path, leads=False)
    assert rank.after(100) == NOTHING
    rank.mark(SUSPEND)
    assert [rank.after(s) for s in (0, REST_S - 0.1, 0.1)] == [TERM, NOTHING, KILL]
    for ended in (Ended(code=0), CRASHED, Ended(signal=KILL)):
        assert rank.judge.status(ended) == SUSPENDED
    assert rank.judge.facts() == {"suspended": True}


def test_go_suspend_under_notice_ends_the_grace_and_not_later_than_it_would(tmp_path: Path) -> None:
    """Whoever has saved need not wait; and a rest after a rest would outlast the container's stopTimeout."""
    early = Rank(tmp_path)
    early.told()
    early.mark(SUSPEND)
    assert [early.after(s) for s in (1, REST_S - 0.1, 0.1)] == [TERM, NOTHING, KILL]
    (tmp_path / SUSPEND).unlink()
    late = Rank(tmp_path)
    late.told()
    assert late.after(5) == TERM
    late.mark(SUSPEND)
    assert [late.after(s) for s in (4.9, 0.1)] == [NOTHING, KILL]
    assert late.judge.status(Ended(signal=KILL)) == SUSPENDED
    (tmp_path / SUSPEND).unlink()
    tight = Rank(tmp_path, RankTimeouts(27.0, 30.0))
    tight.told()
    assert tight.after(26) == NOTHING
    tight.mark(SUSPEND)
    assert [tight.after(s) for s in (0, 1.9, 0.1)] == [TERM, NOTHING, KILL]


def test_a_mark_of_the_last_moment_counts(tmp_path: Path) -> None:
    """The command may have ended before anybody looked again."""
    rank = Rank(tmp_path)
    rank.after(1)
    rank.mark(SUSPEND)
    assert rank.judge.status(CRASHED) == SUSPENDED
    assert rank.judge.facts() == {"suspended": True}


def test_an_exit_under_notice_keeps_its_status_and_the_notice_is_told(tmp_path: Path) -> None:
    """A crash may be the hardware's also then: who decides has both facts."""
    rank = Rank(tmp_path)
    rank.told()
    assert (rank.judge.status(CRASHED), rank.judge.facts()) == (7, {"notice": True})
    assert rank.judge.status(Ended(signal=11)) == 139
    assert Rank(tmp_path / "none").judge.facts() == {}


def watch(rank: Rank, seconds: object) -> None:
    rank.mark(WATCHDOG, json.dumps({"seconds": seconds}))


def touch(rank: Rank, nth: int) -> None:
    rank.mark(PROGRESS)
    assert rank.folder is not None
    os.utime(rank.folder / PROGRESS, ns=(nth, nth))  # 1970, and not even forwards: only that it is another counts


def test_a_rank_without_progress_is_ended_with_a_status_of_its_own(tmp_path: Path) -> None:
    """It hangs with all its GPUs, and would do so for ever."""
    rank = Rank(tmp_path)
    assert rank.after(100_000) == NOTHING
    watch(rank, 60)
    assert [rank.after(s) for s in (0, 59.9, 0.1)] == [NOTHING, NOTHING, TERM]
    assert [rank.after(s) for s in (REST_S - 0.1, 0.1)] == [NOTHING, KILL]
    assert (rank.judge.status(Ended(signal=KILL)), rank.judge.facts()) == (TIMED_OUT, {"timed_out": True})


def test_progress_is_whatever_changes_by_no_clock_but_the_wrappers_own(tmp_path: Path) -> None:
    """Times of files jump with the wall's clock, and with it a training would be ended or a hang overlooked."""
    rank = Rank(tmp_path)
    watch(rank, 60)
    rank.after(0)
    for nth in (9, 5, 7):
        assert rank.after(59) == NOTHING
        touch(rank, nth)
        assert rank.after(0.5) == NOTHING
    assert [rank.after(s) for s in (59.9, 0.1)] == [NOTHING, TERM]


def test_a_watchdog_can_be_set_anew_and_off(tmp_path: Path) -> None:
    """Loading the data may take longer than any step."""
    rank = Rank(tmp_path)
    watch(rank, 60)
    rank.after(0)
    assert rank.after(59) == NOTHING
    watch(rank, 600)
    assert [rank.after(s) for s in (1, 599)] == [NOTHING, NOTHING]
    watch(rank, 0)
    assert [rank.after(s) for s in (1, 100_000)] == [NOTHING, NOTHING]


def test_the_watchdog_is_quiet_under_notice(tmp_path: Path) -> None:
    """Who saves makes no steps; the grace ends it anyway."""
    rank = Rank(tmp_path)
    watch(rank, 1)
    rank.after(0)
    rank.told()
    assert rank.after(4) == NOTHING
    assert rank.after(1) == TERM
    assert rank.judge.facts() == {"notice": True}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"seconds": true}', '{"seconds": -1}', '{"seconds": NaN}', "{}"])
def test_a_watchdog_of_nonsense_is_said_and_ends_nobody(tmp_path: Path, text: str) -> None:
    """Anybody in the container may write the file."""
    rank = Rank(tmp_path)
    rank.mark(WATCHDOG, text)
    assert [rank.after(s) for s in (0, 1, 100_000)] == [NOTHING] * 3
    assert len(rank.said) == 1 and "watchdog" in rank.said[0]


def test_a_rehearsal_begins_when_the_command_first_asks(tmp_path: Path) -> None:
    """Imports take longer than steps: a notice before the first of these would rehearse nothing."""
    rank = Rank(tmp_path, rehearse_s=10)
    assert rank.after(20) == NOTHING
    rank.mark(ASKED)
    assert [rank.after(s) for s in (0, 9.9)] == [NOTHING, NOTHING] and not rank.has_notice()
    assert (rank.after(0.1), rank.has_notice()) == (NOTHING, True)
    assert rank.after(5) == TERM and rank.judge.forced


def test_a_rehearsal_does_not_wait_for_ever_for_a_command_that_never_asks(tmp_path: Path) -> None:
    """It would be ended by force in a real one, and shall see it; and is told why."""
    rank = Rank(tmp_path, rehearse_s=10)
    assert rank.after(STARTUP_S + 9.9) == NOTHING and not rank.has_notice()
    assert (rank.after(0.1), rank.has_notice()) == (NOTHING, True)
    assert "no process of it has asked" in rank.said[-1]


@pytest.mark.parametrize(
    ("environment", "expected", "warnings"),
    [
        ({}, RankTimeouts(5, 30), 0),
        ({"SUSPEND_GRACE_S": "12", "GPU_RECOVERY_STOP_TIMEOUT_S": "120"}, RankTimeouts(12, 120), 0),
        ({"SUSPEND_GRACE_S": "", "GPU_RECOVERY_FORWARD_SIGTERM": "0"}, RankTimeouts(5, 30), 0),
        ({"GPU_RECOVERY_FORWARD_SIGTERM": "1"}, RankTimeouts(5, 30, forwards=True), 0),
        ({"GPU_RECOVERY_FORWARD_SIGTERM": "yes"}, RankTimeouts(5, 30), 1),
        ({"SUSPEND_GRACE_S": "5.5"}, RankTimeouts(5, 30), 1),
        ({"SUSPEND_GRACE_S": "-1"}, RankTimeouts(5, 30), 1),
        ({"SUSPEND_GRACE_S": "29"}, RankTimeouts(29, 30), 1),
    ],
)
def test_what_the_environment_says(environment: dict[str, str], expected: RankTimeouts, warnings: int) -> None:
    """What cannot be meant is said, and keeps no gang from starting."""
    said: list[str] = []
    assert rank_timeouts(environment, said.append) == expected
    assert [text.startswith("warning: ") for text in said] == [True] * warnings


@pytest.mark.parametrize(
    ("typed", "environment", "expected"),
    [
        (["a", "-b"], {}, (None, ["a", "-b"])),
        (["--", "--simulate", "3"], {}, (None, ["--simulate", "3"])),
        (["--simulate", "3", "--", "a"], {}, (3, ["a"])),
        (["--simulate=0.5", "a"], {}, (0.5, ["a"])),
        (["--simulate", "0", "a"], {}, (0, ["a"])),
        (["a"], {"GPU_RECOVERY_SIMULATE": "1"}, (1, ["a"])),
        (["a"], {"GPU_RECOVERY_SIMULATE": "0"}, (None, ["a"])),
        (["--simulate", "3", "a"], {"GPU_RECOVERY_SIMULATE": "nonsense"}, (3, ["a"])),
    ],
)
def test_what_is_typed(typed: list[str], environment: dict[str, str], expected: tuple[float | None, list[str]]) -> None:
    """Options end where the command begins."""
    assert rehearsal_and_command(typed, environment) == expected


@pytest.mark.parametrize(
    ("typed", "environment", "named"),
    [
        ([], {}, "no command"),
        (["--"], {}, "no command"),
        (["--simulate", "3"], {}, "no command"),
        (["--simulate"], {}, "--simulate"),
        (["--simulate", "a", "b"], {}, "--simulate"),
        (["--simulate", "nan", "b"], {}, "--simulate"),
        (["--simulate", "-1", "b"], {}, "--simulate"),
        (["a"], {"GPU_RECOVERY_SIMULATE": "yes"}, "GPU_RECOVERY_SIMULATE"),
    ],
)
def test_what_is_typed_wrongly_is_refused_by_name(typed: list[str], environment: dict[str, str], named: str) -> None:
    """Whoever typed it sits in front of it."""
    with pytest.raises(AgentSettingsError, match=named):
        rehearsal_and_command(typed, environment)


def test_the_folder_is_the_users_own_and_is_gone_afterwards(tmp_path: Path) -> None:
    """In memory where there is a place; two ranks of one machine never share it."""
    given = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with suspension_folder(given) as one, suspension_folder(given) as two:
        assert one.path.parent == two.path.parent == tmp_path and one.path != two.path
        assert one.path.stat().st_mode & 0o7777 == (0o1777 if os.geteuid() == 0 else 0o700)
        one.give(5.0)
    assert list(tmp_path.iterdir()) == []
    with suspension_folder({"XDG_RUNTIME_DIR": str(tmp_path / "none")}) as other:
        assert other.path.parent != tmp_path


def test_the_defaults_are_those_of_the_time_sharing_rules() -> None:
    """Seed 003: five seconds, then by force; and ECS's 30 seconds where a container says nothing."""
    assert (settings.GRACE_S, settings.STOP_TIMEOUT_S) == (5, 30)
    assert (RankTimeouts().term_s, RankTimeouts().kill_s) == (5, 10)
