"""`gpu-recovery token`: what is asked, what is printed where, and that a token is shown once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from typer.testing import Result

from tests.client.conftest import AN_HOUR_AGO, NODE_TOKEN, USER_TOKEN, problem, token_view

INSTANCE = "i-0aaa00000000000a1"
TOKEN_ID = "3f9c1b2a7d40"
Run = Callable[..., Result]


def test_issue_prints_the_token_alone_on_stdout(run: Run) -> None:
    """So that a script can take it; what there is to know of it goes to stderr."""
    result = run("token", "issue", INSTANCE)
    assert (result.exit_code, result.stdout) == (0, f"{NODE_TOKEN}\n")
    assert result.stderr == f"Token {TOKEN_ID} of {INSTANCE}: ends 2026-11-23 09:03:00Z (in 2d00h)\n"


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ((), {}),
        (("--expires-in", "90d"), {"expires_in_s": 7_776_000}),
        (("--expires-in", "12h"), {"expires_in_s": 43_200}),
        (("--expires-in", "30m", "--note", "rack 7"), {"expires_in_s": 1_800, "note": "rack 7"}),
        (("--expires-in", "3600"), {"expires_in_s": 3_600}),
        (("--expires-in", "60s"), {"expires_in_s": 60}),
    ],
)
def test_issue_asks_for_what_was_given(run: Run, api: Any, arguments: tuple[str, ...], body: dict[str, Any]) -> None:
    """And leaves the rest to the server's own default."""
    assert run("token", "issue", INSTANCE, *arguments).exit_code == 0
    (request,) = api.requests
    assert (request.method, request.url.path) == ("POST", f"/prod/api/v2/instances/{INSTANCE}/tokens")
    assert json.loads(request.content) == body


@pytest.mark.parametrize("text", ["", "0", "soon", "90 d", "1.5d", "-1d", "9y", "d", "\u0663d"])
def test_a_time_that_is_none_is_a_usage_error(run: Run, api: Any, text: str) -> None:
    """2, and nothing is asked."""
    result = run("token", "issue", INSTANCE, "--expires-in", text)
    assert (result.exit_code, result.stdout, api.requests) == (2, "", [])
    assert "such as 90d" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("issue",),
        ("list",),
        ("revoke", INSTANCE),
        ("rotate", INSTANCE),
        ("issue", INSTANCE, "--user", "ana"),
        ("issue", INSTANCE, "--role", "viewer"),
        ("issue", "--user", "ana", "--role", "root"),
        ("list", INSTANCE, "--user", "ana"),
        ("revoke", "--user", "ana"),
        ("revoke", "--user", "ana", INSTANCE, TOKEN_ID),
        ("revoke", INSTANCE, TOKEN_ID, TOKEN_ID),
    ],
)
def test_what_is_missing_or_too_much_is_a_usage_error(run: Run, api: Any, arguments: tuple[str, ...]) -> None:
    """2, and nothing is asked."""
    assert run("token", *arguments).exit_code == 2
    assert api.requests == []


def test_json_is_the_answer_of_the_api(run: Run, api: Any) -> None:
    """For each verb, alone on stdout."""
    api.tokens = [token_view(INSTANCE)]
    answers = {
        ("issue", INSTANCE): {"token": NODE_TOKEN} | token_view(INSTANCE),
        ("list", INSTANCE): {"instance_id": INSTANCE, "tokens": api.tokens},
        ("revoke", INSTANCE, TOKEN_ID): token_view(INSTANCE, live=False, revoked_at=AN_HOUR_AGO),
    }
    for verb, answer in answers.items():
        result = run("token", *verb, "--json")
        assert (result.exit_code, result.stderr, json.loads(result.stdout)) == (0, "", answer)


def test_list_shows_what_lives_and_what_does_not(run: Run, api: Any) -> None:
    """One line each: its id, and whether it still opens anything."""
    api.tokens = [
        token_view(INSTANCE, token_id="aaaaaaaaaaaa", live=False, revoked_at=AN_HOUR_AGO, note=""),
        token_view(INSTANCE, token_id="bbbbbbbbbbbb", live=False, expires_at=AN_HOUR_AGO),
        token_view(INSTANCE),
    ]
    lines = run("token", "list", INSTANCE).stdout.splitlines()
    assert len(lines) == 4
    assert "aaaaaaaaaaaa" in lines[1] and "revoked 1h00m ago" in lines[1]
    assert "expired at 2026-11-21 08:03:00Z" in lines[2] and "rack 7" in lines[2]
    assert TOKEN_ID in lines[3] and "ends 2026-11-23 09:03:00Z (in 2d00h)" in lines[3]


def test_an_instance_without_tokens_says_so(run: Run) -> None:
    """An empty answer would look like a failure."""
    assert run("token", "list", INSTANCE).stdout == f"{INSTANCE} has no tokens\n"


