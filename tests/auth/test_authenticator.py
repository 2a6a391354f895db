"""The door of the node API: what is remembered of tokens, and what a flood of bad ones costs."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import gpu_recovery
import pytest
from gpu_recovery.auth.authenticator import (
    CACHED_TOKENS_MAX,
    CACHED_UNKNOWN_TOKENS_MAX,
    TokenAuthenticator,
    TokenInvalid,
    TokenMissing,
)
from gpu_recovery.auth.tokens import Token, TokenKind, TokenList, digest_of, issue, revoke
from gpu_recovery.ports.errors import TooManyReports

from tests.aws.records import NOW, A, later

SECRET = "s" * 43
NODE = TokenKind.NODE
PACKAGE = Path(gpu_recovery.__file__).parent
HOLD_SECRETS = ("auth/authenticator.py", "job_api/authentication.py", "job_api/pagination.py")
SECRETS = re.compile(r"\b(digest|digest_of|token|authorization|expected|raw|_mac)\b")
EQUALITY = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


@dataclass
class Shelf:
    """Tokens in memory; every look at one is kept."""

    kind = NODE
    tokens: dict[str, Token] = field(default_factory=dict)
    looks: list[str] = field(default_factory=list)
    now: datetime = NOW

    def load_token(self, token_id: str) -> Token | None:
        self.looks.append(token_id)
        return self.tokens.get(token_id)

    def load_tokens(self, instance_id: str) -> TokenList:
        return TokenList(NODE, instance_id)

    def save_token(self, listed: TokenList, changed: Token) -> None:
        self.tokens[changed.token_id] = changed


def token(number: int) -> str:
    return f"grn_{number:012d}_{SECRET}"


@pytest.fixture
def shelf() -> Shelf:
    """Token 1 is instance A's; there is no other."""
    kept = Token(NODE, f"{1:012d}", A, digest_of(token(1)), NOW, NOW + timedelta(days=1), "a test")
    return Shelf({kept.token_id: kept})


@pytest.fixture
def door(shelf: Shelf) -> TokenAuthenticator:
    """The door in front of the shelf, at the shelf's time."""
    return TokenAuthenticator(shelf, lambda: shelf.now, NODE)


@pytest.mark.parametrize(
    "given", ["x", "grn_", f"grn_{1:012d}_{SECRET}x", f" {token(1)}", token(1) + "\n", token(1).upper(), "x" * 100_000]
)
def test_what_cannot_be_a_token_is_refused_unread(door: TokenAuthenticator, shelf: Shelf, given: str) -> None:
    """However much of it comes."""
    with pytest.raises(TokenInvalid):
        door.authenticate(given)
    assert shelf.looks == []


def test_no_token_is_another_answer_than_a_bad_one(door: TokenAuthenticator) -> None:
    """401 and 403: the agent's log says what to do."""
    with pytest.raises(TokenMissing):
        door.authenticate("")


def test_a_wrong_secret_costs_one_look_for_all_guesses(door: TokenAuthenticator, shelf: Shelf) -> None:
    """Whoever knows an id may guess at its secret without costing anything."""
    for guess in range(1_000):
        with pytest.raises(TokenInvalid):
            door.authenticate(f"grn_{1:012d}_{guess:043d}")
    assert door.authenticate(token(1)).holder == A
    assert len(shelf.looks) == 1


def test_an_agent_that_goes_on_with_an_unknown_token_costs_one_look_a_minute(
    door: TokenAuthenticator, shelf: Shelf
) -> None:
    """A refusal is remembered, too."""
    for seconds in (0, 15, 30, 45, 59, 60, 75):
        shelf.now = later(seconds)
        with pytest.raises(TokenInvalid):
            door.authenticate(token(2))
    assert len(shelf.looks) == 2


def test_a_flood_of_invented_tokens_costs_so_many_looks_and_no_more(door: TokenAuthenticator, shelf: Shelf) -> None:
    """The others are asked to wait: an agent whose token is good but not yet known must not be sent away for good."""
    for number in range(1_000, 1_000 + CACHED_UNKNOWN_TOKENS_MAX):
        with pytest.raises(TokenInvalid):
            door.authenticate(token(number))
    for number in (1, *range(5_000, 5_500)):
        with pytest.raises(TooManyReports) as wait:
            door.authenticate(token(number))
        assert wait.value.retry_after_s == 60
    assert len(shelf.looks) == CACHED_UNKNOWN_TOKENS_MAX
    shelf.now = later(60)
    assert door.authenticate(token(1)).holder == A


