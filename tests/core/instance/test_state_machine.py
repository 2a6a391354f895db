"""The instance machine, one behaviour at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from gpu_recovery.core import commands, events
from gpu_recovery.core.cluster_snapshot import is_usable
from gpu_recovery.core.health_check import CheckOutcome, Verdict
from gpu_recovery.core.health_signals import Ec2InstanceState
from gpu_recovery.core.instance.record import Claim, Instance, InstanceStatus, Reboot
from gpu_recovery.core.instance.repair_proof import proves_reboot
from gpu_recovery.core.state_machine import Decision, EventOutcome

from tests.core.build import (
    ADAPTIVE,
    CLASSIC,
    IDS,
    NOW,
    STUCK,
    applied,
    available,
    check_request,
    checking,
    claimed,
    later,
    observed,
    orders,
    overdue,
    rebooting,
    tell,
    verdict_of,
    verifying,
)

HEALTHY, REBOOT, REPLACE = CheckOutcome.HEALTHY, CheckOutcome.REBOOT, CheckOutcome.REPLACE
INCONCLUSIVE, CONFIGURATION = CheckOutcome.INCONCLUSIVE, CheckOutcome.CONFIGURATION
AVAILABLE, QUARANTINED = InstanceStatus.AVAILABLE, InstanceStatus.QUARANTINED


def _look(record: Instance) -> Decision[Instance]:
    assert record.look_at is not None
    return tell(record, events.InstanceLookDue(at=record.look_at, look_at=record.look_at), now=record.look_at)


def _quarantined() -> Instance:
    return applied(overdue(rebooting()))


# -- what ECS says -----------------------------------------------------------------------------------------------------


def test_what_ecs_said_before_is_outdated() -> None:
    """Within one registration the version counts up; the same version is the same news."""
    record = applied(tell(available(), observed(5, ecs_status="DRAINING")))
    assert tell(record, observed(5)).outcome is EventOutcome.OUTDATED
    assert tell(record, observed(4)).outcome is EventOutcome.OUTDATED
    assert tell(record, observed(6)).record.ecs_status == "ACTIVE"


def test_a_new_registration_begins_its_versions_anew_and_the_old_one_is_over() -> None:
    """What is still delivered about the old one, however high its version, is about the past."""
    record = applied(tell(available(ecs_version=90), observed(1, container_instance_id="ci-2")))
    assert (record.container_instance_id, record.ecs_version) == ("ci-2", 1)
    late = tell(record, observed(99, container_instance_id="ci-1"))
    assert late.outcome is EventOutcome.OUTDATED


def test_a_stale_registration_without_its_agent_replaces_none() -> None:
    """An agent that lost its data registers twice; the first registration stays ACTIVE and disconnected."""
    record = available()
    stale = observed(7, container_instance_id="ci-0", agent_connected=False)
    assert tell(record, stale).outcome is EventOutcome.OUTDATED


def test_an_agent_that_flaps_changes_no_status() -> None:
    """It disconnects several times an hour as part of its normal operation."""
    away = applied(tell(available(), observed(2, agent_connected=False)))
    assert away.status is AVAILABLE
    back = tell(away, observed(3))
    assert back.record.status is AVAILABLE
    assert orders(back, commands.PokeScheduler)


def test_an_instance_that_leaves_ends_what_was_on_it() -> None:
    """EC2 says that it is off, so its ranks have ended; whoever waits for its check or its repair hears so."""
    gone = observed(2, ecs_status="INACTIVE", agent_connected=False)
    working = tell(claimed(), events.MachineSeen(at=later(1), state=Ec2InstanceState.TERMINATED))
    assert (working.record.status, working.record.claims) == (InstanceStatus.GONE, {})
    assert [(one.job_id, one.attempt) for one in orders(working, commands.ConfirmEnd)] == [("sft-1", 1)]
    under_check = tell(checking(), gone)
    assert [one.outcome for one in orders(under_check, commands.ReportCheck)] == [CheckOutcome.GONE]
    under_repair = tell(rebooting(), observed(9, ecs_status="INACTIVE"))
    assert [one.event.healed for one in orders(under_repair, commands.TellJob)] == [False]


def test_the_end_of_a_registration_ends_no_rank() -> None:
    """A forced deregistration leaves the containers running: the claims stay, nothing new comes, and EC2 is asked."""
    told = tell(claimed(), observed(2, ecs_status="INACTIVE", agent_connected=False))
    assert (told.record.status, set(told.record.claims)) == (AVAILABLE, {"sft-1"})
    assert orders(told, commands.ConfirmEnd) == []
    assert len(orders(told, commands.ObserveInstance)) == 1
    again = tell(applied(told), observed(1, container_instance_id="ci-2"), now=later(60)).record
    assert "sft-1--a01 may still run on it" in again.avoid_reason and not is_usable(again)


def test_an_old_registration_that_leaves_takes_nothing_with_it() -> None:
    """Only the registration it has now speaks for the instance."""
    record = claimed()
    decision = tell(record, observed(9, container_instance_id="ci-0", ecs_status="INACTIVE"))
    assert decision.outcome is EventOutcome.IGNORED
    assert decision.record is record


def test_an_instance_that_comes_back_must_pass_a_check_first() -> None:
    """Whatever it was stopped for, nobody knows what it is worth now."""
    gone = applied(tell(available(), observed(2, ecs_status="INACTIVE")))
    back = tell(gone, observed(1, container_instance_id="ci-2"))
    assert back.record.status is InstanceStatus.VERIFYING
    assert orders(back, commands.RunCheck)
    assert tell(back.record, verdict_of(back.record, HEALTHY)).record.status is AVAILABLE


# -- checking ----------------------------------------------------------------------------------------------------------


def test_a_check_takes_the_ended_claim_and_keeps_the_instance_for_the_job() -> None:
    """The claim's rank has ended; the reservation keeps others away while the job is judged."""
    decision = tell(claimed(), check_request())
    assert decision.record.status is InstanceStatus.CHECKING
    assert (decision.record.claims, decision.record.reserved_for) == ({}, "sft-1")
    assert [one.check_id for one in orders(decision, commands.RunCheck)] == [f"check/{IDS[0]}/1"]


