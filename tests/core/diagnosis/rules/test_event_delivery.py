"""Rows 41-46: whether a notice has come through, and what an OOM then means."""

import pytest
from gpu_recovery.core.diagnosis.case import Case, History, Topology
from gpu_recovery.core.diagnosis.event_delivery import event_progress, is_confirmed
from gpu_recovery.core.diagnosis.misleading_oom import explained_ooms
from gpu_recovery.core.diagnosis.observations import (
    Delivery,
    EventReport,
    LogFinding,
    Observation,
    Occupant,
    RpcReport,
    RpcStage,
    StageReport,
)
from gpu_recovery.core.diagnosis.rules import log_lines, rpc
from gpu_recovery.core.diagnosis.rules.event_delivery import RULES
from gpu_recovery.core.diagnosis.taxonomy import Cause, Remedy
from gpu_recovery.core.diagnosis.thresholds import Thresholds

from tests.core.diagnosis.rule_results import AT_S, TWO, asked, found, instance, numbered

SENT_S = AT_S - 700.0
OOM = "InferenceEngineError: RolloutError: CUDA out of memory"
TRAIN, ROLLOUT = Occupant(1, 40_000.0, "train"), Occupant(2, 500.0, "rollout")


def event(state: Delivery = Delivery.SENT, **given: object) -> EventReport:
    """A notice to the rollout worker of i-1, sent 700 s ago."""
    return EventReport(
        **{  # type: ignore[arg-type]
            "report_id": "",
            "at_s": SENT_S,
            "worker": "rollout/0",
            "request_id": "q1",
            "event": "rollout_start",
            "state": state,
            **given,
        }
    )


def oom(at_s: float = AT_S - 60.0, **given: object) -> StageReport:
    """An OOM in the rollout on i-1."""
    return StageReport(
        **{  # type: ignore[arg-type]
            "report_id": "",
            "at_s": at_s,
            "instance_id": "i-1",
            "stage": "rollout",
            "moment": "during",
            "error": OOM,
            **given,
        }
    )


def occupied(*occupants: Occupant, **given: object) -> StageReport:
    """Who is on the GPU before the rollout."""
    return oom(**{"at_s": AT_S - 90.0, "moment": "before", "error": "", "occupants": occupants, **given})  # type: ignore[arg-type]


def case_of(*reports: Observation, topology: Topology = TWO) -> Case:
    """The case of these reports."""
    return Case.of(numbered(reports), topology, History(), AT_S, Thresholds())


def what_explains(case: Case) -> tuple[str, ...]:
    """The reports by which the case's OOMs do not mean what they say; none where they do."""
    return tuple(sorted({one for explained in explained_ooms(case).values() for one in explained.evidence}))


# -- rows 41-45 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "row", "cause", "chinese"),
    [
        (Delivery.SENT, "43", Cause.EVENT_UNDELIVERED, "Event未送达 → 网络超时或worker down"),
        (Delivery.DELIVERED, "43a", Cause.EVENT_UNPROCESSED, "Event已送达但未ACK → worker收到但处理失败"),
    ],
)
def test_row_43_what_an_event_came_to_says_what_is_wrong(state: Delivery, row: str, cause: Cause, chinese: str) -> None:
    """Sent and no more: the way is cut, or nobody is there. Delivered and no more: it was not processed."""
    verdict = asked(RULES, event(state))
    assert (verdict.cause, verdict.scope, verdict.remedy) == (cause, instance("i-1"), Remedy.RESTART)
    (said,) = {(one.row, one.chinese) for one in verdict.findings}
    assert said == (row, chinese)


@pytest.mark.parametrize(
    ("last", "cause"),
    [(Delivery.SENT, Cause.EVENT_UNDELIVERED), (Delivery.DELIVERED, Cause.EVENT_UNPROCESSED)],
)
def test_row_43_a_failure_does_not_hide_how_far_the_event_came(last: Delivery, cause: Cause) -> None:
    """An exception overwrites the state; `last_state` remembers."""
    verdict = asked(RULES, event(Delivery.FAILED, last_state=last, error="ReadTimeout"), at_s=SENT_S + 5.0)
    assert verdict.cause is cause
    assert {one.row for one in verdict.findings} == {"43+" if last is Delivery.SENT else "43a+"}


def test_row_43_the_furthest_report_of_an_event_counts() -> None:
    """A failure that says "sent" after a report that says "delivered" knows less."""
    verdict = asked(RULES, event(Delivery.DELIVERED), event(Delivery.FAILED, at_s=SENT_S + 1.0))
    assert verdict.cause is Cause.EVENT_UNPROCESSED


