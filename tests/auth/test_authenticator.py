"""The check of a token: what is remembered of tokens, and what a flood of invented ones costs."""

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
    TokenAuthenticator,
    TokenInvalid,
    TokenMissing,
)
from gpu_recovery.auth.tokens import AskedToken, Token, TokenKind, TokenList, digest_of, issue, revoke

from tests.aws.issuer_keys import invented, tagged
from tests.aws.records import NOW, A, later

KEY = b"an issuer key"
NODE = TokenKind.NODE
PACKAGE = Path(gpu_recovery.__file__).parent
HOLD_SECRETS = (
    "auth/authenticator.py",
    "auth/issuer_tag.py",
    "auth/sessions.py",
    "core/launch_signature.py",
    "job_api/authentication.py",
    "job_api/pagination.py",
)
DERIVES_KEYS = "auth/key_derivation.py"
SECRETS = re.compile(r"\b(digest|digest_of|token|authorization|expected|raw|_mac|tag|_tag)\b")
FLOOD = [invented(NODE, number) for number in range(1_000)]
"""Invented tokens. Each is refused without a trace, so a flood may repeat them."""
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
    """A token with the right tag."""
    return tagged(KEY, NODE, number)


def kept(text: str) -> Token:
    """The record of a token of instance A."""
    return Token(NODE, text.split("_")[1], A, digest_of(text), NOW, NOW + timedelta(days=1), "a test")


@pytest.fixture
def shelf() -> Shelf:
    """Token 1 is instance A's; there is no other."""
    return Shelf({f"{1:012d}": kept(token(1))})


@pytest.fixture
def door(shelf: Shelf) -> TokenAuthenticator:
    """The door in front of the shelf, at the shelf's time."""
    return TokenAuthenticator(shelf, lambda: shelf.now, NODE, lambda: KEY)


@pytest.mark.parametrize(
    "given",
    ["x", "grn_", token(1)[:-23], token(1) + "x", f" {token(1)}", token(1) + "\n", token(1).upper(), "x" * 100_000],
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


@pytest.mark.parametrize(
    "given",
    [
        invented(NODE, 1),
        tagged(KEY, NODE, 1, secret="t" * 43)[:-22] + token(1)[-22:],
        token(3)[:16] + token(1)[16:],
        token(1)[:-1] + ("A" if token(1)[-1] != "A" else "Q"),
        tagged(KEY, TokenKind.USER, 1).replace("gru_", "grn_"),
    ],
    ids=["another key", "another secret", "another id", "one character", "another kind"],
)
def test_a_token_whose_tag_is_wrong_is_refused_unread(door: TokenAuthenticator, shelf: Shelf, given: str) -> None:
    """The tag covers the kind, the id and the secret. Whoever lacks the key has none of them right."""
    with pytest.raises(TokenInvalid, match="not issued"):
        door.authenticate(given)
    assert shelf.looks == []
    assert door.authenticate(token(1)).holder == A


def test_a_tag_alone_opens_nothing(door: TokenAuthenticator, shelf: Shelf) -> None:
    """Who has the issuer key, such as a function that was taken over, still needs an item with the token's digest."""
    with pytest.raises(TokenInvalid):
        door.authenticate(token(3))
    with pytest.raises(TokenInvalid):
        door.authenticate(tagged(KEY, NODE, 1, secret="t" * 43))
    assert shelf.looks == [f"{3:012d}", f"{1:012d}"]


@pytest.mark.slow
def test_a_flood_of_invented_tokens_costs_no_look_and_delays_no_token(door: TokenAuthenticator, shelf: Shelf) -> None:
    """Forty a second for two hours. A valid token that no function has read lately is accepted at each moment."""
    accepted = refused = 0
    for second in range(7_200):
        shelf.now = later(second)
        for number in range(40):
            try:  # faster than pytest.raises
                door.authenticate(FLOOD[(second * 40 + number) % len(FLOOD)])
            except TokenInvalid:
                refused += 1
        if second % 90 == 0:
            accepted += door.authenticate(token(1)).holder == A
    assert (accepted, refused) == (80, 288_000) and shelf.looks == [f"{1:012d}"] * 80


# -- what is remembered ------------------------------------------------------------------------------------------------


def test_guesses_at_an_issued_token_cost_nothing(door: TokenAuthenticator, shelf: Shelf) -> None:
    """Whoever knows an id still has no tag for another secret."""
    for guess in range(1_000):
        with pytest.raises(TokenInvalid):
            door.authenticate(token(1)[:17] + f"{guess:043d}" + token(1)[60:])
    assert shelf.looks == []


def test_an_agent_that_goes_on_with_a_token_that_is_gone_costs_one_look_a_minute(
    door: TokenAuthenticator, shelf: Shelf
) -> None:
    """A refusal is remembered, too."""
    for seconds in (0, 15, 30, 45, 59, 60, 75):
        shelf.now = later(seconds)
        with pytest.raises(TokenInvalid):
            door.authenticate(token(3))
    assert len(shelf.looks) == 2


def test_what_is_remembered_is_bounded(door: TokenAuthenticator, shelf: Shelf) -> None:
    """A function lives for hours and must not grow; the oldest is forgotten first."""
    for number in range(2, CACHED_TOKENS_MAX + 2):
        record = kept(token(number))
        shelf.tokens[record.token_id] = record
    for number in range(1, CACHED_TOKENS_MAX + 2):
        door.authenticate(token(number))
    assert len(door._read) == CACHED_TOKENS_MAX
    shelf.looks.clear()
    door.authenticate(token(CACHED_TOKENS_MAX + 1))
    assert shelf.looks == []
    door.authenticate(token(1))
    assert len(shelf.looks) == 1


def test_gap_6_a_token_is_kept_hashed_is_replaced_in_turn_and_ends(shelf: Shelf, door: TokenAuthenticator) -> None:
    """Seed 000's server keeps it in clear, for ever, and has no way to the next."""
    first = issue(shelf, KEY, A, NOW, "ada", AskedToken(lifetime=timedelta(seconds=3_600)))
    second = issue(shelf, KEY, A, NOW, "ada", AskedToken())
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
    assert [name for name, count in calls.items() if count] == list(HOLD_SECRETS)
    others = [path for path in PACKAGE.rglob("*.py") if "hmac" in path.read_text(encoding="utf-8")]
    assert {path.relative_to(PACKAGE).as_posix() for path in others} == {*HOLD_SECRETS, DERIVES_KEYS}


def test_a_revoked_token_opens_nothing_a_minute_later(door: TokenAuthenticator, shelf: Shelf) -> None:
    """So long what was read of it is believed."""
    listed: dict[str, TokenList] = {}
    shelf.load_tokens = lambda instance_id: listed.get(instance_id, TokenList(NODE, instance_id))  # type: ignore[method-assign]
    keep = shelf.save_token

    def save(before: TokenList, changed: Token) -> None:
        listed[A] = before
        keep(before, changed)

    shelf.save_token = save  # type: ignore[method-assign]
    given = issue(shelf, KEY, A, NOW, "ada", AskedToken())
    assert door.authenticate(given.token).holder == A
    revoke(shelf, A, given.token.split("_")[1], NOW)
    shelf.now = later(61)
    with pytest.raises(TokenInvalid):
        door.authenticate(given.token)
