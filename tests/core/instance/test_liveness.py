"""What an instance's own agent tells: that it is there, silent, or has booted. And what it means if many are silent."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.fleet import Fleet, ReportingOutage, repair_blocked_reason, with_reporting
from gpu_recovery.core.health_signals import Ec2InstanceState, HealthKind, HealthStatus
from gpu_recovery.core.heartbeat import running_log_id
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus
from gpu_recovery.core.liveness import Liveness, liveness
from gpu_recovery.core.metrics import of_decision
from gpu_recovery.core.policy import policy_from
from gpu_recovery.core.state_machine import EventOutcome
from gpu_recovery.core.xid import REPEATS, XidClass, XidProfile, needs_check, switch_needs_check
from hypothesis import given
from hypothesis import strategies as st

from tests.core.build import (
    ADAPTIVE,
    IDS,
    NOW,
    applied,
    available,
    claimed,
    later,
    orders,
    rebooting,
    tell,
    verifying,
)
from tests.core.instance.health_cases import IN_STATUS

S = InstanceStatus
JOB = "sft-1"
LISTENED_TO = (S.AVAILABLE, S.CHECKING, S.VERIFYING, S.QUARANTINED)


def silent(seen_at: datetime = NOW, **heard: int) -> events.InstanceSilent:
    """Its agent was last heard of then, with these attempts of jobs."""
    at = seen_at + timedelta(seconds=200)
    return events.InstanceSilent(at=at, seen_at=seen_at, heard=_jobs(heard))


def heard(at: datetime, **attempts: int) -> events.InstanceHeard:
    """Its agent reports again, and these attempts of jobs."""
    return events.InstanceHeard(at=at, heard=_jobs(attempts))


def booted(at: datetime, boot_id: str = "boot-9", **ended: int) -> events.InstanceBooted:
    """Its agent reports that it booted then, and these attempts had been heard of before."""
    return events.InstanceBooted(at=at + timedelta(seconds=90), boot_id=boot_id, booted_at=at, ended=_jobs(ended))


def _jobs(attempts: dict[str, int]) -> dict[str, int]:
    return {name.replace("_", "-"): attempt for name, attempt in attempts.items()}


def told(decision: Any) -> list[tuple[str, str, int]]:
    """(job, event, attempt) of what jobs are told."""
    return [(one.job_id, type(one.event).__name__, one.event.attempt) for one in orders(decision, commands.TellJob)]


def silenced(record: Instance | None = None) -> Instance:
    """A working instance whose agent was last heard of at NOW."""
    return applied(tell(record or claimed(), silent(sft_1=1), now=later(200)))


# -- silence -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", LISTENED_TO)
def test_silence_moves_no_instance_and_takes_no_claim(status: InstanceStatus) -> None:
    """It is kept, whatever the instance is busy with; it is told once."""
    record = IN_STATUS[status]()
    decision = tell(record, silent(), now=later(200))
    after = decision.record
    assert (after.status, after.reason, after.claims, after.silent_since) == (status, record.reason, record.claims, NOW)
    assert [one.name for one in of_decision(record, decision)] == ["InstancesSilent"]
    assert tell(after, silent(), now=later(260)).outcome is EventOutcome.IGNORED


@pytest.mark.parametrize("status", [S.REBOOTING, S.REPLACING, S.GONE])
def test_a_machine_that_is_expected_to_be_silent_is_no_news(status: InstanceStatus) -> None:
    """It is being repaired, or it has left."""
    assert tell(IN_STATUS[status](), silent(), now=later(200)).outcome is EventOutcome.IGNORED


def test_only_jobs_that_were_ever_heard_of_there_are_told() -> None:
    """An attempt that never reported, or another one than was heard of, cannot fall silent."""
    record = available(claims={JOB: Claim(2, 4), "old": Claim(3, 2), "quiet": Claim(1, 2)})
    decision = tell(record, silent(sft_1=2, old=2, elsewhere=1), now=later(200))
    assert told(decision) == [(JOB, "RankSilent", 2)]
    (order,) = orders(decision, commands.TellJob)
    assert (order.event.seen_at, order.event.instance_id) == (NOW, IDS[0])


def test_nothing_new_is_placed_on_a_silent_instance() -> None:
    """It is suspected until it is heard of; then the scheduler looks again."""
    record = silenced(available())
    assert record.avoid_reason and not available().avoid_reason
    decision = tell(record, heard(later(300)), now=later(300))
    assert not decision.record.avoid_reason and orders(decision, commands.PokeScheduler)


@pytest.mark.parametrize("status", [*LISTENED_TO, S.REBOOTING, S.REPLACING])
def test_an_instance_that_is_heard_again_is_silent_no_more(status: InstanceStatus) -> None:
    """In every status that it may be in; its jobs are told with the time of the heartbeat."""
    record = replace(IN_STATUS[status](), silent_since=NOW, claims={JOB: Claim(1, 8), "other": Claim(4, 8)})
    decision = tell(record, heard(later(300), sft_1=1, other=3), now=later(999))
    after = decision.record
    assert (after.status, after.silent_since, after.heard_at, after.claims) == (status, None, later(300), record.claims)
    assert told(decision) == [(JOB, "RankHeard", 1)]
    assert orders(decision, commands.TellJob)[0].event.at == later(300)


def test_a_silence_told_after_its_end_is_over() -> None:
    """Also where the silence was not known before: the two travel at their own speed."""
    for record in (silenced(), claimed()):
        back = applied(tell(record, heard(later(300), sft_1=1), now=later(300)))
        assert tell(back, silent(sft_1=1), now=later(310)).outcome is EventOutcome.OUTDATED
        assert tell(back, heard(later(300), sft_1=1), now=later(310)).outcome is EventOutcome.OUTDATED
        again = tell(back, silent(later(300), sft_1=1), now=later(500))
        assert told(again) == [(JOB, "RankSilent", 1)]


def test_an_instance_that_comes_back_under_another_registration_is_not_silent() -> None:
    """What was known of it when it left is over."""
    gone = applied(
        tell(silenced(), events.MachineSeen(at=later(200), state=Ec2InstanceState.TERMINATED), now=later(200))
    )
    assert gone.status is S.GONE and gone.silent_since is None


# -- boots -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", LISTENED_TO)
def test_a_boot_ends_the_ranks_that_were_heard_of_before_it(status: InstanceStatus) -> None:
    """For certain, so their ends are confirmed; a rank that was never heard of may have started since."""
    record = replace(IN_STATUS[status](), claims={JOB: Claim(1, 4), "quiet": Claim(1, 2), "newer": Claim(3, 2)})
    decision = tell(record, booted(later(60), sft_1=1, newer=2), now=later(150))
    after = decision.record
    assert (after.status, after.boot_id, after.booted_at) == (status, "boot-9", later(60))
    ended = orders(decision, commands.ConfirmEnd)
    assert [(one.job_id, one.attempt) for one in ended] == [(JOB, 1)]
    assert after.claims == record.claims
    assert tell(after, booted(later(60), sft_1=1), now=later(160)).outcome is not EventOutcome.APPLIED


def test_a_boot_before_the_last_that_was_told_of_is_old() -> None:
    """It may come late, and twice, also after a check has read the boot off the machine's own clock."""
    record = applied(tell(claimed(), booted(later(60), "boot-8"), now=later(150)))
    record = applied(tell(record, booted(later(600), "boot-9"), now=later(700)))
    by_its_clock = replace(record, boot_id="boot-8", booted_at=later(-86_400))
    for one in (record, by_its_clock):
        for event in (booted(later(60), "boot-8", sft_1=1), booted(later(60), "boot-7", sft_1=1)):
            assert tell(one, event, now=later(710)).outcome is EventOutcome.OUTDATED


