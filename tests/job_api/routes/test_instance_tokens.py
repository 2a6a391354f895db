"""The tokens of nodes, as an operator issues, lists and revokes them."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from gpu_recovery.auth.tokens import (
    LISTED_TOKENS_MAX,
    VALID_TOKENS_MAX,
    AskedToken,
    Token,
    TokenKind,
    TokenList,
    TokensFull,
    checked_holder,
    digest_of,
    issue,
    revoke,
)
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.errors import SpecInvalid
from gpu_recovery.ports.errors import StaleRecord, TooManyConflicts

from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import NOW, A, B, later
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
TOKENS = f"/instances/{A}/tokens"


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables: no instance is known yet."""
    return Api(functions)


@pytest.fixture
def store(functions: Functions) -> DynamoTokenStore:
    """The tokens' own store on the same table."""
    return DynamoTokenStore(functions.store.table.client, functions.store.table.name)


def test_a_token_is_issued_for_an_instance_that_nobody_knows_yet(api: Api) -> None:
    """Its agent may be installed before ECS registers it."""
    answer = api.post(TOKENS, {"note": "rack 7"})
    assert answer.status == 201
    assert set(answer.body) == {
        "token",
        "token_id",
        "instance_id",
        "live",
        "issued_at",
        "expires_at",
        "revoked_at",
        "issued_by",
        "note",
    }
    spelt = TokenKind.NODE.pattern.fullmatch(answer.body["token"])
    assert spelt is not None and spelt["id"] == answer.body["token_id"]
    assert (answer.body["instance_id"], answer.body["note"], answer.body["live"]) == (A, "rack 7", True)
    assert answer.body["expires_at"] == (NOW + timedelta(days=90)).isoformat(timespec="milliseconds").replace(
        "+00:00", "Z"
    )


def test_a_token_is_kept_as_a_hash(api: Api, functions: Functions) -> None:
    """Neither it nor its secret is in any item, log or listing afterwards."""
    token = api.post(TOKENS).body["token"]
    shown = json.dumps(functions.kept()) + functions.log.getvalue() + json.dumps(api.get(TOKENS).body)
    assert token[17:60] not in shown and token[61:] not in shown
    assert digest_of(token) in json.dumps(functions.kept()) and digest_of(token) not in functions.log.getvalue()


def test_every_token_is_another(api: Api) -> None:
    """Twelve characters of id, 43 of secret, both by chance, and 22 of the issuer tag."""
    tokens = [api.post(f"/instances/i-{number:017x}/tokens").body["token"] for number in range(20)]
    assert len({token[4:16] for token in tokens}) == len({token[17:60] for token in tokens}) == 20
    assert {len(token) for token in tokens} == {4 + 12 + 1 + 43 + 1 + 22}


