"""GPU lock rules: the holder of a GPU's lock, and the processes that hold its memory.

Rows 47-52 of the fault catalogue, docs/diagnosis.md.

Two roles share a GPU, `train` and `rollout`. The lock has one holder or none, and its holder may take it again. A
wait for it ends after 60 s (row 47; `Thresholds.lock_s`). A semaphore works within a single instance only (row 49).

A holder that died keeps the lock. A holder that only was not seen for a while may still have it. So only a proof of
death takes the lock away. A token that rises with every grant shows a process that acts without the lock (row 50).
The SDK reports health and progress of a process every 10 s, so the last such report says when the holder was last seen.

Rows 51 and 52 are about the memory itself. A process in both sets of row 52 is no leak if it stays on the GPU by
design. So the owner and the amount of memory decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case, Worker
from gpu_recovery.core.diagnosis.gpu_memory_holders import memory_held_by_others, occupancies, role_of, total_mb
from gpu_recovery.core.diagnosis.observations import (
    ExitReport,
    LockReport,
    LockState,
    ProgressReport,
    SilenceReport,
    StageReport,
    WorkerHealth,
)
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.scopes import worker_of
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight

NO_OWNER = "?"
"""Text for an unknown holder."""


def _latest_in_state(case: Case, state: LockState) -> Iterator[Match]:
    """Last observation of each owner and lock in this state. A waiting owner reports ten times a second."""
    last = {(report.lock, report.owner): report for report in case.all(LockReport) if report.state is state}
    for report in last.values():
        values = {"owner": report.owner, "holder": report.holder or NO_OWNER}
        yield Match(None, case.scope_of(report), 0.0, (report.report_id,), values)


def _locked(case: Case) -> Iterator[Match]:
    yield from _latest_in_state(case, LockState.HELD)


def _waiting(case: Case) -> Iterator[Match]:
    yield from _latest_in_state(case, LockState.WAITING)


def _timed_out(case: Case) -> Iterator[Match]:
    yield from _latest_in_state(case, LockState.TIMED_OUT)


def _refused(case: Case) -> Iterator[Match]:
    yield from _latest_in_state(case, LockState.REFUSED)


def in_vain(case: Case) -> Iterator[LockReport]:
    """Waits without success until now: the time of the wait is over, and the owner has not received the lock since.

    A wait for a lock that the owner itself holds is skipped: the lock is re-entrant.
    """
    waits: dict[tuple[str, str], list[LockReport]] = {}
    for report in case.all(LockReport):
        over = report.state is LockState.WAITING and (report.waited_s or 0.0) >= case.thresholds.lock_s
        if report.state in (LockState.HELD, LockState.RELEASED):
            waits.pop((report.lock, report.owner), None)
        elif (report.state is LockState.TIMED_OUT or over) and report.holder != report.owner:
            waits.setdefault((report.lock, report.owner), []).append(report)
    for of_owner in waits.values():
        yield from of_owner


@dataclass(frozen=True)
class _Gone:
    """Evidence that a lock's holder is dead. Only the exit of the holder is a proof."""

    evidence: tuple[str, ...]
    proven: bool
    unseen_s: float = 0.0


