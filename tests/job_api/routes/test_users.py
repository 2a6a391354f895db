"""The list of the users that tokens were issued to."""

from __future__ import annotations

import pytest

from tests.aws.records import later
from tests.lambdas.api_gateway import Api, refused, user_token

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")


def test_a_user_is_listed_from_the_first_token_on(api: Api) -> None:
    """With the roles of the valid tokens, and the end that comes next."""
    assert api.get("/users").body == {"users": [], "next_cursor": None}
    api.post("/users/ana/tokens", {"role": "operator", "expires_in_s": 3_600})
    api.post("/users/ana/tokens", {"role": "viewer", "expires_in_s": 60})
    api.post("/users/bob@example.org/tokens", {})
    ana, bob = api.get("/users").body["users"]
    assert ana == {
        "user": "ana",
        "roles": ["viewer", "operator"],
        "live_tokens": 2,
        "next_end": "2026-11-21T09:01:00.000Z",
        "last_issued_at": "2026-11-21T09:00:00.000Z",
    }
    assert (bob["user"], bob["roles"], bob["live_tokens"]) == ("bob@example.org", ["user"], 1)


def test_a_user_without_a_valid_token_stays_in_the_list(api: Api) -> None:
    """Whose token ended is a question of its own."""
    api.post("/users/ana/tokens", {"expires_in_s": 60})
    api.functions.now = later(61)
    (ana,) = api.get("/users").body["users"]
    assert (ana["roles"], ana["live_tokens"], ana["next_end"]) == ([], 0, None)


def test_the_list_is_paged_and_filtered(api: Api) -> None:
    """In the order of names; the tokens of a page are read in one call."""
    for name in ("dan", "bob", "ana", "anton"):
        api.post(f"/users/{name}/tokens", {})
    first = api.get("/users", limit="3").body
    assert api.functions.aws.operations()["BatchGetItem"] == 1
    second = api.get("/users", limit="3", cursor=first["next_cursor"]).body
    assert [one["user"] for one in first["users"] + second["users"]] == ["ana", "anton", "bob", "dan"]
    assert second["next_cursor"] is None
    assert [one["user"] for one in api.get("/users", q="an").body["users"]] == ["ana", "anton"]
    refused(api.get("/users", cursor=first["next_cursor"], q="an"), 400, "cursor")


def test_only_an_operator_lists_users(api: Api) -> None:
    """Names of colleagues are no public list."""
    for role in ("viewer", "user"):
        refused(api.call("GET", "/api/v2/users", token=user_token(api, "ana", role)), 403)
    assert api.call("GET", "/api/v2/users", token=user_token(api, "op", "operator")).status == 200


def test_a_token_is_issued_where_the_list_of_names_is_full(api: Api) -> None:
    """The item with the names has reached the size of an item: the name is missing, the token works."""
    full = {"__type": "com.amazon.coral.validate#ValidationException", "message": "Item size to update has exceeded"}
    error = {"Error": {"Code": "ValidationException", "Message": full["message"]}}
    api.functions.aws.dynamodb["UpdateItem"] = lambda asked: error if "#user-names" in str(asked) else None
    token = user_token(api, "ana")
    assert api.call("GET", "/api/v2/me", token=token).body["user"] == "ana"
    assert api.get("/users").body["users"] == []
