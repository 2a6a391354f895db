"""The GPU history behind agent reports, from the report to the charts: a lost sample never costs a heartbeat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.dynamodb import plain
from gpu_recovery.aws.token_store import DynamoTokenStore

from tests.aws.environment import FUNCTION
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import NOW, A, instance, later
from tests.lambdas.api_gateway import Api, refused
from tests.lambdas.conftest import Functions
from tests.node_api.test_router import BEAT, REPORTS, Agent, Ear

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
TABLE = FUNCTION["EVENT_HISTORY_TABLE_NAME"]
GPU = {"utilization": 97, "temperature": 62, "power_mw": 400_000, "memory": {"used": 2_097_152}}


@pytest.fixture
def agent(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """The agent of instance A in a deployment that keeps a GPU history."""
    monkeypatch.setenv("GPU_HISTORY", "on")
    functions.chill()
    functions.store.save_instance(instance())
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    return Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, A, NOW, "a test", AskedToken()))


def reports(agent: Agent, number: int, *gpus: dict[str, Any], seconds: float = 0.0) -> Any:
    """The answer to a report with an inventory, once the function has read the token and the claims anew."""
    agent.functions.now = later(seconds)
    assert agent.call(REPORTS, BEAT | {"sequence": 2 * number - 1}).status == 200
    health = {"status": "ok", "digest": "d1"}
    inventory = {"agent": "1", "gpus": list(gpus)}
    return agent.call(REPORTS, BEAT | {"sequence": 2 * number, "health": health, "inventory": inventory})


def samples(agent: Agent) -> list[dict[str, Any]]:
    """The items of the GPU history."""
    asked = {"TableName": TABLE, "KeyConditionExpression": "#s = :s"}
    names, values = {"#s": "stream"}, {":s": {"S": f"gauge#{A}"}}
    client = agent.functions.store.table.client
    found = client.query(**asked, ExpressionAttributeNames=names, ExpressionAttributeValues=values)["Items"]
    return [plain(item) for item in found]


def test_the_gauges_of_an_inventory_are_kept_for_a_week(agent: Agent) -> None:
    """One item for each inventory, in one more call."""
    assert reports(agent, 1, GPU, {}).status == 200
    assert reports(agent, 2, GPU, seconds=300).status == 200
    assert agent.functions.aws.operations("dynamodb")["PutItem"] == 2, "the inventory, and the sample"
    first, second = samples(agent)
    assert first["gpus"] == "[[97,62,null,400,2],[null,null,null,null,null]]" and second["at"] > first["at"]
    assert int(first["expires_s"]) == int(NOW.timestamp()) + 7 * 86_400


def test_a_minute_has_one_sample(agent: Agent) -> None:
    """An agent whose inventories change all the time does not fill the table."""
    for number in range(1, 6):
        assert reports(agent, number, GPU, seconds=number * 10).status == 200
    assert len(samples(agent)) == 1


def test_a_heartbeat_without_an_inventory_writes_no_sample(agent: Agent) -> None:
    """Nor does an inventory without a gauge."""
    assert reports(agent, 1, {"uuid": "GPU-1"}, seconds=60).status == 200
    assert samples(agent) == []


def test_a_heartbeat_has_the_utilisation_in_its_one_write(agent: Agent) -> None:
    """The map shows it. It costs no call, and without the setting it is not kept."""
    agent.functions.now = NOW
    for number, health in enumerate(({"status": "ok"}, {"status": "ok", "utilization": [97, None]}), start=1):
        assert agent.call(REPORTS, BEAT | {"sequence": number, "health": health}).status == 200
    assert agent.functions.aws.operations("dynamodb") == {"UpdateItem": 1}
    assert agent.functions.store.load_heartbeats([A])[A].utilisation == "61ff"


@pytest.mark.parametrize(
    "code", ["ProvisionedThroughputExceededException", "AccessDeniedException", "InternalServerError"]
)
def test_a_failed_write_never_fails_a_heartbeat(agent: Agent, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The agent hears what it hears without a history, and all else is written. The log tells, and a metric counts."""
    usual = reports(agent, 1, GPU)
    table = agent.functions.store.table.name
    refusal = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    agent.functions.aws.dynamodb["PutItem"] = lambda asked: refusal if asked["TableName"] != table else None
    said = reports(agent, 2, GPU, seconds=300)
    assert (said.status, {**said.body, "ts": 0}) == (200, {**usual.body, "ts": 0})
    beat, inventory = agent.functions.store.load_heartbeats([A])[A], agent.functions.store.load_inventory(A)
    assert (beat.seen_at, beat.sequence) == (later(300), 4)
    assert inventory is not None and inventory[2] == later(300)
    assert len(agent.functions.logged("gpu_history_failed")) == 1 and len(samples(agent)) == 1
    measured = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    assert sum(document.get("GpuSamplesFailed", [0])[0] for document in measured) == 1