class _Holders:
    """Lock holders, and the evidence about them.

    A holder is named by its worker or by its role ("train"). A role means the workers that reported the lock as held
    for it. Without such a report it means the workers with that role on the waiting instance. A lock with a token
    belongs to the job, any other lock to its instance.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._holding: dict[tuple[str, str, str], dict[str, Worker]] = {}
        for report in case.all(LockReport):
            self._note_holding(report)
        signs = [*case.all(WorkerHealth), *(one for one in case.all(ProgressReport) if one.value is not None)]
        self._last_sign = {worker_of(case, sign): sign for sign in sorted(signs, key=lambda sign: sign.at_s)}
        self._of_role: dict[tuple[str, str], list[Worker]] = {}
        for worker in case.topology.workers.values():
            self._of_role.setdefault((worker.role, worker.instance_id), []).append(worker)
        ended = [end for end in case.all(ExitReport) if end.code is not None or end.signal is not None]
        self._ends = {end.worker: end for end in ended if end.worker}
        self._ends_of_ranks = {end.rank: end for end in ended if end.rank is not None and not end.worker}
        self._silent = {case.topology.instance_of(silence): silence for silence in case.all(SilenceReport)}

    def _note_holding(self, report: LockReport) -> None:
        known = self._case.topology.workers.get(worker_of(self._case, report))
        if known is None:
            return
        for instance_id in ("", known.instance_id) if report.token is not None else (known.instance_id,):
            holding = self._holding.setdefault((report.lock, report.owner, instance_id), {})
            if report.state is LockState.HELD:
                holding[known.name] = known
            elif report.state is LockState.RELEASED:
                holding.pop(known.name, None)

    def workers(self, wait: LockReport) -> list[Worker]:
        """Workers of the wait's holder; empty if it is unknown."""
        if not wait.holder:
            return []
        if wait.holder in self._case.topology.workers:
            return [self._case.topology.workers[wait.holder]]
        instance_id = self._case.topology.instance_of(wait)
        for place in (instance_id, ""):
            if holding := self._holding.get((wait.lock, wait.holder, place)):
                return list(holding.values())
        return self._of_role.get((wait.holder, instance_id), [])

    def scope(self, wait: LockReport) -> Scope:
        """Scope of the wait's holder."""
        if not wait.holder:
            return JOB
        return Scope.of(ScopeKind.WORKER, *([worker.name for worker in self.workers(wait)] or [wait.holder]))

    def gone(self, wait: LockReport) -> _Gone | None:
        """Evidence that the holder is dead or was not seen for a while; None without evidence."""
        workers, limit = self.workers(wait), self._case.thresholds.silent_s
        for worker in workers:
            end = self._ends.get(worker.name)
            if end is None and worker.rank is not None:
                end = self._ends_of_ranks.get(worker.rank)
            if end is not None:
                return _Gone((wait.report_id, end.report_id), proven=True)
        if wait.holder in self._ends:
            return _Gone((wait.report_id, self._ends[wait.holder].report_id), proven=True)
        if wait.holder_heard_s is not None and wait.holder_heard_s > limit:
            return _Gone((wait.report_id,), False, wait.holder_heard_s)
        for worker in workers:
            silence = self._silent.get(worker.instance_id)
            if silence and silence.silent_s > limit:
                return _Gone((wait.report_id, silence.report_id), False, silence.silent_s)
            sign = self._last_sign.get(worker.name)
            if sign is not None and wait.at_s - sign.at_s > limit:
                return _Gone((wait.report_id, sign.report_id), False, wait.at_s - sign.at_s)
        return None


def _not_released(case: Case) -> Iterator[Match]:
    holders = case.computed_once(_Holders)
    for wait in in_vain(case):
        weight = Weight.FAIR if wait.holder else Weight.HINT
        values = {"owner": wait.owner, "holder": wait.holder or NO_OWNER}
        yield Match(Cause.LOCK_HELD, holders.scope(wait), weight, (wait.report_id,), values)


def _dead_holder(case: Case) -> Iterator[Match]:
    holders = case.computed_once(_Holders)
    for wait in in_vain(case):
        gone = holders.gone(wait)
        if gone and gone.proven:
            values = {"holder": wait.holder, "owner": wait.owner}
            yield Match(Cause.LOCK_HELD, holders.scope(wait), Weight.PROOF, gone.evidence, values)


def _missing_holder(case: Case) -> Iterator[Match]:
    holders = case.computed_once(_Holders)
    for wait in in_vain(case):
        gone = holders.gone(wait)
        if gone and not gone.proven:
            values = {"holder": wait.holder, "seconds": gone.unseen_s}
            yield Match(Cause.LOCK_HELD, holders.scope(wait), Weight.FAIR, gone.evidence, values)
            yield Match(Cause.WORKER_HANG, holders.scope(wait), Weight.WEAK, gone.evidence, values)


def _two_holders(case: Case) -> Iterator[Match]:
    """An owner that reports the lock as held after another owner reported a token at least as new."""
    newest: dict[str, tuple[int, LockReport]] = {}
    for report in case.all(LockReport):
        if report.state is not LockState.HELD or report.token is None:
            continue
        token, before = newest.get(report.lock, (report.token, report))
        if report.owner != before.owner and report.token <= token:
            values = {"owner": report.owner, "token": report.token, "holder": before.owner, "newest": token}
            scope = Scope.of(ScopeKind.WORKER, report.owner)
            yield Match(Cause.LOCK_HELD, scope, Weight.FAIR, (report.report_id, before.report_id), values)
        if report.token >= token:
            newest[report.lock] = (report.token, report)


