"""Replay facts: bounded, and enough to read the policy and the placement again."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest
from gpu_recovery.core import events
from gpu_recovery.core.policy import PRESETS, Preset, XidProfile, policy_from
from gpu_recovery.core.replay_facts import PLACED_MAX, job_facts, policy_document

from tests.aws.records import job
from tests.core.event_history.recorded import OPENED
from tests.core.event_schemas import schema


@pytest.mark.parametrize("preset", Preset)
def test_a_policy_is_read_again_from_its_document(preset: Preset) -> None:
    """The preset, and only what differs from it."""
    assert policy_document(PRESETS[preset]) == {"preset": preset.value}
    policy = replace(PRESETS[preset], reboots_max=7, replace=True, xid_profile=XidProfile.AWS)
    document = policy_document(policy)
    assert document == {"preset": preset.value, "reboots_max": 7, "replace": True, "xid_profile": "aws"}
    assert policy_from(document) == policy


def test_a_placement_names_the_ranks_with_another_instance() -> None:
    """At most 64 of them: the facts of a gang of 3,000 are as long as those of one of 64."""
    names = tuple(f"i-{rank:017x}" for rank in range(3_000))
    new = replace(job(), instances=())
    placed = events.JobPlaced(at=OPENED, attempt=0, version=1, instances=names, epochs=(0,) * len(names))
    facts = job_facts(new, placed, PRESETS[Preset.ADAPTIVE])
    assert len(facts["placed"]) == PLACED_MAX and facts["unnamed"] == 3_000 - PLACED_MAX
    again = replace(placed, instances=("i-other", *names[1:]))
    facts = job_facts(replace(new, instances=names), again, PRESETS[Preset.ADAPTIVE])
    assert facts["placed"] == {"0": "i-other"} and facts["unnamed"] == 0


def test_an_elastic_job_is_recorded_as_elastic() -> None:
    """A job of a fixed width has no such fact, as in the records of older releases."""
    fixed = job()
    elastic = replace(fixed, spec=replace(fixed.spec, nnodes=4, nnodes_min=2))
    facts = [job_facts(one, "submitted", PRESETS[Preset.ADAPTIVE]) for one in (fixed, elastic)]
    assert facts == [{"version": 1, "event": "submitted"}, {"version": 1, "event": "submitted", "elastic": True}]
    described = schema("job-state-changed")["properties"]["data"]["properties"]["replay"]
    assert all(jsonschema.Draft202012Validator(described).is_valid(one) for one in facts)