def test_another_boot_since_the_order_proves_the_reboot() -> None:
    """The check must still pass: the instance is verified, and works only after."""
    record = rebooting()
    assert record.reboot is not None
    decision = tell(record, booted(record.reboot.asked_at + timedelta(seconds=40), sft_1=1), now=later(200))
    assert decision.record.status is S.VERIFYING and orders(decision, commands.RunCheck)
    assert decision.record.boot_id == "boot-9"


@pytest.mark.parametrize(("seconds", "boot_id"), [(0, "boot-9"), (-1, "boot-9"), (40, "boot-1")])
def test_a_boot_from_before_the_order_or_the_same_boot_proves_nothing(seconds: int, boot_id: str) -> None:
    """A report of the boot that is to end can be under way while the order is given."""
    record = rebooting()
    assert record.reboot is not None and record.boot_id == "boot-1"
    event = booted(record.reboot.asked_at + timedelta(seconds=seconds), boot_id)
    assert tell(record, event, now=later(200)).record.status is S.REBOOTING


def test_a_replacement_that_has_not_begun_is_not_proved_by_a_boot() -> None:
    """The host is to be left, and the machine still stands on it."""
    record = IN_STATUS[S.REPLACING]()
    assert record.reboot is not None and not record.reboot.started
    event = booted(record.reboot.asked_at + timedelta(seconds=40))
    assert tell(record, event, now=later(200)).record.status is S.REPLACING


