"""`gpu-recovery logs`: one page, and a log that grows, across attempts, to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from gpu_recovery_client.cli import logs
from typer.testing import Result

from tests.client.conftest import problem

JOB = "sft-20261121-090000-1a2b"
ASKED_MAX = 50
Run = Callable[..., Result]


class Log:
    """A job that moves on and a log that grows: each look at the job takes the next of `looks`, the last one stays.

    A look is (status, attempt, the lines of each attempt so far); None as lines: there is no log yet. The cursor
    counts lines; `silent` leaves it out of the answers, as an API may at the end of what there is.
    """

    def __init__(
        self, *looks: tuple[str, int, dict[int, list[str] | None]], silent: bool = False, page: int = 2
    ) -> None:
        self.looks, self.silent, self.page = list(looks), silent, page
        self.asked: list[dict[str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/logs"):
            if len(self.looks) > 1 and self.asked:
                self.looks.pop(0)
            assert len(self.asked) < ASKED_MAX, "it asks for ever"
            status, attempt, _ = self.looks[0]
            return httpx.Response(200, json={"job_id": JOB, "status": status, "attempt": attempt})
        query = dict(request.url.params)
        self.asked.append(query)
        attempt = int(query.get("attempt", self.looks[0][1]))
        written = self.looks[0][2].get(attempt)
        if written is None:
            return problem(404, "No log", "nothing is kept yet")
        begin = int(query["cursor"]) if "cursor" in query else max(0, len(written) - int(query["tail"]))
        lines = written[begin : begin + self.page]
        following = None if self.silent and begin + len(lines) == len(written) else str(begin + len(lines))
        return httpx.Response(
            200,
            json={
                "job_id": JOB,
                "attempt": attempt,
                "rank": 0,
                "next_cursor": following,
                "lines": [{"at": "2026-11-21T09:00:00.000Z", "text": one} for one in lines],
            },
        )


def test_a_page_is_the_lines_as_they_were_written(run: Run, api: Any) -> None:
    """Rank 0 of the latest attempt, 200 lines from the end, unless somebody asks otherwise."""
    result = run("logs", JOB)
    assert (result.exit_code, result.stdout) == (0, "step 1 loss 2.31\nstep 2 loss 2.30\n")
    run("logs", JOB, "--rank", "3", "--attempt", "2", "--tail", "5")
    run("logs", JOB, "--cursor", "c2")
    assert [dict(one.url.params) for one in api.requests] == [
        {"rank": "0", "tail": "200"},
        {"rank": "3", "attempt": "2", "tail": "5"},
        {"rank": "0", "cursor": "c2"},
    ]


def test_the_tabs_of_a_log_stay(run: Run, api: Any) -> None:
    """Ray separates the time of its lines with a tab, and tables of a training have tabs."""
    api.queue["logs"]["lines"] = [{"at": "2026-11-21T09:00:00.000Z", "text": "12:00:01\tINFO\tready\n"}]
    assert run("logs", JOB).stdout == "12:00:01\tINFO\tready\n"


def test_an_empty_log_says_so_beside_the_output(run: Run, api: Any) -> None:
    """Nothing on stdout, as nothing was written."""
    api.queue["logs"]["lines"] = []
    result = run("logs", JOB)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"attempt 1 of {JOB}: rank 0 has written nothing yet\n"


def test_what_a_rank_wrote_cannot_steer_the_terminal(run: Run, api: Any) -> None:
    """A log is shown, not obeyed."""
    api.queue["logs"]["lines"] = [{"at": "2026-11-21T09:00:00.000Z", "text": "\x1b]0;owned\x07 100%\r\n"}]
    assert run("logs", JOB).stdout == "?]0;owned? 100%\n"


def test_no_log_is_1_and_says_where_to_look(run: Run, api: Any) -> None:
    """It may be kept elsewhere, or not begun."""
    api.answer = Log(("FAILED", 1, {}))
    result = run("logs", JOB)
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "gpu-recovery: No log (404): nothing is kept yet\n  A job that has not run yet has no"
    )


@pytest.mark.parametrize("silent", [False, True])
def test_following_prints_each_line_once_and_ends_with_the_job(
    run: Run, api: Any, pauses: list[float], silent: bool
) -> None:
    """Through pages, pauses, and what was written between the last look and the end."""
    api.answer = log = Log(
        ("RUNNING", 1, {1: ["a"]}),
        ("RUNNING", 1, {1: ["a", "b", "c", "d"]}),
        ("RUNNING", 1, {1: ["a", "b", "c", "d"]}),
        ("RUNNING", 1, {1: ["a", "b", "c", "d"]}),
        ("SUCCEEDED", 1, {1: ["a", "b", "c", "d", "e"]}),
        silent=silent,
        page=10,
    )
    result = run("logs", JOB, "--follow")
    assert (result.exit_code, result.stdout.split()) == (0, ["a", "b", "c", "d", "e"])
    assert log.asked[0] == {"rank": "0", "tail": "200"}
    assert set(pauses) == {2.0}


def test_following_begins_at_the_tail(run: Run, api: Any) -> None:
    """The rest of a long log is not wanted."""
    api.answer = Log(("SUCCEEDED", 1, {1: list("abcdef")}))
    assert run("logs", JOB, "-f", "--tail", "3").stdout.split() == ["d", "e", "f"]


def test_following_waits_for_a_job_that_has_no_log_yet(run: Run, api: Any, pauses: list[float]) -> None:
    """It says once what it waits for."""
    api.answer = Log(
        ("QUEUED", 0, {}),
        ("SUBMITTED", 1, {}),
        ("SUBMITTED", 1, {}),
        ("RUNNING", 1, {1: ["a"]}),
        ("SUCCEEDED", 1, {1: ["a"]}),
    )
    result = run("logs", JOB, "-f")
    assert (result.exit_code, result.stdout) == (0, "a\n")
    assert result.stderr == f"{JOB} is QUEUED: rank 0 has no log yet\n"


def test_following_a_job_that_ended_without_a_log_is_1(run: Run, api: Any, pauses: list[float]) -> None:
    """Nothing will come any more."""
    api.answer = Log(("QUEUED", 0, {}), ("CANCELED", 0, {}))
    result = run("logs", JOB, "-f")
    assert (result.exit_code, len(pauses)) == (1, 1)
    assert "No log (404)" in result.stderr


def test_an_empty_page_is_not_the_end_of_a_log_while_the_cursor_moves(run: Run, api: Any) -> None:
    """CloudWatch turns empty pages before the end; a server that turns them for ever is left after a hundred."""
    api.answer = log = Empty(7)
    assert run("logs", JOB, "-f").stdout == "the last line\n"
    assert log.pages == 7 + 2
    api.answer = log = Empty(1_000)
    assert run("logs", JOB, "-f").stdout == ""
    assert log.pages == 100


class Empty:
    """The log of a job that has ended: so many empty pages, then the one with its line, then nothing new."""

    def __init__(self, empty: int) -> None:
        self.empty, self.pages = empty, 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/logs"):
            return httpx.Response(200, json={"job_id": JOB, "status": "SUCCEEDED", "attempt": 1})
        self.pages += 1
        place = int(request.url.params.get("cursor", 0))
        lines = [{"at": "2026-11-21T09:00:00.000Z", "text": "the last line"}] if place == self.empty else []
        following = str(min(place + 1, self.empty + 1))
        told = {"job_id": JOB, "attempt": 1, "rank": 0, "lines": lines, "next_cursor": following}
        return httpx.Response(200, json=told)


def test_following_goes_on_into_the_next_attempt(run: Run, api: Any) -> None:
    """After the end of the one before, and says where it begins."""
    api.answer = Log(
        ("RUNNING", 1, {1: ["a"]}),
        ("RUNNING", 2, {1: ["a", "b"], 2: ["c"]}),
        ("RUNNING", 2, {1: ["a", "b"], 2: ["c"]}),
        ("SUCCEEDED", 2, {1: ["a", "b"], 2: ["c", "d"]}),
    )
    result = run("logs", JOB, "-f")
    assert (result.stdout.split(), result.stderr) == (["a", "b", "c", "d"], "attempt 2\n")


def test_following_one_attempt_ends_with_it(run: Run, api: Any) -> None:
    """Whoever names an attempt wants no other."""
    api.answer = Log(("RUNNING", 1, {1: ["a"]}), ("RUNNING", 2, {1: ["a", "b"], 2: ["c"]}))
    result = run("logs", JOB, "-f", "--attempt", "1")
    assert (result.exit_code, result.stdout.split(), result.stderr) == (0, ["a", "b"], "")


@pytest.mark.parametrize("status", [429, 502])
@pytest.mark.parametrize("part", [f"/jobs/{JOB}", "/logs"])
def test_following_outlasts_a_short_outage(run: Run, api: Any, status: int, part: str) -> None:
    """Of either request, and after the client's own retries; each line is printed once."""
    log = Log(("RUNNING", 1, {1: ["a"]}), ("SUCCEEDED", 1, {1: ["a", "b"]}))
    refusals = [problem(status, "Not now", "") for _ in range(6)]

    def answer(request: httpx.Request) -> httpx.Response:
        return refusals.pop() if refusals and request.url.path.endswith(part) else log(request)

    api.answer = answer
    result = run("logs", JOB, "-f")
    assert (result.exit_code, result.stdout.split(), refusals) == (0, ["a", "b"], [])
    assert f"no answer, asking again: Not now ({status})" in result.stderr


def test_following_is_given_up_when_the_outage_lasts(run: Run, api: Any, pauses: list[float]) -> None:
    """1, with the last error, after a minute."""
    api.answer = lambda request: problem(502, "Not now", "")
    result = run("logs", JOB, "-f")
    assert (result.exit_code, pauses) == (1, [5.0] * 12)
    assert result.stderr.count("asking again") == 12


def test_ctrl_c_ends_the_printing_and_not_the_job(run: Run, api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """0: that was what the user wanted."""
    api.answer = Log(("RUNNING", 1, {1: ["a"]}))

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(logs, "pause", interrupt)
    result = run("logs", JOB, "-f")
    assert (result.exit_code, result.stdout) == (0, "a\n")
    assert result.stderr == f"{JOB} continues; `gpu-recovery logs {JOB} -f` shows its log again\n"
    assert {one.method for one in api.requests} == {"GET"}