def test_an_attempt_has_an_instance_checked_once() -> None:
    """The order may be carried out twice; also after another attempt was checked in between."""
    first = applied(tell(checking(), verdict_of(checking(), HEALTHY)))
    assert tell(first, check_request()).outcome is EventOutcome.IGNORED
    second = applied(tell(first, check_request(attempt=2)))
    second = applied(tell(second, verdict_of(second, HEALTHY)))
    assert tell(second, check_request()).outcome is EventOutcome.IGNORED


def test_a_late_wish_for_a_check_leaves_the_running_attempts_claim_alone() -> None:
    """Attempt 2 runs there: what attempt 1 wanted is over."""
    record = claimed(attempt=2)
    decision = tell(record, check_request(attempt=1))
    assert decision.record is record


def test_an_instance_on_which_another_job_runs_is_only_read() -> None:
    """An active check takes all GPUs. A passive one can blame; that it finds nothing does not make the GPUs well."""
    decision = tell(claimed("other-1"), check_request())
    assert decision.record.status is InstanceStatus.CHECKING
    assert decision.record.claims == {"other-1": Claim(1, 8)}
    assert decision.record.check is not None and decision.record.check.passive
    passed = tell(decision.record, verdict_of(decision.record, HEALTHY))
    (report,) = orders(passed, commands.ReportCheck)
    assert (report.job_id, report.outcome, report.repairing) == ("sft-1", INCONCLUSIVE, False)


def test_an_instance_under_repair_answers_for_its_repair() -> None:
    """It is blamed already, and the job that asks hears how the repair ends, like the one it is for."""
    decision = tell(rebooting(), check_request("sft-2", 3))
    (report,) = orders(decision, commands.ReportCheck)
    assert (report.outcome, report.repairing) == (REBOOT, True)
    told = orders(overdue(decision.record), commands.TellJob)
    assert [(one.job_id, one.event.attempt, one.event.healed) for one in told] == [
        ("sft-1", 1, False),
        ("sft-2", 3, False),
    ]


def test_an_instance_that_is_verified_without_a_repair_promises_none() -> None:
    """Released by a person, it has no repair whose end the job could hear of."""
    released = applied(tell(_quarantined(), events.ReleaseRequested(at=later(9_999), by="ada"), now=later(9_999)))
    assert released.status is InstanceStatus.VERIFYING
    (report,) = orders(tell(released, check_request("sft-2")), commands.ReportCheck)
    assert (report.outcome, report.repairing) == (INCONCLUSIVE, False)