@pytest.mark.parametrize(("asked", "life_s"), [({}, 7_776_000), ({"expires_in_s": 60}, 60), (None, 7_776_000)])
def test_the_operator_chooses_how_long_a_token_lives(api: Api, asked: Any, life_s: int) -> None:
    """Ninety days unless said otherwise."""
    view = api.post(TOKENS, asked).body
    assert view["expires_at"][:19] == (NOW + timedelta(seconds=life_s)).isoformat()[:19]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"expires_in_s": 59}, "expires_in_s"),
        ({"expires_in_s": 31_622_401}, "expires_in_s"),
        ({"expires_in_s": True}, "expires_in_s"),
        ({"expires_in_s": "90d"}, "expires_in_s"),
        ({"note": "x" * 201}, "note"),
        ({"note": "two\nlines"}, "note"),
        ({"note": 7}, "note"),
        ({"instance_id": B}, "instance_id"),
        ([], "body"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(api: Api, asked: Any, field: str) -> None:
    """With its field; nothing is written."""
    refused(api.post(TOKENS, asked), 422, field)
    assert api.get(TOKENS).body["tokens"] == []


@pytest.mark.parametrize("name", ["i-0123", "fleet", "i-0AAAAAAAAAAAAAAAA", "i-0aaaaaaaaaaaaaaaaa0", "tokens", "x"])
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_only_what_an_instance_can_be_called_has_tokens(api: Api, method: str, name: str) -> None:
    """A misspelt instance would have a token that opens nothing of use."""
    path = f"/api/v2/instances/{name}/tokens" + ("/0123456789ab" if method == "DELETE" else "")
    refused(api.call(method, path), 422, "instance_id")


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_no_path_names_the_item_of_a_holder(api: Api, method: str) -> None:
    """A number sign, which API Gateway decodes, is part of no id."""
    path = "/api/v2/instances/tokens%23x/tokens" + ("/0123456789ab" if method == "DELETE" else "")
    refused(api.call(method, path), 404)


def test_an_instance_has_two_live_tokens_at_most(api: Api) -> None:
    """Enough for a rotation; the refusal says which there are."""
    ids = [api.post(TOKENS).body["token_id"] for _ in range(VALID_TOKENS_MAX)]
    detail = refused(api.post(TOKENS), 409)
    assert all(one in detail for one in ids)
    api.call("DELETE", f"/api/v2{TOKENS}/{ids[0]}")
    assert api.post(TOKENS).status == 201
    assert api.post(f"/instances/{B}/tokens").status == 201


def test_an_expired_token_makes_room(api: Api, functions: Functions) -> None:
    """By the time, not by what the table has deleted."""
    for _ in range(VALID_TOKENS_MAX):
        api.post(TOKENS, {"expires_in_s": 60})
    functions.now = later(60)
    assert api.post(TOKENS).status == 201
    assert [one["live"] for one in api.get(TOKENS).body["tokens"]] == [False, False, True]


def test_a_revoked_token_is_dead_and_stays_as_it_died(api: Api, functions: Functions) -> None:
    """A second revocation changes nothing; both listings say since when."""
    token_id = api.post(TOKENS).body["token_id"]
    first = api.call("DELETE", f"/api/v2{TOKENS}/{token_id}")
    functions.now = later(100)
    again = api.call("DELETE", f"/api/v2{TOKENS}/{token_id}")
    assert (first.status, again.status) == (200, 200) and first.body == again.body
    assert first.body["live"] is False and first.body["revoked_at"].startswith(NOW.isoformat()[:19])
    assert api.get(TOKENS).body == {"instance_id": A, "tokens": [first.body]}


@pytest.mark.parametrize("token_id", ["0123456789ab", "fleet", "x"])
def test_a_token_of_another_instance_is_not_found(api: Api, token_id: str) -> None:
    """Whoever mistypes the instance revokes nothing."""
    theirs = api.post(f"/instances/{B}/tokens").body["token_id"]
    for one in (token_id, theirs):
        refused(api.call("DELETE", f"/api/v2{TOKENS}/{one}"), 404)
    assert api.get(f"/instances/{B}/tokens").body["tokens"][0]["live"] is True


@pytest.mark.parametrize(("method", "path"), [("POST", TOKENS), ("GET", TOKENS), ("DELETE", f"{TOKENS}/0123456789ab")])
@pytest.mark.parametrize("token", [None, "Bearer wrong"])
def test_tokens_of_nodes_are_the_operators_business(api: Api, method: str, path: str, token: str | None) -> None:
    """A node's own token opens none of these routes, nor does anything but the operator's."""
    nodes = f"Bearer {api.post(f'/instances/{B}/tokens').body['token']}"
    for one in (token, nodes):
        refused(api.call(method, f"/api/v2{path}", {}, token=one), 401)
        assert api.functions.aws.count("dynamodb") == 0


def test_a_listing_is_one_read(api: Api) -> None:
    """However many tokens there are, and without a scan."""
    api.post(TOKENS)
    api.post(TOKENS)
    assert len(api.get(TOKENS).body["tokens"]) == 2
    assert api.functions.aws.operations("dynamodb") == {"GetItem": 1}


def test_what_became_of_tokens_is_in_the_log_by_id(api: Api) -> None:
    """Who issued and revoked what, for an audit."""
    token_id = api.post(TOKENS, {"note": "rack 7"}).body["token_id"]
    api.call("DELETE", f"/api/v2{TOKENS}/{token_id}")
    for message in ("token_issued", "token_revoked"):
        (line,) = api.functions.logged(message)
        assert (line["token_id"], line["instance_id"], line["note"]) == (token_id, A, "rack 7")


def test_an_instance_is_listed_as_before(api: Api) -> None:
    """The items of tokens are none of instances, although they share a table."""
    api.post(TOKENS)
    assert api.get("/instances").body["instances"] == []
    assert api.get(f"/instances/{A}").status == 404
    assert api.call("GET", "/api/v2/instances/tokens%23" + A).status == 404


# -- the list of an instance -------------------------------------------------------------------------------------------


def test_a_list_forgets_the_oldest_of_the_dead(store: DynamoTokenStore) -> None:
    """It cannot grow without bound, and what lives is never forgotten."""
    living = issue(store, NODE_KEY, A, NOW, "a test", AskedToken()).record
    dead: list[str] = []
    for number in range(LISTED_TOKENS_MAX + 5):
        dead.append(issue(store, NODE_KEY, A, later(number), "a test", AskedToken()).record.token_id)
        revoke(store, A, dead[-1], later(number))
    listed = [token.token_id for token in store.load_tokens(A).tokens]
    assert listed == [living.token_id, *dead[-(LISTED_TOKENS_MAX - 1) :]]


class Overtaken:
    """A store whose list is written by others whenever somebody wants to write it, `times` times."""

    kind = TokenKind.NODE

    def __init__(self, store: DynamoTokenStore, times: int) -> None:
        self.store, self.times = store, times

    def load_token(self, token_id: str) -> Token | None:
        return self.store.load_token(token_id)

    def load_tokens(self, instance_id: str) -> TokenList:
        return self.store.load_tokens(instance_id)

    def save_token(self, listed: TokenList, changed: Token) -> None:
        if self.times:
            self.times -= 1
            issue(self.store, NODE_KEY, listed.holder, NOW, "somebody else", AskedToken())
        self.store.save_token(listed, changed)


def test_two_operators_at_once_do_not_make_a_third_token(store: DynamoTokenStore) -> None:
    """The one who was overtaken looks again, and only then decides."""
    issue(store, NODE_KEY, A, NOW, "a test", AskedToken())
    with pytest.raises(TokensFull):
        issue(Overtaken(store, 1), NODE_KEY, A, NOW, "a test", AskedToken())
    assert [one.issued_by for one in store.load_tokens(A).tokens] == ["a test", "somebody else"]


def test_a_list_that_is_written_all_the_time_is_an_error(store: DynamoTokenStore) -> None:
    """It ends, and says so."""

    class Always(Overtaken):
        def save_token(self, listed: TokenList, changed: Token) -> None:
            raise StaleRecord("always")

    with pytest.raises(TooManyConflicts, match=A):
        issue(Always(store, 0), NODE_KEY, A, NOW, "a test", AskedToken())


@pytest.mark.parametrize("name", ["", "i-", "i-0123456", "I-0123456789abcdef0", f"{A}\n", f"{A} ", "mi-xyz"])
def test_an_id_that_no_instance_has_is_refused(name: str) -> None:
    """Before anything is read."""
    with pytest.raises(SpecInvalid, match="instance_id"):
        checked_holder(TokenKind.NODE, name)


def test_the_form_of_a_token_is_fixed() -> None:
    """Agents and operators know it by its prefix."""
    assert TokenKind.NODE.pattern.pattern.startswith("grn_")
    for wrong in ("x" * 43, f"{'x' * 43}_{'y' * 21}", f"{'x' * 43}_{'y' * 23}", f"{'x' * 42}_{'y' * 22}"):
        assert not re.fullmatch(TokenKind.NODE.pattern, f"grn_0123456789ab_{wrong}")