def test_row_43_an_event_is_not_late_before_its_time() -> None:
    """Its acknowledgement may take 600 s."""
    assert asked(RULES, event(), at_s=SENT_S + 599.0).cause is Cause.UNKNOWN
    assert asked(RULES, event(), at_s=SENT_S + 600.0).cause is Cause.EVENT_UNDELIVERED


def test_row_43_an_acknowledged_event_blames_nobody() -> None:
    """However late it is judged."""
    verdict = asked(RULES, event(), event(Delivery.ACKNOWLEDGED, gpu_state="gpu_ready", at_s=SENT_S + 1.0))
    assert verdict.cause is Cause.UNKNOWN
    assert [one.english for one in verdict.informational] == ["Event rollout_start confirmed, GPU ready"]


@pytest.mark.parametrize("gpu_state", ["busy", "gpu_busy"])
def test_row_43_acknowledged_but_busy_is_a_gpu_that_was_not_released(gpu_state: str) -> None:
    """The worker itself says so."""
    verdict = asked(RULES, event(Delivery.ACKNOWLEDGED, gpu_state=gpu_state))
    assert (verdict.cause, verdict.remedy) == (Cause.GPU_NOT_RELEASED, Remedy.RELEASE)
    assert "GPU仍被占用 → train未释放或rollout未能获取" in {one.chinese for one in verdict.findings}


def test_row_43_a_gpu_that_became_ready_is_not_busy() -> None:
    """The last word counts."""
    ready = event(Delivery.ACKNOWLEDGED, gpu_state="gpu_ready", at_s=SENT_S + 9.0)
    assert asked(RULES, event(Delivery.ACKNOWLEDGED, gpu_state="gpu_busy"), ready).cause is Cause.UNKNOWN


@pytest.mark.parametrize(
    ("row", "reports", "english"),
    [
        ("44", [event(Delivery.ACKNOWLEDGED, gpu_state="gpu_ready")], "Event rollout_start confirmed, GPU ready"),
        ("44a", [event(Delivery.DELIVERED, gpu_state="gpu_busy")], "GPU still busy, waiting... (rollout_start)"),
        ("44b", [event(Delivery.DELIVERED, gpu_state="error", error="no room")], "GPU switch failed: no room"),
        ("44c", [event(Delivery.DELIVERED)], "Event rollout_start ACK timeout"),
        ("44d", [event(event="rollout_begin")], "Invalid event type: rollout_begin"),
    ],
)
def test_row_44_each_answer_of_the_protocol_has_its_sentence(
    row: str, reports: list[Observation], english: str
) -> None:
    """Ready, busy, error, nothing in time, and a name that nobody knows."""
    assert [one.english for one in found(RULES, row, *reports)][:1] == [english]


def test_row_44_while_it_is_processed_nothing_is_said() -> None:
    """It keeps waiting."""
    verdict = asked(RULES, event(Delivery.DELIVERED, gpu_state="processing"), at_s=SENT_S + 30.0)
    assert verdict.cause is Cause.UNKNOWN and not verdict.informational


def test_row_44_an_unknown_event_is_the_programs_error_only_where_it_failed() -> None:
    """Who names another event and is answered has agreed on it."""
    wrong = {"event": "rollout_begin"}
    refused = event(Delivery.FAILED, **wrong)
    assert Cause.APPLICATION in {one.cause for one in found(RULES, "44d", refused)}
    assert not found(RULES, "44d", event(Delivery.ACKNOWLEDGED, **wrong))


def test_row_41_where_no_train_end_was_sent_that_is_said() -> None:
    """Rollout waits for a GPU that nobody told train to release."""
    busy = event(Delivery.ACKNOWLEDGED, gpu_state="busy")
    assert found(RULES, "41", busy)
    assert not found(RULES, "41", busy, event(request_id="q0", event="train_end", worker="train/0"))
    assert not found(RULES, "41", event(Delivery.ACKNOWLEDGED, gpu_state="gpu_ready"))


@pytest.mark.parametrize("state", [Delivery.SENT, Delivery.DELIVERED, Delivery.FAILED])
def test_row_45_no_success_without_an_acknowledgement(state: Delivery) -> None:
    """ "succeeded" in the log says that a function returned."""
    line = LogFinding(report_id="", at_s=0.0, line="notify_rollout_start_event succeeded", kind="benign", role="advice")
    (said,) = found(RULES, "45", event(state), line)
    assert "claims success for rollout_start" in said.english
    assert not any(is_confirmed(one) for one in event_progress(case_of(event(state))).values())
    assert not found(RULES, "45", event(Delivery.ACKNOWLEDGED), line)


