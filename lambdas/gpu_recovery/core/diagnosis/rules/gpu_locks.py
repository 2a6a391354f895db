"""Rows 47-52: who has the lock of a GPU, and who holds its memory.

Two share a GPU, `train` and `rollout`; the lock is one's or nobody's, whoever has it may take it again, and a wait for
it ends after 60 s (47; `Thresholds.lock_s`). A semaphore of one machine does not reach beyond it (49). A holder that
died keeps the lock, and one that was only not heard of may still have it: only a proof of death takes it away, and a
token that rises with every grant shows who acts without having it (50). Rows 51 and 52 are about the memory itself;
that a process is in both of 52's sets is no leak where it lives on the GPU by design: who holds it and how much decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpu_recovery.core.diagnosis.case import Case, Worker
from gpu_recovery.core.diagnosis.gpu_memory_holders import memory_held_by_others, occupancies, role_of, total_mb
from gpu_recovery.core.diagnosis.observations import ExitReport, LockReport, LockState, SilenceReport, StageReport
from gpu_recovery.core.diagnosis.rule import Match, Rule
from gpu_recovery.core.diagnosis.taxonomy import JOB, Cause, Scope, ScopeKind, Weight

NOBODY = "?"


def _said(case: Case, state: LockState) -> Iterator[Match]:
    """The last report of each owner and lock in this state: who waits says so ten times a second."""
    last = {(one.lock, one.owner): one for one in case.all(LockReport) if one.state is state}
    for one in last.values():
        values = {"owner": one.owner, "holder": one.holder or NOBODY}
        yield Match(None, case.scope_of(one), 0.0, (one.report_id,), values)


def _locked(case: Case) -> Iterator[Match]:
    yield from _said(case, LockState.HELD)


def _waiting(case: Case) -> Iterator[Match]:
    yield from _said(case, LockState.WAITING)


def _timed_out(case: Case) -> Iterator[Match]:
    yield from _said(case, LockState.TIMED_OUT)


def _refused(case: Case) -> Iterator[Match]:
    yield from _said(case, LockState.REFUSED)


def in_vain(case: Case) -> Iterator[LockReport]:
    """The waits that were for nothing until now: over their time, and that owner has not got the lock since.

    Whoever waits for itself waits for nobody: a lock is re-entrant.
    """
    waits: dict[tuple[str, str], list[LockReport]] = {}
    for one in case.all(LockReport):
        over = one.state is LockState.WAITING and (one.waited_s or 0.0) >= case.thresholds.lock_s
        if one.state in (LockState.HELD, LockState.RELEASED):
            waits.pop((one.lock, one.owner), None)
        elif (one.state is LockState.TIMED_OUT or over) and one.holder != one.owner:
            waits.setdefault((one.lock, one.owner), []).append(one)
    for ones in waits.values():
        yield from ones


@dataclass(frozen=True)
class _Gone:
    """What speaks for a holder's death. Only an end is a proof."""

    evidence: tuple[str, ...]
    proven: bool
    unheard_s: float = 0.0


class _Holders:
    """Who the holders are that the locks name, and what is known of them.

    A holder is named by its worker, or by its role ("train"): then it is who has that role on the waiting instance.
    """

    def __init__(self, case: Case) -> None:
        self._case = case
        self._of_role: dict[tuple[str, str], list[Worker]] = {}
        for worker in case.topology.workers.values():
            self._of_role.setdefault((worker.role, worker.instance_id), []).append(worker)
        ended = [one for one in case.all(ExitReport) if one.code is not None or one.signal is not None]
        self._ends = {one.worker: one for one in ended if one.worker}
        self._ends_of_ranks = {one.rank: one for one in ended if one.rank is not None and not one.worker}
        self._silent = {case.topology.instance_of(one): one for one in case.all(SilenceReport)}

    def workers(self, wait: LockReport) -> list[Worker]:
        """The workers that the wait's holder is; none where the topology does not know it."""
        if wait.holder in self._case.topology.workers:
            return [self._case.topology.workers[wait.holder]]
        return self._of_role.get((wait.holder, self._case.topology.instance_of(wait)), []) if wait.holder else []

    def scope(self, wait: LockReport) -> Scope:
        """Where the holder is."""
        if not wait.holder:
            return JOB
        return Scope.of(ScopeKind.WORKER, *([one.name for one in self.workers(wait)] or [wait.holder]))

    def gone(self, wait: LockReport) -> _Gone | None:
        """Whether the holder is dead, or was not heard of; None where nothing speaks for that."""
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
        return None


