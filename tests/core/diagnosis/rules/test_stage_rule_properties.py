"""What holds of the rules over stages, events, locks and machines, whatever reports come."""

import re
from dataclasses import replace

import pytest
from gpu_recovery.core.diagnosis.case import Case, History, Topology, Worker
from gpu_recovery.core.diagnosis.diagnose import Diagnosis, diagnose, ranking
from gpu_recovery.core.diagnosis.hypothesis import Hypothesis
from gpu_recovery.core.diagnosis.observations import (
    Check,
    Delivery,
    EventReport,
    ExitReport,
    IdleCheckReport,
    LockReport,
    LockState,
    LogFinding,
    Observation,
    Occupant,
    ProbeReport,
    RestartReport,
    SilenceReport,
    StageReport,
    WorkerHealth,
    XidReport,
)
from gpu_recovery.core.diagnosis.rule import Rule, findings
from gpu_recovery.core.diagnosis.rules import event_delivery, gpu_locks, gpu_stages, instances
from gpu_recovery.core.diagnosis.taxonomy import Cause, Probe
from gpu_recovery.core.diagnosis.thresholds import Thresholds
from gpu_recovery.core.xid import XidClass
from hypothesis import given
from hypothesis import strategies as st

from tests.core.diagnosis.rule_results import AT_S, TWO, numbered

RULES: tuple[Rule, ...] = (*gpu_stages.RULES, *event_delivery.RULES, *gpu_locks.RULES, *instances.RULES)
ERRORS = (
    "",
    "CUDA error: an illegal memory access",
    "uncorrectable ECC error",
    "device-side assert",
    "ValueError: {x}",
    "CUDA out of memory. Tried to allocate 9.9.9 GiB",
    "CUDA out of memory",
    "\x00\ud7ff{0}",
    "nvlink",
)
ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
NUMBER = st.none() | st.floats(-10, 1e6) | ANY_FLOAT
COUNT = st.none() | st.integers(-1, 5)
INSTANCES, WORKERS = st.sampled_from(["", "i-1", "i-2", "i-9"]), st.sampled_from(["", *TWO.workers, "train", "x"])
WHO = {
    "report_id": st.integers(0, 30).map(lambda n: f"r{n}"),
    "at_s": st.integers(8_000, 10_100).map(float) | ANY_FLOAT,
    "instance_id": INSTANCES,
    "worker": WORKERS,
    "rank": st.none() | st.integers(0, 2),
}
OCCUPANTS = st.builds(
    Occupant, st.integers(1, 3), st.floats(0, 9_000) | ANY_FLOAT, st.sampled_from(["", "train", "rollout"])
)
STAGES = st.builds(
    StageReport,
    **WHO,
    stage=st.sampled_from(["rollout", "weights_update", "train", ""]),
    moment=st.sampled_from(["before", "after", "during"]),
    gpu=st.sampled_from(["", "GPU-a", "GPU-b"]),
    boot_id=st.sampled_from(["", "b1", "b2"]),
    corrected=COUNT,
    uncorrected=COUNT,
    probe=st.sampled_from([None, *Check]),
    synchronised=st.booleans(),
    matches=st.none() | st.booleans(),
    error=st.sampled_from(ERRORS),
    operation=st.sampled_from(["", "o"]),
    allocated_gb=NUMBER,
    reserved_gb=NUMBER,
    occupants=st.none() | st.lists(OCCUPANTS, max_size=3).map(tuple),
)
EVENTS = st.builds(
    EventReport,
    **WHO,
    request_id=st.sampled_from(["q1", "q2"]),
    state=st.sampled_from(Delivery),
    event=st.sampled_from(["rollout_start", "train_end", "train_start", "?"]),
    last_state=st.sampled_from(Delivery),
    gpu_state=st.sampled_from(["", "busy", "gpu_ready", "error", "processing"]),
    error=st.sampled_from(ERRORS),
)
LOCKS = st.builds(
    LockReport,
    **WHO,
    lock=st.sampled_from(["l1", "l2"]),
    owner=WORKERS,
    state=st.sampled_from(LockState),
    holder=WORKERS,
    holder_heard_s=NUMBER,
    waited_s=NUMBER,
    token=COUNT,
)
OTHERS = st.one_of(
    st.builds(
        ExitReport,
        **WHO,
        code=st.none() | st.integers(-300, 300),
        signal=st.none() | st.integers(-1, 70),
        by_us=st.booleans(),
    ),
    st.builds(
        XidReport,
        **WHO,
        xid=st.sampled_from([13, 31, 45, 48, 63, 79, 94]),
        asks=st.sampled_from([*XidClass, "?"]),
        gpu=st.sampled_from(["", "GPU-a"]),
    ),
    st.builds(SilenceReport, **WHO, silent_s=st.floats(0, 300) | ANY_FLOAT),
    st.builds(IdleCheckReport, **WHO, level=st.integers(0, 4)),
    st.builds(ProbeReport, **WHO, probe=st.sampled_from([*Probe, "?"]), passed=st.none() | st.booleans()),
    st.builds(
        LogFinding,
        **WHO,
        line=st.sampled_from([*ERRORS, "notify_rollout_start_event succeeded"]),
        kind=st.sampled_from(["cuda_oom", "benign"]),
        role=st.sampled_from(["root", "advice", "cascade"]),
    ),
    st.builds(WorkerHealth, **WHO),
)
REPORTS = st.lists(STAGES | EVENTS | LOCKS | OTHERS, max_size=12)


