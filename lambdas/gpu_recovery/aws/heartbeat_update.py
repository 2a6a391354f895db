"""Builder of the UpdateItem request of one agent report: changes, conditions and rate limit.

Reports are counted by token for the rate limit. Even and odd windows count in separate attributes, and each write
clears the counts of the other attribute. So the count of the next window starts at zero without a read.
"""

from __future__ import annotations

from typing import Any

from gpu_recovery.aws.dynamodb import typed
from gpu_recovery.aws.item_codec import encode, from_iso, to_iso
from gpu_recovery.core.heartbeat import BOOT_JITTER, REPORTS_MAX, Heartbeat, RankHeartbeat, past_runs, window_of


class _Update:
    """An UpdateItem request under construction: its changes, conditions and placeholders."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Any] = {}
        self.sets: list[str] = []
        self.removed: list[str] = []
        self.deleted: list[str] = []
        self.conditions: list[str] = []

    def name(self, path: str) -> str:
        """Return the placeholder of an attribute's path, such as `ranks.123`."""
        parts = path.split(".")
        for part in parts:
            self.names[f"#{part}"] = part
        return ".".join(f"#{part}" for part in parts)

    def value(self, value: Any) -> str:
        """Return the placeholder of a value."""
        self.values[f":v{len(self.values)}"] = encode(value)
        return f":v{len(self.values) - 1}"

    def set(self, path: str, value: Any) -> None:
        """Add a change that sets the attribute to the value."""
        self.sets.append(f"{self.name(path)} = {self.value(value)}")

    def request(self) -> dict[str, Any]:
        """Return the parameters of the call."""
        removed = f" REMOVE {', '.join(self.removed)}" if self.removed else ""
        deleted = f" DELETE {', '.join(self.deleted)}" if self.deleted else ""
        return {
            "UpdateExpression": f"SET {', '.join(self.sets)}{removed}{deleted}",
            "ConditionExpression": " AND ".join(self.conditions),
            "ExpressionAttributeNames": self.names,
            "ExpressionAttributeValues": typed(self.values),
        }


def report_request(beat: Heartbeat, present: bool, known: Heartbeat | None, by: str) -> dict[str, Any]:
    """Build the write of a report.

    Args:
        beat: the heartbeat made of the report.
        present: False for a late report, which changes only the sequence of its boot and the count.
        known: the stored heartbeat if it was read, else None. A write that starts a new count, or that replaces the
            agent, needs it. Such a write fails if the stored window or run has changed since.
        by: the id of the token that the report came with, or BY_ROLE.
    """
    update, window = _Update(), window_of(beat.seen_at)
    _count(update, window, known, by)
    if beat.boot_id:
        _fence(update, beat, present)
    if present:
        _set_presence(update, beat)
        _set_run(update, beat, known)
    return update.request()


def counts_key(window: int) -> str:
    """Return the attribute that counts the reports of this window by token."""
    return "heard_odd" if window % 2 else "heard_even"


def _count(update: _Update, window: int, known: Heartbeat | None, by: str) -> None:
    """Count the report, and allow at most REPORTS_MAX reports of one token in a window.

    After a window without a report, the attribute still holds the counts of an older window. The first write then
    fails. The second write knows the stored window and starts the count at 1.
    """
    counts, number, empty = update.name(counts_key(window)), update.name("window"), update.value({})
    if known is None or (known.window == window and known.heard):
        own, limit = update.name(f"{counts_key(window)}.{by}"), update.value(REPORTS_MAX)
        below_limit = f"{number} = {update.value(window)} AND attribute_exists({counts})"
        below_limit += f" AND (attribute_not_exists({own}) OR {own} < {limit})"
        update.conditions += ["attribute_exists(container_inst_id)", f"({counts} = {empty} OR ({below_limit}))"]
        update.sets.append(f"{own} = if_not_exists({own}, {update.value(0)}) + {update.value(1)}")
    else:
        update.conditions.append(f"{number} = {update.value(known.window)}")
        if known.window == window:  # an item of an older release that counted in another attribute
            update.conditions.append(f"(attribute_not_exists({counts}) OR {counts} = {empty})")
        update.sets.append(f"{counts} = {update.value({by: 1})}")
    update.set("window", window)
    update.sets.append(f"{update.name(counts_key(window + 1))} = {empty}")


def _fence(update: _Update, beat: Heartbeat, present: bool) -> None:
    """Refuse the write if a newer report of the same boot, or a report of a later boot, was received."""
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


def _set_presence(update: _Update, beat: Heartbeat) -> None:
    """Record that the instance and the reported ranks were seen."""
    update.set("seen_at", beat.seen_at)
    update.removed.append(update.name("silent_since"))
    if beat.interval_s:
        update.set("interval_s", beat.interval_s)
    if beat.health is not None:
        update.set("health", beat.health)
        update.set("digest", beat.digest)
        update.set("sentence", beat.sentence)
        if beat.utilisation:
            update.set("utilisation", beat.utilisation)
        else:  # the utilisation of an earlier report would be shown as the present utilisation
            update.removed.append(update.name("utilisation"))
        if beat.idle_since is not None:
            idle = update.name("idle_since")
            update.sets.append(f"{idle} = if_not_exists({idle}, {update.value(beat.idle_since)})")
        else:
            update.removed.append(update.name("idle_since"))
    settings = (("resets", beat.resets), ("reads_events", beat.reads_events))
    for name, value in (("holds", beat.holds), *settings, ("activity", dict(beat.activity))):
        if value:
            update.set(name, value)
        else:
            update.removed.append(update.name(name))
    for log, rank in beat.ranks.items():
        update.set(f"ranks.{log}", rank_text(rank))
    if beat.ranks:
        update.values[":logs"] = set(beat.ranks)
        update.deleted.append("silent_ranks :logs")


def _set_run(update: _Update, beat: Heartbeat, known: Heartbeat | None) -> None:
    """Record the run of the agent. Another agent replaces the stored agent only if the item was read before."""
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
    """Encode a rank as one text that begins with the time at which it was seen.

    A map for each of eight ranks would take most of the time of the call to encode.
    """
    epoch = "" if rank.epoch is None else rank.epoch
    return f"{to_iso(rank.seen_at)} {rank.attempt} {rank.rank} {epoch} {rank.job_id}"


def rank_from(text: str) -> RankHeartbeat:
    """Return the rank that `rank_text` encoded as `text`."""
    seen_at, attempt, rank, epoch, job_id = text.split(" ", 4)
    return RankHeartbeat(job_id, int(attempt), int(rank), from_iso(seen_at), int(epoch) if epoch else None)