def _occupied(case: Case) -> Iterator[Match]:
    for reports in case.computed_once(occupancies).values():
        for report in {report.stage: report for report in reports}.values():
            occupants = report.occupants or ()
            values = {
                "stage": report.stage,
                "n": len({occupant.pid for occupant in occupants}),
                "mb": total_mb(occupants),
            }
            yield Match(None, case.scope_of(report), 0.0, (report.report_id,), values)


def _leak_specified(case: Case) -> Iterator[Match]:
    """Row 52 as specified: processes on a GPU after weights_update that are still there before rollout.

    It compares the last observation of each; without both there is no match.
    """
    for reports in case.computed_once(occupancies).values():
        after = [report for report in reports if (report.moment, report.stage) == ("after", "weights_update")]
        before = [report for report in reports if (report.moment, report.stage) == ("before", "rollout")]
        if not after or not before:
            continue
        both = {occupant.pid for occupant in after[-1].occupants or ()} & {
            occupant.pid for occupant in before[-1].occupants or ()
        }
        if both:
            values = {"pids": ", ".join(str(pid) for pid in sorted(both))}
            evidence = (after[-1].report_id, before[-1].report_id)
            yield Match(None, case.scope_of(before[-1]), 0.0, evidence, values)


def _leak_repaired(case: Case) -> Iterator[Match]:
    """Row 52, repaired: the last observation of each GPU and stage.

    Observations after a stage are skipped: the turn of the other role has not begun. The weight is WEAK: if the
    memory suffices for both roles, a process of the other role may stay by design. With an OOM, row 46 makes it a
    proof.
    """
    for reports in case.computed_once(occupancies).values():
        for report in {report.stage: report for report in reports if report.moment != "after"}.values():
            held = memory_held_by_others(case, report, role_of(case, report))
            if held:
                values = {
                    "pids": held.pids,
                    "owners": held.owners,
                    "mb": held.memory_mb,
                    "turn": held.role,
                    "stage": report.stage,
                }
                yield Match(Cause.GPU_NOT_RELEASED, case.scope_of(report), Weight.WEAK, (report.report_id,), values)


RULES: tuple[Rule, ...] = (
    Rule("47", "GPU locked by {owner}", "GPU已被{owner}锁定", (LockReport,), _locked),
    Rule("47a", "GPU locked by {holder}, waiting...", "GPU已被{holder}锁定，等待中…", (LockReport,), _waiting),
    Rule("47b", "Failed to acquire GPU for {owner}", "{owner}获取GPU锁失败", (LockReport,), _timed_out),
    Rule(
        "48",
        "GPU owned by {holder}, cannot release",
        "GPU归{holder}所有，{owner}不能释放",
        (LockReport,),
        _refused,
    ),
    Rule(
        "50",
        "GPU lock timed out: holder {holder} has not released",
        "GPU锁超时 → 知道是{holder}未释放",
        (LockReport,),
        _not_released,
    ),
    Rule(
        "50a+",
        "Holder {holder} has ended without releasing the GPU lock that {owner} waits for",
        "持有者{holder}已退出，未释放{owner}等待的GPU锁",
        (LockReport,),
        _dead_holder,
    ),
    Rule(
        "50b+",
        "Holder {holder} of the GPU lock last reported {seconds:.0f} s ago: dead, hung or disconnected; it may still "
        "use the GPU",
        "GPU锁持有者{holder}已{seconds:.0f}秒无消息：崩溃、hang或网络中断，不能证明锁已放弃",
        (LockReport,),
        _missing_holder,
    ),
    Rule(
        "50c+",
        "Split brain: {owner} acts on the GPU lock with token {token}, but {holder} was given {newest} since",
        "锁脑裂：{owner}仍以旧令牌{token}使用GPU锁，而{holder}已获得令牌{newest}",
        (LockReport,),
        _two_holders,
    ),
    Rule(
        "51",
        "[{stage}] GPU occupied by {n} processes, total memory: {mb:.0f} MB",
        "[{stage}] GPU被{n}个进程占用，总显存：{mb:.0f} MB",
        (StageReport,),
        _occupied,
    ),
    Rule(
        "52",
        "GPU leak detected! Processes {pids} still occupying GPU after weights_update",
        "检测到GPU泄漏！进程{pids}在weights_update之后仍占用GPU",
        (StageReport,),
        _leak_specified,
    ),
    Rule(
        "52+",
        "[{stage}] {owners} still holds {mb:.0f} MB of the GPU in {turn}'s turn (processes {pids})",
        "[{stage}] 轮到{turn}时{owners}仍占用GPU {mb:.0f} MB（进程{pids}）",
        (StageReport,),
        _leak_repaired,
    ),
)