def test_a_gauge_of_any_type_fails_no_heartbeat(agent: Agent) -> None:
    """A recorder that fails would cost the report. Values that are no numbers count as not read."""
    for number, value in enumerate(([], {}, "x", True, None, -1, 1e300), start=1):
        fields = dict.fromkeys(("utilization", "temperature", "power_mw", "memory"), value)
        assert reports(agent, number, {**GPU, **fields}, seconds=number * 60).status in (200, 400)


def test_without_the_setting_nothing_is_kept(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment may do without the charts, and without their cost."""
    monkeypatch.setenv("GPU_HISTORY", "off")
    agent.functions.chill()
    assert reports(agent, 1, GPU).status == 200
    health = {"status": "ok", "utilization": [97]}
    assert agent.call(REPORTS, BEAT | {"sequence": 3, "health": health}).status == 200
    assert samples(agent) == [] and agent.functions.store.load_heartbeats([A])[A].utilisation == ""


def test_the_charts_have_what_the_agent_reported(agent: Agent) -> None:
    """Thinned to the least and the largest value of each time span."""
    for number, percent in enumerate((10, 90, 50, 70), start=1):
        reports(agent, number, {**GPU, "utilization": percent}, {"utilization": 1}, seconds=number * 300)
    api = Api(agent.functions)
    body = api.get(
        f"/instances/{A}/gauges", **{"from": "2026-11-21T09:05:00Z", "to": "2026-11-21T09:25:00Z"}, points="2"
    ).body
    assert body["at"] == ["2026-11-21T09:05:00.000Z", "2026-11-21T09:15:00.000Z"]
    first, second = body["gpus"]
    assert first["utilisation"] == {"min": [10, 50], "max": [90, 70]} and first["power_w"]["max"] == [400, 400]
    assert second["utilisation"]["max"] == [1, 1] and second["temperature"]["max"] == [None, None]
    latest = api.get(f"/instances/{A}/gauges").body
    assert len(latest["at"]) == 3 and latest["to"] == "2026-11-21T09:20:00.000Z", "the end is not part of the span"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"points": "601"}, "points"),
        ({"points": "0"}, "points"),
        ({"from": "yesterday"}, "from"),
        ({"to": "tomorrow"}, "to"),
        ({"from": "2026-11-22T00:00:00Z"}, "from"),
        ({"from": "2026-11-10T00:00:00Z"}, "from"),
    ],
)
def test_a_malformed_time_span_is_refused(functions: Functions, query: dict[str, str], field: str) -> None:
    """The answer names the parameter. A span has at most 7 days, and its begin is before its end."""
    functions.store.save_instance(instance())
    refused(Api(functions).get(f"/instances/{A}/gauges", **query), 400, field)


def test_an_unknown_instance_has_no_gauges(functions: Functions) -> None:
    """As every route of an instance says. An instance without samples has empty columns."""
    api = Api(functions)
    refused(api.get(f"/instances/{A}/gauges"), 404)
    functions.store.save_instance(instance())
    body = api.get(f"/instances/{A}/gauges").body
    assert (body["at"], body["gpus"]) == ([], [])
