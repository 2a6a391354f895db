"""Dead letters in a deployment: what functions fail on ends in a queue, and a redrive heals what was missed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from gpu_recovery_client.api import RecoveryClient

from sandbox import sandbox
from tests.sandbox.patience import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def client(state: dict[str, Any]) -> Iterator[RecoveryClient]:
    """The operator of that sandbox."""
    with RecoveryClient(state["api_url"], state["operator_token"]) as made:
        yield made


def test_an_event_that_failed_is_processed_once_its_cause_is_mended(
    state: dict[str, Any], client: RecoveryClient
) -> None:
    """As after a deployment that was rolled back: for a while the record is of a release that nobody here can read."""
    (machine,) = wait_until(lambda: list(client.instances()), "an instance is known")
    name = machine["instance_id"]
    table = sandbox.client("dynamodb", state["endpoint_url"], state)
    key = {"TableName": state["tables"]["instances"], "Key": {"container_inst_id": {"S": name}}}
    schema = table.get_item(**key)["Item"]["schema"]

    def write(value: dict[str, Any]) -> None:
        table.update_item(
            **key,
            UpdateExpression="SET #s = :s",
            ExpressionAttributeNames={"#s": "schema"},
            ExpressionAttributeValues={":s": value},
        )

    write({"N": "99"})
    ecs = sandbox.client("ecs", state["ecs_endpoint_url"], state)
    ecs.update_container_instances_state(
        cluster=state["cluster"], containerInstances=[machine["container_instance_id"]], status="DRAINING"
    )

    def failed() -> list[dict[str, Any]]:
        (queue,) = [one for one in client.dead_letters()["queues"] if one["queue"] == "failed"]
        return [one for one in queue["shown"] if (one["for"] or "").endswith("ecs_instance_monitor")]

    assert wait_until(failed, "the event in the queue of failed events")[0]["kept_because"] is None
    write(schema)
    assert client.instance(name)["ecs_status"] == "ACTIVE"
    told = client.redrive("failed")
    assert [one for one in told["letters"] if one["for"].endswith("ecs_instance_monitor")]
    assert not [one for one in told["letters"] if one["kept_because"]]
    wait_until(lambda: client.instance(name)["ecs_status"] == "DRAINING", "the drain is known")
    # What the reconciler failed on meanwhile may still arrive; nothing comes back for good.
    wait_until(lambda: client.redrive("failed")["left"]["failed"] == 0, "an empty queue")
