"""Every event that somebody published, through every function: processed, left alone, or refused with a clear error."""

from __future__ import annotations

import re
from typing import Any

import pytest
from gpu_recovery.core.errors import RecoveryError

from tests.aws.ecs_events import ours
from tests.aws.records import JOB
from tests.fuzz.conftest import EVENT_HANDLERS, World
from tests.lambdas.starting_states import EVENTS, as_rank, published

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics")
PUBLISHED = sorted(path.stem for path in EVENTS.glob("*.json"))
TASKS = [name for name in PUBLISHED if name.startswith(("ecs_task_", "detail_"))]
INSTANCES = [name for name in PUBLISHED if name.startswith("ecs_container_instance_")]
FIELD = re.compile(r"^[A-Za-z][\w.\[\]-]*: ")
"""A clear error begins with the path of the field that is to blame."""


def enveloped(name: str) -> dict[str, Any]:
    """As our rules would deliver it: of our account, and with the envelope that some were published without."""
    document = published(name)
    return ours(document if "detail" in document else {"detail": document})


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_event_is_survived_by_every_function(world: World, name: str) -> None:
    """Also by those that no rule would give it to: an error says what was missing, and nothing is written."""
    for handler in EVENT_HANDLERS:
        for event in (enveloped(name), published(name)):
            refusal = world.give(handler, event)
            assert refusal is None or FIELD.match(str(refusal)), refusal
            world.begin_again()


@pytest.mark.parametrize("name", [name for name in TASKS if "taskArn" in enveloped(name)["detail"]])
def test_published_tasks_of_others_are_left_alone(world: World, name: str) -> None:
    """The rule gives us every task of the cluster: one that is not ours costs no call and is no error."""
    for handler in ("ecs_task_handler", "dcgm_task_monitor"):
        assert world.give(handler, enveloped(name)) is None
        assert world.functions.kept() == world.start


@pytest.mark.parametrize("name", INSTANCES)
def test_published_instances_are_entered(world: World, name: str) -> None:
    """Whatever their detail-type says."""
    assert world.give("ecs_instance_monitor", enveloped(name)) is None
    assert world.functions.instance("i-f3a8506b").ecs_version == 14801


@pytest.mark.parametrize("name", TASKS)
def test_published_ends_are_processed_when_they_are_ours(world: World, name: str) -> None:
    """The same documents under the name of a rank of ours: each end is entered once, each start is, none is refused."""
    event = as_rank(enveloped(name)["detail"], 0)
    assert world.give("ecs_task_handler", event) is None
    progress = world.functions.store.load_progress(JOB, 1)
    assert progress is not None
    expected = {"STOPPED": ({0}, set()), "RUNNING": (set(), {0})}.get(event["detail"]["lastStatus"], (set(), set()))
    assert (progress.stopped, progress.running) == expected
    after = world.functions.kept()
    assert world.give("ecs_task_handler", event) is None
    assert world.functions.kept() == after


def test_a_plain_exception_would_be_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of ours are told apart from accidents by their class, so nothing else may have it as an ancestor."""
    assert not any(
        issubclass(accident, RecoveryError) for accident in (KeyError, TypeError, AttributeError, ValueError)
    )
    monkeypatch.setattr("gpu_recovery.ecs_events.tasks.task_changed", lambda *_: {}["missing"])
    with pytest.raises(KeyError):
        world.give("ecs_task_handler", enveloped(TASKS[-1]))