def judged(reports: list[Observation]) -> Diagnosis:
    """The diagnosis by these families."""
    return diagnose(reports, TWO, History({"i-1": 0.5, "i-2": float("nan")}), AT_S, Thresholds(), RULES)


def ranked(reports: list[Observation]) -> list[Hypothesis]:
    """Every hypothesis, the likeliest first."""
    case = Case.of(reports, TWO, History(), AT_S, Thresholds())
    return [*ranking(findings(RULES, case), case)]


@given(REPORTS, st.randoms())
def test_the_order_of_reports_is_irrelevant_and_none_of_them_is_too_much(
    reports: list[Observation], drawn: object
) -> None:
    """NaN, nothing, unknown words and broken lines included; a confidence is always one."""
    shuffled = [*reports]
    drawn.shuffle(shuffled)  # type: ignore[attr-defined]
    verdict = judged(reports)
    assert judged(shuffled) == verdict
    assert 0.0 <= verdict.confidence <= 0.99


@given(REPORTS)
def test_no_finding_without_evidence(reports: list[Observation]) -> None:
    """Every sentence names reports that were given; without reports there is none."""
    ids = {one.report_id for one in reports}
    case = Case.of(reports, TWO, History(), AT_S, Thresholds())
    for one in findings(RULES, case):
        assert one.evidence and {*one.evidence} <= ids
        assert one.english and one.chinese
    assert judged([]).cause is Cause.UNKNOWN and not judged([]).informational


@given(REPORTS, st.data())
def test_the_same_evidence_once_more_never_lowers_a_rank(reports: list[Observation], data: st.DataObject) -> None:
    """Whatever speaks for a hypothesis, told again a moment later, leaves it where it was or raises it."""
    before = ranked(reports)
    if not before:
        return
    chosen = data.draw(st.sampled_from(before))
    known = {one.report_id: one for one in Case.of(reports, TWO, History(), AT_S, Thresholds()).reports}
    again = known[data.draw(st.sampled_from(chosen.evidence))]
    after = ranked([*known.values(), replace(again, report_id="again", at_s=again.at_s + data.draw(st.floats(0, 0.5)))])
    places = [[(one.cause, one.scope) for one in ones] for ones in (before, after)]
    key = (chosen.cause, chosen.scope)
    assert places[1].index(key) <= places[0].index(key)


# -- both languages ----------------------------------------------------------------------------------------------------


def at(made: type[Observation], **given: object) -> Observation:
    """A report on i-1."""
    return made(**{"report_id": "", "at_s": 0.0, "instance_id": "i-1", **given})