# -- row 46 ------------------------------------------------------------------------------------------------------------


def test_row_46_an_oom_without_an_acknowledged_event_is_not_the_batch_size() -> None:
    """Rollout was never told that it is its turn, so train had not let go."""
    verdict = asked(RULES, event(), oom())
    assert (verdict.cause, verdict.remedy, verdict.decided) == (Cause.EVENT_UNDELIVERED, Remedy.RESTART, True)
    assert Cause.GPU_MEMORY not in {one.cause for one in verdict.rivals}
    assert what_explains(case_of(event(), oom())) == ("r0",)


def test_row_46_delivered_is_not_acknowledged() -> None:
    """The worker has the notice and did nothing with it."""
    assert asked(RULES, event(Delivery.DELIVERED), oom()).cause is Cause.EVENT_UNPROCESSED


def test_row_46_an_oom_while_train_still_holds_the_gpu_is_not_the_batch_size() -> None:
    """40 GB are held and 30 asked for."""
    verdict = asked(RULES, occupied(TRAIN, ROLLOUT), oom())
    assert (verdict.cause, verdict.scope, verdict.remedy) == (
        Cause.GPU_NOT_RELEASED,
        instance("i-1"),
        Remedy.RELEASE,
    )
    assert verdict.decided and what_explains(case_of(occupied(TRAIN), oom())) == ("r0",)


def test_row_46_that_train_holds_it_follows_from_the_notice_that_never_came() -> None:
    """Both are seen; the first is the reason of the second."""
    verdict = asked(RULES, event(), occupied(TRAIN, ROLLOUT), oom())
    assert (verdict.cause, verdict.decided) == (Cause.EVENT_UNDELIVERED, True)
    assert all(one.follows for one in found(RULES, "46a", event(), occupied(TRAIN), oom()))


def test_row_46_every_oom_is_examined_although_an_earlier_oom_has_another_explanation() -> None:
    """The first OOM is explained by the memory that train holds, the second by the event that was not delivered."""
    held, earlier = occupied(TRAIN, instance_id="i-2"), oom(AT_S - 80.0, instance_id="i-2")
    (undelivered,) = found(RULES, "46", held, earlier, event(), oom())
    assert (undelivered.cause, undelivered.scope) == (Cause.EVENT_UNDELIVERED, instance("i-1"))


PLAIN = [
    ([oom()], "nothing else is known"),
    ([event(Delivery.ACKNOWLEDGED, gpu_state="gpu_ready"), oom()], "acknowledged"),
    ([event(at_s=AT_S - 10.0), oom()], "sent after it"),
    ([event(worker="rollout/1"), oom()], "to another machine's worker"),
    ([event(event="train_start"), oom()], "not its turn's notice"),
    (
        [event(), event(Delivery.ACKNOWLEDGED, request_id="q2", at_s=SENT_S + 5.0), oom()],
        "a newer one was acknowledged",
    ),
    ([occupied(ROLLOUT), oom()], "its own process"),
    ([occupied(Occupant(1, 900.0, "train")), oom()], "resident, below the threshold"),
    ([occupied(Occupant(1, 40_000.0)), oom()], "nobody knows whose"),
    ([occupied(Occupant(1, float("nan"), "train")), oom()], "no number"),
    ([occupied(TRAIN, gpu="GPU-b"), oom(gpu="GPU-a")], "another GPU"),
    ([occupied(TRAIN, instance_id="i-2"), oom()], "another machine"),
    ([occupied(TRAIN), occupied(ROLLOUT, at_s=AT_S - 80.0), oom()], "released since"),
    ([oom(SENT_S - 1.0), event(), oom()], "it did not suffice before either"),
    ([oom(), occupied(TRAIN, at_s=AT_S - 50.0)], "train came after it"),
]


@pytest.mark.parametrize("reports", [one for one, _ in PLAIN], ids=[why for _, why in PLAIN])
def test_row_46_an_oom_that_nothing_explains_means_what_it_says(reports: list[Observation]) -> None:
    """The program asks for more than the GPU has: it would again."""
    assert what_explains(case_of(*reports)) == ()
    verdict = asked(RULES, *reports)
    assert (verdict.cause, verdict.remedy) == (Cause.GPU_MEMORY, Remedy.FAIL)