def test_a_known_token_passes_through_a_flood(door: TokenAuthenticator) -> None:
    """Agents that were heard before notice nothing."""
    door.authenticate(token(1))
    for number in range(1_000, 1_000 + CACHED_UNKNOWN_TOKENS_MAX + 10):
        with pytest.raises((TokenInvalid, TooManyReports)):
            door.authenticate(token(number))
    assert door.authenticate(token(1)).holder == A


def test_what_is_remembered_is_bounded(door: TokenAuthenticator, shelf: Shelf) -> None:
    """A function lives for hours and must not grow; the oldest is forgotten first."""
    for number in range(2, CACHED_TOKENS_MAX + 2):
        kept = Token(NODE, f"{number:012d}", A, digest_of(token(number)), NOW, NOW + timedelta(days=1), "a test")
        shelf.tokens[kept.token_id] = kept
    for number in range(1, CACHED_TOKENS_MAX + 2):
        door.authenticate(token(number))
    assert len(door._read) == CACHED_TOKENS_MAX
    shelf.looks.clear()
    door.authenticate(token(CACHED_TOKENS_MAX + 1))
    assert shelf.looks == []
    door.authenticate(token(1))
    assert len(shelf.looks) == 1


def test_invented_tokens_keep_no_known_one_out(door: TokenAuthenticator, shelf: Shelf) -> None:
    """Anybody can send sixty ids a minute; a fleet must not fall silent for it."""
    assert door.authenticate(token(1)).holder == A
    shelf.now = later(61)
    for number in range(2, CACHED_UNKNOWN_TOKENS_MAX + 2):
        with pytest.raises(TokenInvalid):
            door.authenticate(token(number))
    with pytest.raises(TooManyReports):
        door.authenticate(token(CACHED_UNKNOWN_TOKENS_MAX + 5))
    assert door.authenticate(token(1)).holder == A


def test_gap_6_a_token_is_kept_hashed_is_replaced_in_turn_and_ends(shelf: Shelf, door: TokenAuthenticator) -> None:
    """Seed 000's server keeps it in clear, for ever, and has no way to the next."""
    first = issue(shelf, A, NOW, "ada", {"expires_in_s": 3_600})
    second = issue(shelf, A, NOW, "ada", {})
    assert first.token not in repr(shelf.tokens) and first.token.split("_", 2)[2] not in repr(shelf.tokens)
    assert [door.authenticate(one.token).holder for one in (first, second)] == [A, A]
    shelf.now = later(3_700)
    with pytest.raises(TokenInvalid):
        door.authenticate(first.token)
    assert door.authenticate(second.token).holder == A


def test_secrets_are_compared_in_constant_time_and_in_no_other_way() -> None:
    """Equality ends at the first character that differs, and its time tells how many were right. In every module that
    holds a secret against another, no `==` and no `in` has one on either side, and each has its call of `hmac`."""
    compared, calls = [], {}
    for name in HOLD_SECRETS:
        tree = list(ast.walk(ast.parse((PACKAGE / name).read_text(encoding="utf-8"))))
        calls[name] = sum(isinstance(one, ast.Attribute) and one.attr == "compare_digest" for one in tree)
        for node in tree:
            if isinstance(node, ast.Compare) and any(isinstance(one, EQUALITY) for one in node.ops):
                compared += [f"{name}: {ast.unparse(node)}"] if SECRETS.search(ast.unparse(node)) else []
    assert compared == []
    assert [name for name, count in calls.items() if count == 1] == list(HOLD_SECRETS)
    others = [path for path in PACKAGE.rglob("*.py") if "hmac" in path.read_text(encoding="utf-8")]
    assert {path.relative_to(PACKAGE).as_posix() for path in others} == set(HOLD_SECRETS)


def test_a_revoked_token_opens_nothing_a_minute_later(door: TokenAuthenticator, shelf: Shelf) -> None:
    """So long what was read of it is believed."""
    listed: dict[str, TokenList] = {}
    shelf.load_tokens = lambda instance_id: listed.get(instance_id, TokenList(NODE, instance_id))  # type: ignore[method-assign]
    keep = shelf.save_token

    def save(before: TokenList, changed: Token) -> None:
        listed[A] = before
        keep(before, changed)

    shelf.save_token = save  # type: ignore[method-assign]
    given = issue(shelf, A, NOW, "ada", {})
    assert door.authenticate(given.token).holder == A
    revoke(shelf, A, given.token.split("_")[1], NOW)
    shelf.now = later(61)
    with pytest.raises(TokenInvalid):
        door.authenticate(given.token)
