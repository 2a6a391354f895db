"""Replay facts: bounded, and enough to read the policy and the placement again."""

from __future__ import annotations

from dataclasses import replace

import jsonschema
import pytest
from gpu_recovery.core import events
from gpu_recovery.core.job.record import FirstEnd
from gpu_recovery.core.passive_evidence import PassiveEvidence
from gpu_recovery.core.policy import PRESETS, Preset, XidProfile, policy_from
from gpu_recovery.core.replay_facts import PLACED_MAX, job_facts, policy_document
from gpu_recovery.core.task import Ending, EndingKind, RankFailure

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


def test_an_instance_without_any_sign_but_earlier_failures_is_doubtful() -> None:
    """A replay takes only the others for faults that an agent sees."""
    signs = {"i-1": "XID 79", "i-2": "jobs have failed there first before"}
    described = schema("job-state-changed")["properties"]["data"]["properties"]["replay"]
    for doubtful, more in (((), {}), (("i-2",), {"doubtful": ["i-2"]})):
        evidence = PassiveEvidence(faulty=signs, doubtful=doubtful)
        event = events.PassiveEvidenceCollected(at=OPENED, attempt=1, evidence=evidence)
        facts = job_facts(job(), event, PRESETS[Preset.ADAPTIVE])
        assert (
            facts
            == {
                "version": 1,
                "event": "PassiveEvidenceCollected",
                "silent": 0,
                "faulty": ["i-1", "i-2"],
            }
            | more
        )
        assert jsonschema.Draft202012Validator(described).is_valid(facts)


def test_a_held_gang_without_a_first_end_has_ended_together() -> None:
    """A gang that a collective times out: the decision about its evidence says so, because no event has `own_ends`."""
    crash = RankFailure(0, "i-1", OPENED, Ending(EndingKind.CRASHED, 134, "was ended by signal 6"))
    held = replace(job(), attempt=2, instances=("i-1", "i-2"), holding=True, failure=crash)
    first = replace(held, first_ends=(FirstEnd(1, 0, "i-2"), FirstEnd(2, 0, "i-1")))
    earlier = replace(held, first_ends=(FirstEnd(1, 0, "i-2"),))
    event = events.PassiveEvidenceCollected(at=OPENED, attempt=2, evidence=PassiveEvidence())
    described = schema("job-state-changed")["properties"]["data"]["properties"]["replay"]
    for record, together in (
        (held, True),
        (earlier, True),
        (first, None),
        (replace(held, holding=False), None),
        (replace(held, failure=None), None),
        (replace(held, instances=("i-1",)), None),
    ):
        facts = job_facts(record, event, PRESETS[Preset.ADAPTIVE])
        assert facts.get("together") is together, record
        assert jsonschema.Draft202012Validator(described).is_valid(facts)


def test_an_elastic_job_is_recorded_as_elastic() -> None:
    """A job of a fixed width has no such fact, as in the records of older releases."""
    fixed = job()
    elastic = replace(fixed, spec=replace(fixed.spec, nnodes=4, nnodes_min=2))
    facts = [job_facts(one, "submitted", PRESETS[Preset.ADAPTIVE]) for one in (fixed, elastic)]
    assert facts == [{"version": 1, "event": "submitted"}, {"version": 1, "event": "submitted", "elastic": True}]
    described = schema("job-state-changed")["properties"]["data"]["properties"]["replay"]
    assert all(jsonschema.Draft202012Validator(described).is_valid(one) for one in facts)
