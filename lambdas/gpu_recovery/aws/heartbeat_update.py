"""The UpdateItem of one agent report: what it sets, how a rank is written, and when the report counts.

Reports are counted by token, in the even and the odd windows apart, and each write clears the other's counts: so the
next window begins anew without a read.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.item_codec import encode, from_iso, to_iso
from gpu_recovery.core.heartbeat import BOOT_JITTER, REPORTS_MAX, Heartbeat, RankHeartbeat, past_runs, window_of


class _Update:
    """An UpdateItem under construction: what it sets and removes, and on which conditions."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.sets: list[str] = []
        self.gone: list[str] = []
        self.taken_out: list[str] = []
        self.conditions: list[str] = []

    def name(self, path: str) -> str:
        """The placeholder of an attribute's path, such as `ranks.123`."""
        parts = path.split(".")
        for part in parts:
            self.names[f"#{part}"] = part
        return ".".join(f"#{part}" for part in parts)

    def value(self, value: Any) -> str:
        """The placeholder of a value."""
        self.values[f":v{len(self.values)}"] = encode(value)
        return f":v{len(self.values) - 1}"

    def set(self, path: str, value: Any) -> None:
        self.sets.append(f"{self.name(path)} = {self.value(value)}")

    def request(self) -> dict[str, Any]:
        """The parameters of the call."""
        gone = f" REMOVE {', '.join(self.gone)}" if self.gone else ""
        taken_out = f" DELETE {', '.join(self.taken_out)}" if self.taken_out else ""
        return {
            "UpdateExpression": f"SET {', '.join(self.sets)}{gone}{taken_out}",
            "ConditionExpression": " AND ".join(self.conditions),
            "ExpressionAttributeNames": self.names,
            "ExpressionAttributeValues": typed(self.values),
        }


def report_request(beat: Heartbeat, present: bool, known: Heartbeat | None, by: str) -> dict[str, Any]:
    """The write of a report, on the item as it was found; where it is not `known`, on any that may be there."""
    update, window = _Update(), window_of(beat.seen_at)
    _count(update, window, known, by)
    if beat.boot_id:
        _fence(update, beat, present)
    if present:
        _presence(update, beat)
        _run(update, beat, known)
    return update.request()


def counts_key(window: int) -> str:
    """The attribute that counts the reports of this window, by token."""
    return "heard_odd" if window % 2 else "heard_even"


def _count(update: _Update, window: int, known: Heartbeat | None, by: str) -> None:
    """Not more than REPORTS_MAX in the window. Counts that another window than the last left there say nothing: they
    are found only after a window without a report, and then the second write, which knows, begins anew."""
    counts, number, nobody = update.name(counts_key(window)), update.name("window"), update.value({})
    if known is None or (known.window == window and known.heard):
        own, limit = update.name(f"{counts_key(window)}.{by}"), update.value(REPORTS_MAX)
        open_now = f"{number} = {update.value(window)} AND attribute_exists({counts})"
        open_now += f" AND (attribute_not_exists({own}) OR {own} < {limit})"
        update.conditions += ["attribute_exists(container_inst_id)", f"({counts} = {nobody} OR ({open_now}))"]
        update.sets.append(f"{own} = if_not_exists({own}, {update.value(0)}) + {update.value(1)}")
    else:
        update.conditions.append(f"{number} = {update.value(known.window)}")
        if known.window == window:  # an item of a release that counted otherwise
            update.conditions.append(f"(attribute_not_exists({counts}) OR {counts} = {nobody})")
        update.sets.append(f"{counts} = {update.value({by: 1})}")
    update.set("window", window)
    update.sets.append(f"{update.name(counts_key(window + 1))} = {nobody}")


def _fence(update: _Update, beat: Heartbeat, present: bool) -> None:
    """A report counts unless a newer one of its boot, or one of a newer boot, was heard."""
    boot, sequence = update.name("boot_id"), update.name("sequence")
    same, newer = f"{boot} = {update.value(beat.boot_id)}", f"{sequence} <= {update.value(beat.sequence)}"
    if not present:
        update.conditions += [same, newer]
    elif beat.booted_at is not None:
        booted = update.name("booted_at")
        latest = update.value(beat.booted_at + BOOT_JITTER)
        no_later = f"(attribute_not_exists({booted}) OR {booted} <= {latest})"
        first = f"attribute_not_exists({boot})"
        update.conditions.append(f"({first} OR ({same} AND {newer}) OR (NOT {same} AND {no_later}))")
        update.set("booted_at", beat.booted_at)
    if present:
        update.set("boot_id", beat.boot_id)
    update.set("sequence", beat.sequence)


def _presence(update: _Update, beat: Heartbeat) -> None:
    update.set("seen_at", beat.seen_at)
    update.gone.append(update.name("silent_since"))
    if beat.interval_s:
        update.set("interval_s", beat.interval_s)
    if beat.health is not None:
        update.set("health", beat.health)
        update.set("digest", beat.digest)
    for log, rank in beat.ranks.items():
        update.set(f"ranks.{log}", rank_text(rank))
    if beat.ranks:
        update.values[":logs"] = set(beat.ranks)
        update.taken_out.append("silent_ranks :logs")


def _run(update: _Update, beat: Heartbeat, known: Heartbeat | None) -> None:
    """The agent that is heard is the one before; another one only where the item was read and it may take its place."""
    if not beat.run:
        return
    run = update.name("run")
    if known is None or known.run in ("", beat.run):
        update.conditions.append(f"(attribute_not_exists({run}) OR {run} = {update.value(beat.run)})")
    else:
        update.conditions.append(f"{run} = {update.value(known.run)}")
        update.set("past_runs", past_runs(beat, known))
    update.set("run", beat.run)


def rank_text(rank: RankHeartbeat) -> str:
    """A rank as one text, which begins with the time it was seen: encoding eight maps would take most of the time."""
    epoch = "" if rank.epoch is None else rank.epoch
    return f"{to_iso(rank.seen_at)} {rank.attempt} {rank.rank} {epoch} {rank.job_id}"


def rank_from(text: str) -> RankHeartbeat:
    """The rank that `rank_text` wrote as `text`."""
    seen_at, attempt, rank, epoch, job_id = text.split(" ", 4)
    return RankHeartbeat(job_id, int(attempt), int(rank), from_iso(seen_at), int(epoch) if epoch else None)