def test_a_gone_instance_hears_nothing() -> None:
    """Neither silence, nor its end, nor a boot."""
    for event in (silent(), heard(later(1)), booted(later(1))):
        assert tell(IN_STATUS[S.GONE](), event, now=later(300)).outcome is EventOutcome.IGNORED


EVENTS = st.lists(st.tuples(st.sampled_from(("silent", "heard", "booted", "again")), st.integers(0, 99)), max_size=30)


@given(told_of=EVENTS, make=st.sampled_from((claimed, rebooting, verifying)))
def test_no_claim_is_ever_removed_by_silence(told_of: list[tuple[str, int]], make: Any) -> None:
    """Nor by a heartbeat or a boot, in whatever order and however often: only a confirmed end gives GPUs back."""
    record, second, past = make(), 0, list[Any]()
    for kind, pick in told_of:
        second += 10
        at = later(second - pick % 40)
        match kind:
            case "silent":
                event: Any = silent(at, sft_1=1)
            case "heard":
                event = heard(at, sft_1=1)
            case "booted":
                event = booted(at, f"boot-{second}", sft_1=1)
            case _:
                event = past[pick % len(past)] if past else heard(at)
        past.append(event)
        decision = tell(record, event, now=later(second))
        assert decision.record.claims == record.claims
        assert not orders(decision, commands.RebootInstance) and not orders(decision, commands.DrainInstance)
        record = decision.record
    back = tell(record, heard(later(second + 10), sft_1=1), now=later(second + 10)).record
    assert back.silent_since is None and back.claims == record.claims
    for event in past:
        assert tell(back, event, now=later(second + 11)).record.silent_since is None


# -- the agent as a watcher --------------------------------------------------------------------------------------------


def test_a_node_agent_that_finds_its_gpus_impaired_leads_to_a_check() -> None:
    """As ECS's word does: what it asks for goes through a health check."""
    word = events.HealthReported(
        at=NOW, kind=HealthKind.NODE_AGENT, status=HealthStatus.IMPAIRED, since=NOW, sentence="XID 79 on GPU-1"
    )
    decision = tell(available(), word)
    assert decision.record.status is S.CHECKING and "XID 79" in decision.reason
    assert tell(claimed(), word, policy_from({"observe_only": True})).record.status is S.AVAILABLE


@pytest.mark.parametrize(
    ("code", "count", "action", "looked_at"),
    [
        (79, 1, None, True),
        (48, 1, None, True),
        (13, 1, None, False),
        (13, 2, None, True),
        (31, 1, None, False),
        (94, 2, None, True),
        (154, 1, None, False),
        (154, 1, 0, False),
        (154, 1, 2, True),
        (79, 1, 0, False),
        (13, 1, 1, True),
        (45, 1, None, False),
        (45, 9, None, False),
        (9_999, 1, None, True),
        (69, 4, None, False),
        (69, 5, None, True),
        (63, 4, None, False),
        (63, 5, None, True),
        (43, 99, None, False),
        (69, 5, 0, False),
    ],
)
def test_which_xids_ask_for_a_look(code: int, count: int, action: int | None, looked_at: bool) -> None:
    """The driver's own word overrides the table; repeats on one GPU ask; an unknown code is never met with silence."""
    assert needs_check(code, count, action) is looked_at