@pytest.mark.parametrize("outcome", [HEALTHY, CONFIGURATION, INCONCLUSIVE])
def test_what_blames_no_gpu_gives_the_instance_back(outcome: CheckOutcome) -> None:
    """It stays kept for its job for a while, and then for nobody."""
    decision = tell(checking(), verdict_of(checking(), outcome))
    assert decision.record.status is AVAILABLE
    assert [one.outcome for one in orders(decision, commands.ReportCheck)] == [outcome]
    assert bool(orders(decision, commands.NotifyOperator)) == (outcome is CONFIGURATION)
    free = overdue(decision.record).record
    assert (free.reserved_for, free.deadline_at) == ("", None)
    assert free.reason == "no longer kept for sft-1"


def test_a_reservation_taken_back_early_ends_without_a_word() -> None:
    """The job may release the instance before its time."""
    record = replace(applied(tell(checking(), verdict_of(checking(), HEALTHY))), reserved_for="")
    assert overdue(record).record.reason == record.reason


def test_a_check_without_an_answer_quarantines_and_tells_the_job() -> None:
    """What cannot even be checked is not worked with, and the barrier is not kept waiting."""
    decision = overdue(checking())
    assert decision.record.status is QUARANTINED
    assert [one.outcome for one in orders(decision, commands.ReportCheck)] == [INCONCLUSIVE]
    assert orders(decision, commands.StopCheck)
    assert orders(decision, commands.NotifyOperator)


def test_the_end_of_another_check_is_outdated() -> None:
    """Check ids are numbered and never used twice."""
    old = verdict_of(checking(), REBOOT)
    record = verifying()
    assert tell(record, old).outcome is EventOutcome.OUTDATED
    assert record.check is not None
    assert record.check.check_id == f"check/{IDS[0]}/2"


@pytest.mark.parametrize("make", [checking, rebooting, verifying])
def test_looks_whose_orders_are_never_carried_out_do_not_pile_up(make: Any) -> None:
    """One question at a time is enough."""
    record = make()
    before = len(record.commands)
    for _ in range(10):
        record = applied(_look(record))
    assert len(record.commands) <= before + 1


# -- rebooting ---------------------------------------------------------------------------------------------------------


def test_a_blamed_instance_is_drained_before_it_is_rebooted() -> None:
    """ECS must place nothing on it meanwhile, and claims from before must not fit any more."""
    decision = tell(checking(), verdict_of(checking(), REBOOT))
    kinds = [type(one.command) for one in decision.commands]
    assert kinds.index(commands.DrainInstance) < kinds.index(commands.RebootInstance)
    assert decision.record.epoch == 1
    assert [one.repairing for one in orders(decision, commands.ReportCheck)] == [True]


def test_a_fault_that_no_reboot_cures_waits_for_a_person() -> None:
    """REPLACE is out of our hands."""
    decision = tell(checking(), verdict_of(checking(), REPLACE))
    assert decision.record.status is QUARANTINED
    assert "must be replaced" in decision.reason
    assert orders(decision, commands.NotifyOperator)


@pytest.mark.parametrize("policy", [ADAPTIVE, CLASSIC], ids=["adaptive", "classic"])
def test_reboots_of_an_instance_are_capped_within_their_window(policy: Any) -> None:
    """Past the cap it is not the reboot that is missing; older reboots do not count."""
    recent = tuple(later(-60 * n) for n in range(policy.reboots_max))
    old = tuple(later(-policy.reboot_window_s - n) for n in range(policy.reboots_max))
    worn = checking(policy, reboots=recent)
    assert tell(worn, verdict_of(worn, REBOOT), policy).record.status is QUARANTINED
    rested = checking(policy, reboots=old)
    decision = tell(rested, verdict_of(rested, REBOOT), policy)
    assert decision.record.status is InstanceStatus.REBOOTING
    assert decision.record.reboots == (NOW,)


def test_only_a_disconnect_a_new_registration_or_a_long_wait_makes_us_look() -> None:
    """The stop of the failed task is an ACTIVE event too."""
    record = rebooting()
    assert tell(record, observed(2)).record.status is InstanceStatus.REBOOTING
    assert tell(record, observed(1, container_instance_id="ci-2")).record.status is InstanceStatus.VERIFYING
    settled, asked = later(ADAPTIVE.reboot_settle_s), replace(record, commands=())
    assert tell(asked, observed(2, looked=True), now=settled).record.status is InstanceStatus.VERIFYING
    away = applied(tell(record, observed(2, agent_connected=False)))
    back = tell(away, observed(3))
    assert back.record.status is InstanceStatus.VERIFYING
    assert orders(back, commands.ActivateInstance)


