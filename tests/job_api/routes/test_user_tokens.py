"""Users: their tokens, and what each role may do."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any
from urllib.parse import quote

import pytest
from gpu_recovery.auth.authenticator import TOKEN_CACHE_TTL
from gpu_recovery.auth.roles import Role
from gpu_recovery.auth.tokens import AskedToken, TokenKind, issue
from gpu_recovery.aws.token_store import DynamoTokenStore, DynamoUserTokenStore
from gpu_recovery.core.job.record import JobStatus
from gpu_recovery.job_api.router import ROUTES

from tests.aws.issuer_keys import NODE_KEY, USER_KEY, invented
from tests.aws.records import JOB, NOW, A, instance, job, later, spec
from tests.job_api.submissions import ASKED
from tests.lambdas.api_gateway import Api, refused, user_token
from tests.lambdas.conftest import Functions

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
ANA = "/users/ana/tokens"
OWN = {name: value for name, value in ASKED.items() if name != "user"}


@pytest.fixture
def api(functions: Functions) -> Api:
    """The API on empty tables."""
    return Api(functions)


def concrete(path: str) -> str:
    """A route's path with ids in it."""
    return path.replace("<job_id>", JOB).replace("<instance_id>", A).replace("<user>", "ana").replace("<token_id>", "x")


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_token_of_a_user_is_shown_once_and_kept_as_a_hash(api: Api, functions: Functions) -> None:
    """Neither it nor its secret is in any item, log or listing afterwards."""
    answer = api.post(ANA, {"role": "viewer", "note": "laptop"})
    assert answer.status == 201
    assert {"id", "user", "role", "expires_at", "token"} <= set(answer.body)
    spelt = TokenKind.USER.pattern.fullmatch(answer.body["token"])
    assert spelt is not None and spelt["id"] == answer.body["id"]
    assert (answer.body["user"], answer.body["role"], answer.body["live"]) == ("ana", "viewer", True)
    listing = api.get(ANA).body
    shown = json.dumps(functions.kept()) + functions.log.getvalue() + json.dumps(listing)
    assert answer.body["token"][17:60] not in shown and answer.body["token"][61:] not in shown
    assert listing["tokens"][0]["note"] == "laptop"