ZOO = numbered(
    [
        at(StageReport, stage="save", probe=Check.PASSED, corrected=0, uncorrected=0, allocated_gb=1.0, gpu="g"),
        at(StageReport, stage="rollout", matches=False, corrected=1, uncorrected=1, gpu="g"),
        at(StageReport, stage="rollout", probe=Check.FAILED, error="CUDA error: unknown error", gpu="g"),
        at(StageReport, stage="train", error="CUDA error: unknown error", gpu="g"),
        at(StageReport, stage="weights_update", moment="after", occupants=(Occupant(1, 9e3, "train"),), gpu="h"),
        at(StageReport, stage="rollout", occupants=(Occupant(1, 9e3, "train"),), gpu="h"),
        at(EventReport, request_id="1", event="rollout_start", state=Delivery.SENT, at_s=9_000.5, worker="rollout/0"),
        at(EventReport, request_id="2", event="train_start", state=Delivery.FAILED),
        at(EventReport, request_id="3", event="train_start", state=Delivery.DELIVERED),
        at(EventReport, request_id="4", event="train_start", state=Delivery.FAILED, last_state=Delivery.DELIVERED),
        at(
            EventReport,
            request_id="5",
            event="rollout_start",
            state=Delivery.ACKNOWLEDGED,
            gpu_state="busy",
            worker="x",
        ),
        at(EventReport, request_id="6", event="rollout_end", state=Delivery.ACKNOWLEDGED, gpu_state="ready"),
        at(EventReport, request_id="7", event="rollout_end", state=Delivery.DELIVERED, gpu_state="error"),
        at(EventReport, request_id="8", event="?", state=Delivery.FAILED),
        at(LogFinding, line="notify_train_start_event succeeded", kind="benign", role="root"),
        at(StageReport, stage="rollout", error="CUDA out of memory", gpu="h"),
        at(StageReport, stage="rollout", error="CUDA out of memory", instance_id="i-2", at_s=1.0),
        at(LockReport, lock="l", owner="a", state=LockState.HELD, token=2),
        at(LockReport, lock="l", owner="b", state=LockState.HELD, token=1),
        at(LockReport, lock="l", owner="c", holder="train/0", state=LockState.WAITING),
        at(LockReport, lock="l", owner="c", holder="train/0", state=LockState.TIMED_OUT),
        at(LockReport, lock="l", owner="d", holder="e", holder_heard_s=99.0, state=LockState.TIMED_OUT),
        at(LockReport, lock="l", owner="d", holder="a", state=LockState.REFUSED),
        at(ExitReport, worker="train/0", code=1),
        at(ExitReport, worker="train/1", code=1, by_us=True),
        at(XidReport, xid=79, asks="REBOOT"),
        at(RestartReport, instance_id="i-2"),
        at(IdleCheckReport, instance_id="i-2", level=3),
        at(SilenceReport, silent_s=99.0),
        at(SilenceReport, silent_s=99.0, instance_id="i-2"),
        at(ProbeReport, probe=Probe.DCGM, passed=False),
        at(ProbeReport, probe=Probe.PAIRWISE, passed=True),
    ]
)
"""Something of everything: nearly every rule finds something in it."""
WITH_A_THIRD = Topology.of([*TWO.workers.values(), Worker("train/2", "i-3", "rack-b", 2, "train")])
"""Where every machine is silent no rack is; so one more is heard of for the rule of racks."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.row)
def test_each_rule_says_what_it_found_in_both_languages(rule: Rule) -> None:
    """Its sentences name what was found; the Chinese one is Chinese, but for the one that is a log's format."""
    topology = WITH_A_THIRD if rule.row == "silence-rack" else TWO
    said = findings([rule], Case.of(ZOO, topology, History(), AT_S, Thresholds()))
    assert said
    for one in said:
        assert "{" not in one.english + one.chinese
        assert re.search("[\u4e00-\u9fff]", one.chinese) or rule.row == "6"
        assert not re.search("[\u4e00-\u9fff]", one.english)


def test_every_row_is_there_once() -> None:
    """A row's evidence counts once: two rules of one name would share a weight."""
    rows = [rule.row for rule in RULES]
    assert len(rows) == len({*rows})
    wanted = {"1", "2", "3", "4", "5", "6", "41", "43", "44", "45", "46", "47", "48", "50", "51", "52"}
    assert wanted <= {*rows}
