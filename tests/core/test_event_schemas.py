"""What we say to programs: every event that the machines order has its committed schema, and so has a chat message."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from gpu_recovery.aws import notification_requests
from gpu_recovery.core.commands import NotifyOperator, PublishEvent
from gpu_recovery.core.instance.record import InstanceStatus
from gpu_recovery.core.job.record import JobStatus

from tests.aws.environment import CLUSTER, TOPIC
from tests.core.event_schemas import DETAIL_TYPES, EVENTS, detail, of_type, schema
from tests.core.notifications.test_messages import KINDS, messages_about


@pytest.mark.parametrize("detail_type", DETAIL_TYPES)
def test_what_a_schema_does_not_name_is_refused(detail_type: str) -> None:
    """At every level: a field more, a field less, a version that is another."""
    validator = of_type(detail_type)
    jsonschema.Draft202012Validator.check_schema(validator.schema)
    example = _example(validator.schema)
    validator.validate(example)
    for part in ("metadata", "data"):
        assert not validator.is_valid(example | {part: example[part] | {"more": 1}})
        required = validator.schema["properties"][part]["required"]
        for field in example[part]:
            left = {key: value for key, value in example[part].items() if key != field}
            assert validator.is_valid(example | {part: left}) == (field not in required), field
    assert not validator.is_valid(example | {"more": 1})
    assert not validator.is_valid(example | {"metadata": example["metadata"] | {"schema_version": 2}})


def _example(one: dict[str, Any]) -> Any:
    """The simplest document that a schema of ours describes."""
    if "const" in one:
        return one["const"]
    if "enum" in one:
        return one["enum"][0]
    kind = one["type"] if isinstance(one["type"], str) else one["type"][0]
    if kind == "object":
        return {name: _example(inner) for name, inner in one["properties"].items()}
    return {"integer": 1, "string": "sft-1/2", "boolean": True, "array": []}[kind]


def test_a_schema_knows_the_statuses_and_the_version_of_the_code() -> None:
    """A status that is added is a change of the schema, and so is a new form."""
    for name, statuses in (("job", JobStatus), ("instance", InstanceStatus)):
        data = schema(f"{name}-state-changed")["properties"]["data"]["properties"]
        assert set(data["after"]["enum"]) == set(statuses)
        assert set(data["before"]["enum"]) == {*statuses, None}
    for detail_type in DETAIL_TYPES:
        metadata = of_type(detail_type).schema["properties"]["metadata"]["properties"]
        assert metadata["schema_version"]["const"] == notification_requests.SCHEMA_VERSION


def test_an_event_ordered_by_an_older_release_has_its_metadata_all_the_same() -> None:
    """It was saved without an incident; it is correlated by the decision."""
    told = detail(PublishEvent("Job State Changed", {"job_id": "sft-1"}), "sft-1/7")
    assert told["metadata"] == {"schema_version": 1, "correlation_id": "sft-1/7", "causation_id": "sft-1/7"}


def test_the_page_lists_every_schema_and_links_it() -> None:
    """A consumer begins there."""
    page = (EVENTS / "README.md").read_text()
    rows = dict(re.findall(r"^\| `([A-Z][A-Za-z ]+)` \| \[[a-z-]+\]\(([a-z-]+)\.schema\.json\)", page, re.MULTILINE))
    assert rows == {one: one.lower().replace(" ", "-") for one in DETAIL_TYPES}
    assert {path.name for path in EVENTS.glob("*.json")} == {f"{one}.schema.json" for one in (*rows.values(), "chat")}
    for detail_type, name in rows.items():
        assert schema(name)["title"] == detail_type


# -- the chat ----------------------------------------------------------------------------------------------------------


def _chat(message: NotifyOperator) -> dict[str, Any]:
    asked = notification_requests.chat_request(message, TOPIC, CLUSTER, "https://api.example/console")
    assert "Subject" not in asked
    found: dict[str, Any] = json.loads(asked["Message"])
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "reason", ["GPU 3 fell off the bus", "<!channel> & <https://evil.example|click>", "\x00\n\nYOU\n"]
)
def test_every_message_fits_the_schema_of_the_chat(kind: str, reason: str) -> None:
    """What does not fit is dropped there without a word."""
    told = _chat(messages_about("sft-1", reason)[kind])
    jsonschema.Draft202012Validator(schema("chat")).validate(told)
    text = json.dumps(told)
    assert "<!" not in text and "<http" not in text
    steps = told["content"]["nextSteps"]
    assert any(step.startswith("`gpu-recovery ") for step in steps)
    assert not [step for step in steps if step.startswith("`") and step.count("`") != 2]


def test_a_chat_thread_is_an_incident() -> None:
    """Later messages are answers to the first."""
    about = messages_about("sft-1", "why")
    threads = {_chat(about[kind])["metadata"]["threadId"] for kind in ("recovery_started", "failed", "recovered")}
    assert threads == {"sft-1--a01"}
    types = [_chat(about[kind])["metadata"]["eventType"] for kind in ("recovery_started", "failed", "recovered")]
    assert types == ["opened", "escalated", "resolved"]


def test_a_chat_message_repeated_is_the_same_message() -> None:
    """Its id is made of what it says."""
    message = messages_about("sft-1", "why")["recovery_started"]
    other = messages_about("sft-1", "how")["recovery_started"]
    assert _chat(message)["id"] == _chat(message)["id"] != _chat(other)["id"]


def test_the_resources_are_those_of_the_topics_partition_region_and_account() -> None:
    """Also in China."""
    topic = "arn:aws-cn:sns:cn-north-1:123456789012:gpu-training-notifications-chat"
    told = notification_requests.chat_document(messages_about("i-0a1", "why")["quarantined"], topic, CLUSTER)
    assert told["metadata"]["relatedResources"] == [
        f"arn:aws-cn:ecs:cn-north-1:123456789012:cluster/{CLUSTER}",
        "arn:aws-cn:ec2:cn-north-1:123456789012:instance/i-0a1",
    ]