def test_the_rules_of_repetition_are_data_with_a_version_for_each_profile() -> None:
    """Whoever asks why an instance was looked at finds out by which rules."""
    assert set(REPEATS) == set(XidProfile)
    for rules in REPEATS.values():
        assert re.fullmatch(r"\d{4}-\d{2}", rules.version)
        assert 1 < min(rules.repeats_by_xid.values()) <= max(rules.repeats_by_xid.values()) < rules.repeats_min
        assert rules.classes <= {XidClass.APP, XidClass.WATCH}, "what is ignored, or follows another, never asks"


@pytest.mark.parametrize(("fatal", "count", "looked_at"), [(True, 1, True), (False, 4, False), (False, 5, True)])
def test_which_errors_of_a_switch_ask_for_a_look(fatal: bool, count: int, looked_at: bool) -> None:
    """The log says itself which of them are fatal."""
    assert switch_needs_check(fatal, count) is looked_at


def test_the_profiles_judge_otherwise_where_their_owners_do() -> None:
    """74 is for a look by either; 149 is only watched by AWS's services."""
    assert needs_check(149, 1, None, XidProfile.NVIDIA) and not needs_check(149, 1, None, XidProfile.AWS)
    assert needs_check(74, 1, None, XidProfile.AWS)
    assert policy_from({"xid_profile": "aws"}).xid_profile is XidProfile.AWS


# -- how long, and how many --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "what"),
    [
        (0, Liveness.HEARD),
        (45, Liveness.HEARD),
        (46, Liveness.SUSPECT),
        (120, Liveness.SUSPECT),
        (121, Liveness.UNREACHABLE),
        (180, Liveness.UNREACHABLE),
        (181, Liveness.LOST),
    ],
)
def test_how_long_a_silence_means_what(seconds: int, what: Liveness) -> None:
    """A limit that is just reached is not passed."""
    assert liveness(timedelta(seconds=seconds), ADAPTIVE) is what


def test_a_running_log_survives_json_and_tells_attempts_and_ranks_apart() -> None:
    """53 bits: what every language's numbers can hold."""
    logs = {running_log_id(job, attempt, rank) for job in "abc" for attempt in range(1, 20) for rank in range(20)}
    assert len(logs) == 3 * 19 * 20 and all(0 <= one < 2**53 for one in logs)


@pytest.mark.parametrize(
    ("silent_now", "of", "is_deaf"),
    [
        (1, 1, False),
        (1, 2, False),
        (2, 2, True),
        (1, 10, False),
        (2, 10, False),
        (3, 10, True),
        (19, 99, False),
        (20, 99, True),
        (0, 0, False),
    ],
)
def test_more_silent_instances_than_the_repair_budget_are_the_network(silent_now: int, of: int, is_deaf: bool) -> None:
    """One machine alone is never the network; the budget is a fifth, and never less than one."""
    assert ADAPTIVE.repair_budget_percent == 20
    after = with_reporting(Fleet(), silent_now, of, ADAPTIVE, NOW)
    assert (after.deaf is not None) is is_deaf
    assert bool(repair_blocked_reason(after, IDS[0], ADAPTIVE, NOW)) is is_deaf


def test_a_fleet_stays_deaf_under_one_incident_and_hears_again_by_itself() -> None:
    """More or fewer that are silent are the same silence, until few enough are."""
    first = with_reporting(Fleet(gpu_instances=10), 3, 10, ADAPTIVE, NOW)
    assert first.deaf == ReportingOutage(NOW, 3, 10, "silence/20261121T030000")
    assert with_reporting(first, 9, 10, ADAPTIVE, later(60)) is first
    assert with_reporting(first, 2, 10, ADAPTIVE, later(120)) == Fleet(gpu_instances=10)