def test_revoke_names_the_token_by_its_id(run: Run, api: Any) -> None:
    """The token itself need not be known any more."""
    result = run("token", "revoke", INSTANCE, TOKEN_ID)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"Token {TOKEN_ID} of {INSTANCE}: revoked 1h00m ago\n"
    (request,) = api.requests
    assert (request.method, request.url.path) == ("DELETE", f"/prod/api/v2/instances/{INSTANCE}/tokens/{TOKEN_ID}")


@pytest.mark.parametrize(
    "verb", [("issue", INSTANCE), ("list", INSTANCE), ("revoke", INSTANCE, TOKEN_ID)], ids=lambda verb: verb[0]
)
@pytest.mark.parametrize(
    ("status", "title", "advice"),
    [
        (
            409,
            "Enough tokens",
            "`gpu-recovery token list` shows the existing tokens;"
            " `gpu-recovery token revoke` makes room for a new token.",
        ),
        (404, "No such token", "`gpu-recovery token list` shows the ids of tokens."),
        (422, "Not one", "Correct the named field and send the request again. Nothing was changed."),
    ],
)
def test_a_refusal_is_1_and_says_why(
    run: Run, api: Any, verb: tuple[str, ...], status: int, title: str, advice: str
) -> None:
    """In the server's own words, with what to do about it, and nothing on stdout."""
    api.answer = lambda request: problem(status, title, "because of this")
    result = run("token", *verb)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"gpu-recovery: {title} ({status}): because of this\n  {advice}\n"


def test_an_answer_without_a_token_is_1(run: Run, api: Any) -> None:
    """Whatever answers there is not the API."""
    api.answer = lambda request: httpx.Response(201, json={"hello": "world"})
    result = run("token", "issue", INSTANCE)
    assert (result.exit_code, result.stdout) == (1, "")


@pytest.mark.parametrize("odd", ["a/b", "..", "x?y", "#"])
def test_an_id_cannot_lead_to_another_path(run: Run, api: Any, odd: str) -> None:
    """Instance and token are one segment each."""
    run("token", "revoke", odd, TOKEN_ID)
    run("token", "revoke", INSTANCE, odd)
    assert len(api.requests) == (0 if odd == ".." else 2)
    for request in api.requests:
        parts = request.url.raw_path.split(b"/")
        assert (len(parts), parts[4], parts[6]) == (8, b"instances", b"tokens")
        assert not request.url.query


# -- of users ----------------------------------------------------------------------------------------------------------


def test_a_users_token_is_printed_alone_on_stdout(run: Run, api: Any) -> None:
    """As an instance's is; whom it speaks for, and as what, goes to stderr."""
    result = run("token", "issue", "--user", "ana", "--role", "viewer", "--expires-in", "12h", "--note", "laptop")
    assert (result.exit_code, result.stdout) == (0, f"{USER_TOKEN}\n")
    assert result.stderr == f"Token {TOKEN_ID} of ana (user): ends 2026-11-23 09:03:00Z (in 2d00h)\n"
    (request,) = api.requests
    assert (request.method, request.url.path) == ("POST", "/prod/api/v2/users/ana/tokens")
    assert json.loads(request.content) == {"role": "viewer", "expires_in_s": 43_200, "note": "laptop"}


def test_a_users_token_is_one_of_a_user_unless_another_role_is_given(run: Run, api: Any) -> None:
    """Nobody becomes an operator by leaving something out."""
    run("token", "issue", "--user", "ana")
    assert json.loads(api.requests[0].content) == {"role": "user"}


def test_a_users_tokens_are_listed_with_their_roles(run: Run, api: Any) -> None:
    """And revoked by their ids, as those of instances are."""
    api.tokens = [token_view(user="ana", role="viewer"), token_view(user="ana", role="user", token_id="bbbbbbbbbbbb")]
    header, first, second = run("token", "list", "--user", "ana").stdout.splitlines()
    assert header.split()[:3] == ["TOKEN", "ID", "ROLE"]
    assert (first.split()[:2], second.split()[:2]) == ([TOKEN_ID, "viewer"], ["bbbbbbbbbbbb", "user"])
    assert (
        run("token", "revoke", "--user", "ana", TOKEN_ID).stdout
        == f"Token {TOKEN_ID} of ana (user): revoked 1h00m ago\n"
    )
    assert [(one.method, one.url.path) for one in api.requests] == [
        ("GET", "/prod/api/v2/users/ana/tokens"),
        ("DELETE", f"/prod/api/v2/users/ana/tokens/{TOKEN_ID}"),
    ]


def test_a_user_without_tokens_says_so(run: Run) -> None:
    """By name."""
    assert run("token", "list", "--user", "ana").stdout == "ana has no tokens\n"


@pytest.mark.parametrize("odd", ["a/b", "x?y", "#"])
def test_a_users_name_is_one_segment_of_the_path(run: Run, api: Any, odd: str) -> None:
    """Whatever its characters."""
    run("token", "list", "--user", odd)
    (request,) = api.requests
    parts = request.url.raw_path.split(b"/")
    assert (len(parts), parts[4], parts[6]) == (7, b"users", b"tokens") and not request.url.query