def test_a_reboot_that_is_still_to_be_asked_for_is_not_looked_for() -> None:
    """EC2 throttles it. The time to settle begins when it is asked for, and a disconnect is a sign all the same."""
    record, settled = rebooting(), later(ADAPTIVE.reboot_settle_s)
    waiting = applied(tell(record, observed(2, looked=True), now=settled))
    assert waiting.status is InstanceStatus.REBOOTING
    asked = replace(waiting, commands=())
    soon, late = later(ADAPTIVE.reboot_settle_s + 60), later(2 * ADAPTIVE.reboot_settle_s)
    assert tell(asked, observed(3, looked=True), now=soon).record.status is InstanceStatus.REBOOTING
    assert tell(asked, observed(3, looked=True), now=late).record.status is InstanceStatus.VERIFYING
    away = applied(tell(record, observed(2, agent_connected=False)))
    assert tell(away, observed(3)).record.status is InstanceStatus.VERIFYING


@pytest.mark.parametrize(
    ("boot_before", "boot_after", "booted_at", "proved"),
    [
        ("boot-1", "boot-2", None, True),
        ("boot-1", "boot-2", later(30), True),
        ("boot-1", "boot-2", later(-3_600), False),
        ("boot-1", "boot-1", later(30), False),
        (None, "boot-2", later(30), True),
        (None, "boot-2", later(-30), False),
        ("boot-1", None, later(30), True),
        ("boot-1", None, None, False),
        (None, None, NOW, False),
    ],
)
def test_a_reboot_is_proved_by_the_machines_own_words(
    boot_before: str | None, boot_after: str | None, booted_at: Any, proved: bool
) -> None:
    """Another boot id and a boot no older than the request; where one of them is not known, the other alone."""
    assert proves_reboot(Reboot(NOW, boot_before), Verdict(HEALTHY, "", boot_after, booted_at)) is proved


@pytest.mark.parametrize("made", [checking, verifying], ids=["checking", "verifying"])
def test_a_check_is_asked_about_each_time_as_seldom_as_the_first(made: Any) -> None:
    """It takes minutes, and a large gang has one on each of its instances."""
    record, every = made(), ADAPTIVE.check_poll_interval_s
    assert every > ADAPTIVE.poll_interval_s and record.look_at == later(every)
    assert applied(_look(record)).look_at == later(2 * every)


def test_a_healthy_check_on_the_old_boot_proves_nothing() -> None:
    """It waits on, drained, for the deadline it had."""
    before = verifying()
    decision = tell(before, verdict_of(before, HEALTHY, "boot-1"))
    assert decision.record.status is InstanceStatus.REBOOTING
    assert before.reboot is not None
    assert decision.record.deadline_at == before.reboot.deadline_at
    assert orders(decision, commands.DrainInstance)


def test_a_reboot_that_never_shows_quarantines_notifies_and_tells_the_job() -> None:
    """The deadline was set when the reboot was asked for."""
    decision = overdue(rebooting())
    assert decision.record.status is QUARANTINED
    assert orders(decision, commands.NotifyOperator)
    assert [(one.job_id, one.event.healed) for one in orders(decision, commands.TellJob)] == [("sft-1", False)]
    assert "Operator Action Required" in [one.detail_type for one in orders(decision, commands.PublishEvent)]


def test_a_reboot_of_unknown_outcome_is_asked_for_again_only_on_the_old_boot() -> None:
    """Whoever asked died: the machine itself says whether it was heard."""
    unsure = applied(tell(rebooting(), events.RebootUncertain(at=NOW, epoch=1)))
    assert unsure.status is InstanceStatus.VERIFYING
    unheard = tell(unsure, verdict_of(unsure, HEALTHY, "boot-1"))
    assert orders(unheard, commands.RebootInstance) == [commands.RebootInstance(2)]
    heard = tell(unsure, verdict_of(unsure, HEALTHY, "boot-2"))
    assert heard.record.status is AVAILABLE
    silent = tell(unsure, verdict_of(unsure, HEALTHY, None))
    assert not orders(silent, commands.RebootInstance)
    assert tell(silent.record, events.RebootUncertain(at=NOW, epoch=1)).outcome is EventOutcome.IGNORED


def test_a_repeated_reboot_is_certain_again() -> None:
    """The second request reached EC2. The old boot then shows only that the reboot takes its time."""
    unsure = applied(tell(rebooting(), events.RebootUncertain(at=NOW, epoch=1)))
    again = applied(tell(unsure, verdict_of(unsure, HEALTHY, "boot-1")))
    returned = applied(tell(again, observed(1, container_instance_id="ci-2")))
    early = tell(returned, verdict_of(returned, HEALTHY, "boot-1"))
    assert early.record.status is InstanceStatus.REBOOTING
    assert not orders(early, commands.RebootInstance)