def test_row_46_who_asks_for_more_than_the_gpu_has_is_explained_by_nothing() -> None:
    """The batch is too large whoever holds what."""
    error = "CUDA out of memory. Tried to allocate 96.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1 GiB"
    assert asked(RULES, event(), occupied(TRAIN), oom(error=error)).cause is Cause.GPU_MEMORY
    fits = error.replace("96.00", "30.00")
    assert asked(RULES, event(), occupied(TRAIN), oom(error=fits)).cause is Cause.EVENT_UNDELIVERED


def test_row_46_an_oom_of_train_is_explained_by_what_rollout_holds() -> None:
    """It is the same the other way about."""
    held = occupied(Occupant(2, 30_000.0, "rollout"), stage="train")
    assert asked(RULES, held, oom(stage="train")).cause is Cause.GPU_NOT_RELEASED


@pytest.mark.parametrize("explained", [event(), occupied(TRAIN)], ids=["event", "occupancy"])
def test_row_46_reads_the_oom_of_a_log_as_well(explained: Observation) -> None:
    """Whoever classifies lines asks the same question; advice that only names an OOM is none."""
    line = {"report_id": "log", "at_s": AT_S - 60.0, "worker": "rollout/0", "line": OOM, "kind": "cuda_oom"}
    root, advice = LogFinding(**line, role="root"), LogFinding(**line, role="advice")  # type: ignore[arg-type]
    assert what_explains(case_of(explained, root)) == ("r0",)
    assert what_explains(case_of(explained, advice)) == ()
    assert what_explains(case_of(root)) == ()


def test_row_46_a_notice_to_nobody_in_particular_explains_the_oom_of_any_machine() -> None:
    """A controller that notifies one address speaks for the whole job; its report comes from its own machine."""
    assert asked(RULES, event(worker="", instance_id="i-2"), oom()).cause is Cause.EVENT_UNDELIVERED
    own = event(Delivery.ACKNOWLEDGED, request_id="q2")
    assert not found(RULES, "46", event(worker="", instance_id="i-2"), own, oom())


def test_row_46_an_acknowledgement_that_comes_with_the_oom_came_before_it() -> None:
    """Two reporters' ages differ by a moment: who was told in time is not called untold."""
    with_it, later = (event(Delivery.ACKNOWLEDGED, at_s=AT_S - 60.0 + s, gpu_state="ready") for s in (0.5, 5.0))
    assert not found(RULES, "46", event(), with_it, oom())
    assert found(RULES, "46", event(), later, oom())


def test_row_46_an_oom_elsewhere_that_nothing_explains_is_still_one() -> None:
    """One machine's missing notice excuses no other's batch size."""
    (plain,) = found(RULES, "46b", event(), oom(), oom(instance_id="i-2"))
    assert plain.evidence == ("r2",)


def test_row_46_a_line_of_a_log_elsewhere_that_nothing_explains_is_still_an_oom() -> None:
    """Each line is asked for itself: the one is explained, the other means what it says."""
    line = {"at_s": AT_S - 60.0, "line": OOM, "kind": "cuda_oom", "role": "root"}
    mine, others = (
        LogFinding(report_id=name, instance_id=name, worker=worker, **line)  # type: ignore[arg-type]
        for name, worker in (("i-1", "rollout/0"), ("i-2", "rollout/1"))
    )
    said = found(log_lines.RULES, "log cuda_oom", event(), mine, others)
    assert [(one.cause, one.evidence) for one in said] == [(None, ("i-1", "r0")), (Cause.GPU_MEMORY, ("i-2",))]
    (first,) = found(log_lines.RULES, "log first", event(), mine, others)
    assert first.evidence == ("i-2",)


@pytest.mark.parametrize("call", [{"status": 520}, {"status": 500, "server_phase": "method", "error": OOM}])
def test_row_46_reads_the_oom_that_a_worker_answers_a_call_with(call: dict[str, object]) -> None:
    """Row 32's code, or its words: with an explanation it is not the batch size either."""
    answer = RpcReport(
        **{  # type: ignore[arg-type]
            "report_id": "",
            "at_s": AT_S - 60.0,
            "worker": "rollout/0",
            "method": "generate",
            "failed_at": RpcStage.HEADER,
            **call,
        }
    )
    assert {one.cause for one in found(rpc.RULES, "32c", answer)} == {Cause.GPU_MEMORY, Cause.GPU_NOT_RELEASED}
    assert not found(rpc.RULES, "32c", event(), answer)
    verdict = asked((*RULES, *rpc.RULES), event(), answer)
    assert (verdict.cause, verdict.decided) == (Cause.EVENT_UNDELIVERED, True)