@pytest.mark.parametrize("name", ["lab/dora", "lab/tokens", "a/tokens/b", "a//b"])
def test_a_name_with_slashes_is_a_user(api: Api, name: str) -> None:
    """API Gateway decodes the slashes of a path: the function gets /users/lab/dora/tokens."""
    path = f"/users/{quote(name, safe='')}/tokens"
    issued = api.post(path, {"role": "user"}).body
    assert api.call("GET", "/api/v2/me", token=f"Bearer {issued['token']}").body["user"] == name
    assert [one["id"] for one in api.get(path).body["tokens"]] == [issued["id"]]
    revoked = api.call("DELETE", f"/api/v2{path}/{issued['id']}").body
    assert (revoked["user"], revoked["live"]) == (name, False)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"role": "root"}, "role"),
        ({"role": 7}, "role"),
        ({"expires_in_s": 59}, "expires_in_s"),
        ({"user": "x"}, "user"),
        ({"note": "a\nb"}, "note"),
        ([], "body"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(api: Api, asked: Any, field: str) -> None:
    """With its field; nothing is kept."""
    refused(api.post(ANA, asked), 422, field)
    assert api.get(ANA).body["tokens"] == []


@pytest.mark.parametrize("name", ["*", "%20ana", "a" * 128, "ana%23x", "ana;"])
def test_only_what_a_user_can_be_called_has_tokens(api: Api, name: str) -> None:
    """A star would be everybody in the limits."""
    refused(api.post(f"/users/{name}/tokens"), 422, "user")


def test_a_user_has_two_live_tokens_at_most(api: Api, functions: Functions) -> None:
    """As nodes have; revoking or expiring one makes room."""
    first = api.post(ANA, {"expires_in_s": 60}).body["id"]
    api.post(ANA)
    assert first in refused(api.post(ANA), 409)
    functions.now = later(60)
    assert api.post(ANA).status == 201


def test_a_revoked_token_opens_nothing_within_a_minute(api: Api, functions: Functions) -> None:
    """What was read of it is believed until then."""
    token = user_token(api, "ana")
    assert api.call("GET", "/api/v2/jobs", token=token).status == 200
    token_id = api.get(ANA).body["tokens"][0]["id"]
    assert api.call("DELETE", f"/api/v2{ANA}/{token_id}").body["live"] is False
    functions.now = NOW + TOKEN_CACHE_TTL
    refused(api.call("GET", "/api/v2/jobs", token=token), 401)
    refused(api.call("DELETE", f"/api/v2{ANA}/0123456789ab"), 404)


def test_a_token_ends_by_its_date(api: Api, functions: Functions) -> None:
    """Also one that was read a moment ago."""
    token = f"Bearer {api.post(ANA, {'expires_in_s': 60}).body['token']}"
    assert api.call("GET", "/api/v2/jobs", token=token).status == 200
    functions.now = later(60)
    refused(api.call("GET", "/api/v2/jobs", token=token), 401)


def test_tokens_of_nodes_and_of_users_are_two_things(api: Api, functions: Functions) -> None:
    """Neither opens the other's door, though both are issued by the same code."""
    node = api.post(f"/instances/{A}/tokens").body["token"]
    refused(api.call("GET", "/api/v2/jobs", token=f"Bearer {node}"), 401)
    refused(api.call("GET", "/api/v2/jobs", token=f"Bearer gru_{node[4:]}"), 401)
    table = functions.store
    nodes = DynamoTokenStore(table.table.client, table.table.name)
    users = DynamoUserTokenStore(table.jobs.client, table.jobs.name)
    issued = issue(users, USER_KEY, "ana", NOW, "a test", AskedToken())
    assert (
        nodes.load_token(issued.record.token_id) is None and users.load_token(issued.record.token_id) == issued.record
    )


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1] + ("a" if t[-1] != "a" else "b"), lambda t: t + "a", lambda t: t[:-1]]
)
def test_a_token_that_is_nearly_right_opens_nothing(api: Api, change: Any) -> None:
    """Its whole digest is compared."""
    refused(api.call("GET", "/api/v2/jobs", token=change(user_token(api, "ana"))), 401)


def test_a_flood_of_invented_tokens_delays_no_user_and_reads_nothing(api: Api, functions: Functions) -> None:
    """Forty a second, at whatever time in three hours the user's token is read anew: it is accepted at once."""
    token = user_token(api, "ana")
    for minutes in range(0, 180, 15):
        functions.now = later(60 * minutes)
        for number in range(80):
            guess = invented(TokenKind.USER, 100 * minutes + number)
            assert api.call("GET", "/api/v2/queue", token=f"Bearer {guess}").status == 401
            assert {service for service, _ in functions.aws.calls} <= {"secretsmanager"}
        assert api.call("GET", "/api/v2/jobs", token=token).status == 200


def test_who_has_the_key_of_node_tokens_makes_no_token_of_a_user(api: Api, functions: Functions) -> None:
    """The node API has that key and may write to the table of jobs. An item of its own is not even read."""
    table = functions.store
    users = DynamoUserTokenStore(table.jobs.client, table.jobs.name)
    forged = issue(users, NODE_KEY, "mallory", NOW, "the node API", AskedToken(Role.OPERATOR)).token
    refused(api.call("GET", "/api/v2/jobs", token=f"Bearer {forged}"), 401)
    assert functions.aws.operations("dynamodb") == {}
    issued = issue(users, USER_KEY, "ada", NOW, "the job API", AskedToken(Role.OPERATOR)).token
    assert api.call("GET", "/api/v2/jobs", token=f"Bearer {issued}").status == 200