def _not_released(case: Case) -> Iterator[Match]:
    holders = case.computed_once(_Holders)
    for one in in_vain(case):
        weight = Weight.FAIR if one.holder else Weight.HINT
        values = {"owner": one.owner, "holder": one.holder or NOBODY}
        yield Match(Cause.LOCK_HELD, holders.scope(one), weight, (one.report_id,), values)


def _dead_holder(case: Case) -> Iterator[Match]:
    holders = case.computed_once(_Holders)
    for one in in_vain(case):
        gone = holders.gone(one)
        if gone and gone.proven:
            values = {"holder": one.holder, "owner": one.owner}
            yield Match(Cause.LOCK_HELD, holders.scope(one), Weight.PROOF, gone.evidence, values)


def _silent_holder(case: Case) -> Iterator[Match]:
    holders = case.computed_once(_Holders)
    for one in in_vain(case):
        gone = holders.gone(one)
        if gone and not gone.proven:
            values = {"holder": one.holder, "seconds": gone.unheard_s}
            yield Match(Cause.LOCK_HELD, holders.scope(one), Weight.FAIR, gone.evidence, values)
            yield Match(Cause.WORKER_HANG, holders.scope(one), Weight.WEAK, gone.evidence, values)


def _two_holders(case: Case) -> Iterator[Match]:
    """Somebody says that it holds the lock with a token no newer than one that another has been granted since."""
    newest: dict[str, tuple[int, LockReport]] = {}
    for one in case.all(LockReport):
        if one.state is not LockState.HELD or one.token is None:
            continue
        token, before = newest.get(one.lock, (one.token, one))
        if one.owner != before.owner and one.token <= token:
            values = {"owner": one.owner, "token": one.token, "holder": before.owner, "newest": token}
            scope = Scope.of(ScopeKind.WORKER, one.owner)
            yield Match(Cause.LOCK_HELD, scope, Weight.FAIR, (one.report_id, before.report_id), values)
        if one.token >= token:
            newest[one.lock] = (one.token, one)


def _occupied(case: Case) -> Iterator[Match]:
    for reports in case.computed_once(occupancies).values():
        for one in {report.stage: report for report in reports}.values():
            occupants = one.occupants or ()
            values = {"stage": one.stage, "n": len({o.pid for o in occupants}), "mb": total_mb(occupants)}
            yield Match(None, case.scope_of(one), 0.0, (one.report_id,), values)


def _leak_specified(case: Case) -> Iterator[Match]:
    """Of each GPU the last look after weights_update and the last one before rollout; with one of them no verdict."""
    for reports in case.computed_once(occupancies).values():
        after = [one for one in reports if (one.moment, one.stage) == ("after", "weights_update")]
        before = [one for one in reports if (one.moment, one.stage) == ("before", "rollout")]
        if not after or not before:
            continue
        both = {o.pid for o in after[-1].occupants or ()} & {o.pid for o in before[-1].occupants or ()}
        if both:
            values = {"pids": ", ".join(str(pid) for pid in sorted(both))}
            evidence = (after[-1].report_id, before[-1].report_id)
            yield Match(None, case.scope_of(before[-1]), 0.0, evidence, values)


def _leak_repaired(case: Case) -> Iterator[Match]:
    """Of each GPU and stage the last look; after a stage it is nobody else's turn yet.

    WEAK: where both fit, a process of the other's may stay by design. With an OOM row 46 makes it a proof.
    """
    for reports in case.computed_once(occupancies).values():
        for one in {report.stage: report for report in reports if report.moment != "after"}.values():
            held = memory_held_by_others(case, one, role_of(case, one))
            if held:
                values = {
                    "pids": held.pids,
                    "owners": held.owners,
                    "mb": held.memory_mb,
                    "turn": held.turn,
                    "stage": one.stage,
                }
                yield Match(Cause.GPU_NOT_RELEASED, case.scope_of(one), Weight.WEAK, (one.report_id,), values)


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
        "Holder {holder} of the GPU lock was last heard of {seconds:.0f} s ago: dead, hung or cut off; that is "
        "no proof that it has let go",
        "GPU锁持有者{holder}已{seconds:.0f}秒无消息：崩溃、hang或网络中断，不能证明锁已放弃",
        (LockReport,),
        _silent_holder,
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