def test_a_refused_reboot_goes_to_a_person_at_once() -> None:
    """Nobody waits half an hour for what will not come; a refusal of an earlier reboot refuses nothing."""
    refused = events.RepairRefused(at=NOW, epoch=1, sentence="EC2 refused: not authorized")
    decision = tell(rebooting(), refused)
    assert decision.record.status is QUARANTINED
    assert [one.event.healed for one in orders(decision, commands.TellJob)] == [False]
    assert orders(decision, commands.NotifyOperator)
    assert tell(rebooting(epoch=1), refused).outcome is EventOutcome.OUTDATED


def test_a_reboot_that_did_not_cure_is_repeated_within_the_cap() -> None:
    """The check after it is the judge; past the cap a person is."""
    record = verifying()
    again = tell(record, verdict_of(record, REBOOT, "boot-2"))
    assert again.record.status is InstanceStatus.REBOOTING
    assert again.record.epoch == 2
    worn = verifying(reboots=(later(-60),))
    assert tell(worn, verdict_of(worn, REBOOT, "boot-2")).record.status is QUARANTINED


def test_a_check_after_a_reboot_that_could_not_tell_is_repeated_once() -> None:
    """INCONCLUSIVE is not a pass; twice is a person's business."""
    record = verifying()
    again = tell(record, verdict_of(record, INCONCLUSIVE, "boot-2"))
    assert again.record.status is InstanceStatus.VERIFYING
    assert len(orders(again, commands.RunCheck)) == 1
    last = tell(again.record, verdict_of(again.record, INCONCLUSIVE, "boot-2"))
    assert last.record.status is QUARANTINED


def test_a_check_after_a_reboot_that_never_answers_quarantines_and_tells_the_job() -> None:
    """The second deadline of a repair."""
    decision = overdue(verifying())
    assert decision.record.status is QUARANTINED
    assert [one.event.healed for one in orders(decision, commands.TellJob)] == [False]
    assert orders(decision, commands.StopCheck)


def test_an_instance_whose_check_ecs_never_started_is_not_blamed() -> None:
    """The GPUs were taken by somebody: that says nothing about the machine."""
    record = checking()
    refused = replace(record, commands=tuple(replace(one, refusals=3) for one in record.commands))
    decision = overdue(refused)
    assert decision.record.status is AVAILABLE
    assert [one.outcome for one in orders(decision, commands.ReportCheck)] == [INCONCLUSIVE]
    assert orders(decision, commands.NotifyOperator)


# -- quarantine --------------------------------------------------------------------------------------------------------


def test_a_quarantine_reminds_and_keeps_its_reason() -> None:
    """Every day, with the same incident id."""
    record = _quarantined()
    decision = overdue(record)
    (told,) = orders(decision, commands.NotifyOperator)
    assert told.incident_id == record.incident_id == f"{record.instance_id}/{record.version}"
    assert (decision.record.status, decision.record.reason) == (QUARANTINED, record.reason)
    assert decision.record.deadline_at > record.deadline_at


def test_a_release_leads_through_a_check() -> None:
    """A person's word is not a passing check."""
    record = _quarantined()
    at = later(9_999)
    decision = tell(record, events.ReleaseRequested(at=at, by="ada"), now=at)
    assert decision.record.status is InstanceStatus.VERIFYING
    failed = tell(decision.record, verdict_of(decision.record, REBOOT), now=at)
    assert failed.record.status is QUARANTINED


def test_a_released_instance_that_passes_its_check_is_nobodys() -> None:
    """A person vouched for it and its check had every GPU: the claim of a rank that was never confirmed is over."""
    record = applied(overdue(applied(tell(claimed(), STUCK))))
    assert record.claims
    at = later(9_999)
    record = applied(tell(record, events.ReleaseRequested(at=at, by="ada"), now=at))
    decision = tell(record, verdict_of(record, HEALTHY), now=at)
    assert (decision.record.status, decision.record.claims) == (AVAILABLE, {})
    assert [(one.job_id, one.attempt) for one in orders(decision, commands.ConfirmEnd)] == [("sft-1", 1)]


def test_a_release_from_before_the_quarantine_releases_nothing() -> None:
    """It was about an earlier one."""
    record = _quarantined()
    assert tell(record, events.ReleaseRequested(at=NOW, by="ada")).outcome is EventOutcome.IGNORED
