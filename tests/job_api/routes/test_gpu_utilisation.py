"""The utilisation of GPUs in the fleet map: from the agent's report, by the reconcile cycle, to the route."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections import Counter
from typing import Any

import pytest
from gpu_recovery.auth.tokens import AskedToken, issue
from gpu_recovery.aws.token_store import DynamoTokenStore
from gpu_recovery.core.console_snapshots import map_document, members_document
from gpu_recovery.core.fleet import Fleet
from gpu_recovery.core.gpu_utilisation import utilisation_text
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.job_api.snapshot_cache import SNAPSHOT_TTL

from console.fake.model import Deployment, Size
from tests.aws.issuer_keys import NODE_KEY
from tests.aws.records import NOW, A, B, instance, later
from tests.job_api.routes.test_overview import keeps_objects
from tests.job_api.test_http_responses import raw
from tests.lambdas.api_gateway import Api
from tests.lambdas.conftest import Functions
from tests.node_api.test_router import BEAT, REPORTS, Agent, Ear

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
UNKNOWN = 255
MAP = "/api/v2/fleet/map"


@pytest.fixture
def agents(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> dict[str, Agent]:
    """The agents of two instances, in a deployment that keeps a GPU history."""
    monkeypatch.setenv("GPU_HISTORY", "on")
    functions.chill()
    functions.store.save_fleet(Fleet(gpu_instances=2, counted=True))
    tokens = DynamoTokenStore(functions.store.table.client, functions.store.table.name)
    for name in (A, B):
        quarantined = {"status": InstanceStatus.QUARANTINED, "status_at": NOW, "gpus": 8, "gpus_most": 8}
        functions.store.save_instance(instance(name, **quarantined))
    return {
        name: Agent(functions, Ear(), tokens, issue(tokens, NODE_KEY, name, NOW, "a test", AskedToken()))
        for name in (A, B)
    }


def report(agent: Agent, number: int, seconds: float = 0.0, **health: Any) -> None:
    """A report of an agent, `seconds` after the present."""
    agent.functions.now = later(seconds)
    body = BEAT | {"sequence": number, "health": {"status": "ok", **health}}
    assert agent.call(REPORTS, body).status == 200


def shown(api: Api) -> dict[str, list[int]]:
    """What the map shows of each instance, after a reconcile cycle and the time that a snapshot is cached."""
    api.functions.call("reconciler", {})
    api.functions.now += SNAPSHOT_TTL
    answer, members = api.get("/fleet/map", gpu="1").body, api.get("/fleet/members").body
    assert answer["members"] == members["members"]
    values = base64.b64decode(answer["utilisation"])
    assert len(values) == 8 * len(members["ids"])
    return {name: list(values[8 * at : 8 * at + 8]) for at, name in enumerate(members["ids"])}


def test_the_map_shows_what_each_agent_reported(agents: dict[str, Agent], api: Api) -> None:
    """In steps of ten percent, rounded up, so that only an idle GPU is 0. A GPU that is not reported is unknown."""
    keeps_objects(api)
    report(agents[A], 1, utilization=[97, 0, 1, 50, None, 100])
    report(agents[B], 1)  # an agent of an older release
    assert shown(api) == {A: [100, 0, 10, 50, UNKNOWN, 100, UNKNOWN, UNKNOWN], B: [UNKNOWN] * 8}
    report(agents[A], 2, seconds=60, utilization=[0, 0])
    assert shown(api)[A][:2] == [0, 0]
    assert api.get("/fleet/map").body["utilisation"] is None


def test_an_agent_that_reports_no_utilisation_any_more_has_none(agents: dict[str, Agent], api: Api) -> None:
    """NVML may hang, or an older agent may be installed again."""
    keeps_objects(api)
    report(agents[A], 1, utilization=[97])
    report(agents[A], 2, seconds=15)
    assert shown(api)[A] == [UNKNOWN] * 8


def test_a_silent_agent_has_no_utilisation(agents: dict[str, Agent], api: Api) -> None:
    """Its last report says nothing about the present."""
    keeps_objects(api)
    report(agents[A], 1, utilization=[97])
    report(agents[B], 1, seconds=600, utilization=[3])
    assert shown(api) == {A: [UNKNOWN] * 8, B: [10, *[UNKNOWN] * 7]}


def test_without_the_history_no_utilisation_is_shown(
    agents: dict[str, Agent], api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer has null, and says why."""
    keeps_objects(api)
    report(agents[A], 1, utilization=[97])
    api.functions.call("reconciler", {})
    assert api.get("/fleet/map").body["gpu_history"] is True
    monkeypatch.setenv("GPU_HISTORY", "off")
    api.functions.chill()
    answer = api.get("/fleet/map", gpu="1").body
    assert (answer["gpu_history"], answer["utilisation"], len(answer["status"]) > 0) == (False, None, True)


def test_the_answer_with_the_utilisation_has_a_tag_of_its_own(agents: dict[str, Agent], api: Api) -> None:
    """A page that changes its mode gets the other answer, and after that 304."""
    keeps_objects(api)
    report(agents[A], 1, utilization=[97])
    api.functions.call("reconciler", {})
    plain, with_gpus = (api.get("/fleet/map", **query) for query in ({}, {"gpu": "1"}))
    assert plain.headers["etag"] != with_gpus.headers["etag"]
    for query, tag, status in (
        ({"gpu": "1"}, with_gpus.headers["etag"], 304),
        ({"gpu": "1"}, plain.headers["etag"], 200),
        ({}, with_gpus.headers["etag"], 200),
    ):
        assert raw(api, MAP, query, if_none_match=tag)["statusCode"] == status


def test_the_utilisation_costs_no_call(agents: dict[str, Agent], api: Api) -> None:
    """A cycle and an answer make the same calls with it and without it. The first cycle sees the boots."""
    keeps_objects(api)
    counted: list[tuple[Counter[str], Counter[str]]] = []
    for number, health in enumerate(({}, {}, {"utilization": [97]}), start=1):
        for agent in agents.values():
            report(agent, number, number * 60.0, **health)
        api.functions.call("reconciler", {})
        of_cycle = api.functions.aws.operations()
        api.functions.now += SNAPSHOT_TTL
        api.get("/fleet/map", **({"gpu": "1"} if health else {}))
        counted.append((of_cycle, api.functions.aws.operations()))
    assert counted[1] == counted[2]
    of_cycle, of_answer = counted[2]
    assert (of_cycle["PutObject"], of_answer["GetObject"]) == (2, 1), "the map and the limits; the map"


def test_ten_thousand_instances_fit_into_68_kilobytes(agents: dict[str, Agent], api: Api) -> None:
    """As sent: each busy GPU has another percentage near 95, and each instance another time of its status."""
    objects, drawn = keeps_objects(api), random.Random(1)
    records = list(Deployment(Size(10_000, 700), NOW).instances.values())
    percentages = {
        one.instance_id: [min(100, max(0, round(drawn.gauss(95, 4)))) if one.claims else 0 for _ in range(8)]
        for one in records
    }
    texts = {name: utilisation_text(values) for name, values in percentages.items()}
    document = map_document(records, members_document(records)["members"], texts)
    objects["console/map.json.gz"] = gzip.compress(json.dumps({"as_of": "2026-11-21T09:00:00Z", **document}).encode())
    sent = base64.b64decode(str(raw(api, MAP, {"gpu": "1"}, accept_encoding="gzip")["body"]))
    values = base64.b64decode(json.loads(gzip.decompress(sent))["utilisation"])
    assert len(values) == 80_000 and {0, 80, 90, 100} <= set(values)
    assert len(sent) <= 68_000