def test_a_new_operator_token_revokes_no_other_token(api: Api, functions: Functions) -> None:
    """The issuer keys are secrets of their own, so a rotation concerns the operator alone."""
    token = user_token(api, "ana")

    def rotated(asked: dict[str, Any]) -> dict[str, Any]:
        suffix = ", rotated" if asked["SecretId"] == "operator-token" else ""
        return {"SecretString": f"secret of {asked['SecretId']}{suffix}"}

    functions.aws.answers["GetSecretValue"] = rotated
    import_module("gpu_recovery.aws.secret_values")._token.cache_clear()
    refused(api.get("/jobs"), 401)
    assert api.call("GET", "/api/v2/jobs", token=token).status == 200


# -- roles -------------------------------------------------------------------------------------------------------------


HIGHER = [route for route in ROUTES if route.needs not in (None, Role.VIEWER)]


@pytest.mark.parametrize("route", HIGHER, ids=lambda route: f"{route.method} {route.path}")
def test_a_role_that_is_too_low_is_refused_before_anything_is_done(api: Api, route: Any) -> None:
    """403 for every route that takes a higher one; the table of routes is the only list."""
    lower = list(Role)[list(Role).index(route.needs) - 1]
    token = user_token(api, "ana", lower)
    api.call("GET", "/api/v2/jobs", token=token)  # the token is read
    answer = api.call(route.method, concrete(route.path), {}, token=token)
    refused(answer, 403)
    assert answer.body["code"] == "role_too_low" and api.functions.aws.count("dynamodb") == 0


def test_what_changes_something_takes_more_than_a_viewer() -> None:
    """Whoever adds a route says so, or is told here."""
    asking = {"/api/v2/diagnoses", "/api/v2/sessions"}  # neither stores anything
    assert {route.path for route in ROUTES if route.method != "GET" and route.needs in (None, Role.VIEWER)} == asking
    assert [route.path for route in ROUTES if route.needs is None] == ["/api/v2/openapi.json"]


def test_an_operator_by_token_does_what_the_secret_does(api: Api) -> None:
    """And is named in what was done."""
    api.functions.store.save_instance(instance())
    token = user_token(api, "eve", "operator")
    body = api.post(f"/instances/{A}/quarantine", {"because": "noise"}, token=token).body
    assert body["reason"] == "quarantined by eve: noise"


def test_the_jobs_of_a_users_token_are_that_users(api: Api) -> None:
    """Whether the specification names the user or nobody."""
    token = user_token(api, "ana")
    for asked in (OWN, OWN | {"user": "ana"}, OWN | {"user": ""}):
        assert api.post("/jobs", asked, token=token).body["user"] == "ana"


def test_nobody_submits_in_anothers_name(api: Api) -> None:
    """403, dry run or not; an operator may."""
    token = user_token(api, "ana")
    for query in ({}, {"dry_run": "1"}):
        answer = api.post("/jobs", OWN | {"user": "bob"}, token=token, **query)
        refused(answer, 403, "user")
        assert answer.body["code"] == "foreign_user"
        assert "TransactWriteItems" not in api.functions.aws.operations()
    assert api.post("/jobs", OWN | {"user": "bob"}).body["user"] == "bob"


@pytest.mark.parametrize("verb", ["cancel", "suspend", "resume"])
def test_a_user_orders_only_about_its_own_jobs(api: Api, verb: str) -> None:
    """Another's is left as it is; an operator orders about any."""
    api.functions.store.create_job(job(spec=spec(user="bob")), "")
    before = api.functions.job()
    answer = api.post(f"/jobs/{JOB}/{verb}", token=user_token(api, "ana"))
    refused(answer, 403)
    assert (answer.body["code"], answer.body["job_id"]) == ("foreign_job", JOB)
    assert api.functions.job() == before
    assert api.post(f"/jobs/{JOB}/{verb}", token=user_token(api, "bob")).status in (200, 202)


def test_a_job_of_nobody_is_the_operators(api: Api) -> None:
    """A user's name is never empty, so nobody owns it by chance."""
    api.functions.store.create_job(job(spec=spec(user="")), "")
    refused(api.post(f"/jobs/{JOB}/cancel", token=user_token(api, "ana")), 403)
    assert api.post(f"/jobs/{JOB}/cancel").status == 202
    assert api.functions.job().status is JobStatus.CANCELED
