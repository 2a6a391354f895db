"""From views to text: pure functions, no terminal and no clock. A width of None, as for a pipe, folds nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpu_recovery.core.identifiers import attempt_id
from gpu_recovery.core.job.record import TERMINAL, JobStatus
from gpu_recovery_client.render.table import cleaned, line, printable, table

View = Mapping[str, Any]
WAITS_FOR: Mapping[str, str] = {
    JobStatus.QUEUED: "its turn",
    JobStatus.PENDING_RESOURCES: "GPUs to become free",
    JobStatus.SUBMITTING: "every rank to be launched",
    JobStatus.SUBMITTED: "every rank to run",
    JobStatus.RUNNING: "the ranks to end",
    JobStatus.LOST: "a heartbeat, an end, or what ECS and EC2 make of the silence",
    JobStatus.SUSPENDING: "rank 0 to save its state and leave, or its grace to end",
    JobStatus.SUSPENDED: "its turn again, where it stood in line, or a person who resumes it",
    JobStatus.STOPPING: "the confirmed end of every rank",
    JobStatus.DIAGNOSING: "the health check of every instance",
    JobStatus.RECOVERING: "healthy instances to relaunch on",
}


def job_line(job: View) -> str:
    """One line: id, status and why."""
    return line(job["job_id"], job["status"], job.get("reason") or "")


def job_list(page: View, now: datetime, width: int | None = None) -> str:
    """A page of jobs as a table, and how to get the next page."""
    rows = [
        (
            job["job_id"],
            job["status"],
            since(job.get("status_at"), now),
            attempts(job),
            size(job),
            job.get("user") or "-",
            str(job.get("priority") or "-"),
            job.get("reason") or "",
        )
        for job in page["jobs"]
    ]
    if not rows:
        text = "no jobs\n"
    else:
        text = table(("JOB", "STATUS", "SINCE", "ATTEMPT", "SIZE", "USER", "PRIORITY", "REASON"), rows, width)
    more = page.get("next_cursor")
    return text + (f"more: add --cursor {cleaned(str(more))}, or --all\n" if more else "")


def job_details(job: View, now: datetime, width: int | None = None) -> str:
    """One job as a block of `name  value` lines, then its attempts where the view has them; without its history."""
    failure = failure_sentence(job)
    rows = [
        ("job", job["job_id"]),
        ("status", standing(job, now)),
        ("reason", job.get("reason")),
        ("waits for", waiting(job, now)),
        ("attempt", attempts(job, words=True)),
        ("workload", job.get("workload")),
        ("user", job.get("user")),
        ("priority", _priority(job)),
        ("group", job.get("group")),
        ("suspended for", job.get("suspended_for")),
        ("size", size(job, words=True)),
        ("task definition", job.get("task_definition")),
        ("origin", job.get("origin")),
        ("queued", clock(job.get("queued_at"))),
        ("instances", ", ".join(job.get("instances") or ())),
        ("repairing", ", ".join(job.get("repairing") or ())),
        ("last failure", failure),
        ("incident", job.get("incident_id")),
    ]
    text = table(None, [(name, str(value)) for name, value in rows if value], width)
    tried = [_attempt(one) for one in job.get("attempts") or ()]
    return text + (
        "\n" + table(("ATTEMPT", "STATUS", "BEGAN", "LASTED", "EXIT", "FAILURE"), tried, width) if tried else ""
    )


def _priority(job: View) -> str:
    """The priority that counts, and the one asked for where it has fallen back from that."""
    counts, asked = str(job.get("priority") or ""), job.get("asked_priority")
    return f"{counts} (asked for {asked})" if asked and counts and asked != counts else counts


def _attempt(one: View) -> tuple[str, ...]:
    began, ended = one.get("started_at"), one.get("ended_at")
    lasted = duration((moment(ended) - moment(began)).total_seconds()) if began and ended else "-"
    words = [one.get("failure_kind"), one.get("message"), "not counted" if one.get("counted") is False else ""]
    exit_code = count(one.get("exit_code"))
    why = ": ".join(str(word) for word in words if word)
    return str(one["attempt"]), str(one.get("status") or "-"), clock(began), lasted, exit_code, why


def instance_list(instances: Iterable[View], width: int | None = None) -> str:
    """Instances as a table."""
    rows = [
        (
            view["instance_id"],
            view["status"],
            count(view.get("gpus")),
            agent(view),
            claims(view) or "-",
            view.get("reserved_for") or "-",
            view.get("reason") or "",
        )
        for view in instances
    ]
    if not rows:
        return "no instances\n"
    return table(("INSTANCE", "STATUS", "GPUS", "AGENT", "CLAIMED BY", "RESERVED FOR", "REASON"), rows, width)


def instance_details(view: View, now: datetime, width: int | None = None) -> str:
    """One instance as a block of `name  value` lines, then its history."""
    rows = [
        ("instance", view["instance_id"]),
        ("status", standing(view, now)),
        ("reason", view.get("reason")),
        ("waits until", until(view.get("deadline_at"), now)),
        ("gpus", count(view.get("gpus"))),
        ("agent", agent(view)),
        ("heartbeat", heartbeat(view, now)),
        *(("health", sentence) for sentence in health(view)),
        ("leaves", interruption(view, now)),
        ("needs", needs(view)),
        ("held back", held_back(view, now)),
        ("lemon score", lemon(view)),
        ("drained", "by gpu-recovery" if view.get("drained") else ""),
        ("incident", view.get("incident_id")),
        ("claimed by", claims(view)),
        ("reserved for", view.get("reserved_for")),
        ("boot", f"{view['boot_id']} since {clock(view.get('booted_at'))}" if view.get("boot_id") else ""),
        ("epoch", count(view.get("epoch"))),
        ("container instance", view.get("container_instance_id")),
    ]
    text = table(None, [(name, str(value)) for name, value in rows if value], width)
    history = [(clock(e["at"]), moved(e), e["event"], e.get("reason") or "") for e in view.get("history") or ()]
    return text + ("\n" + table(("TIME", "STATUS", "EVENT", "REASON"), history, width) if history else "")


def heartbeat(view: View, now: datetime) -> str:
    """When the instance was last heard of, and the ranks it spoke of; "" for one that has never been."""
    beat = view.get("heartbeat")
    if not beat:
        return ""
    ranks = ", ".join(f"rank {one['rank']} of {one['job_id']} (attempt {one['attempt']})" for one in beat["ranks"])
    told = f"{beat['liveness']}, {since(beat['seen_at'], now)} ago"
    return f"{told}: {ranks}" if ranks else told


def mailbox(mails: Iterable[Mapping[str, str]]) -> str:
    """Every mail, oldest first, as its reader sees it."""
    shown = [f"{clock(one['at'])}  {cleaned(one['subject'])}\n\n{printable(one['body'])}" for one in mails]
    return "\n".join(shown) if shown else "no mail\n"


def sandbox_status(view: View) -> str:
    """Whether the sandbox runs, where, and which of its servers do; never its tokens."""
    servers = [(name, "runs" if alive else "has ended") for name, alive in view["servers"].items()]
    if not view["running"]:
        return "not running\n" + (table(None, servers, None) if servers else "")
    reach = [(name, str(view["sandbox"][name])) for name in ("api_url", "endpoint_url", "ecs_endpoint_url", "cluster")]
    return table(None, [("sandbox", "running"), *reach, *servers], None)


# -- pieces ------------------------------------------------------------------------------------------------------------


def moment(value: str) -> datetime:
    """The time of an ISO-8601 text of the API."""
    return datetime.fromisoformat(value)


def clock(value: str | None) -> str:
    """An ISO-8601 time of the API to the second, in UTC as the API states it; "-" for none."""
    return f"{moment(value):%Y-%m-%d %H:%M:%S}Z" if value else "-"


def since(value: str | None, now: datetime) -> str:
    """How long ago the API's time `value` was; "-" for none."""
    return duration((now - moment(value)).total_seconds()) if value else "-"


def duration(seconds: float) -> str:
    """Seconds in the two largest units that say something: 42s, 3m05s, 2h05m, 3d04h. Never negative."""
    whole = max(0, int(seconds))
    for unit, name, smaller, below in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= unit:
            return f"{whole // unit}{name}{whole % unit // smaller:02d}{below}"
    return f"{whole}s"


def waiting(job: View, now: datetime) -> str:
    """What the job waits for now, from when on it may go on, and until when it may."""
    if job["status"] in TERMINAL:
        return "nothing: the job has ended"
    what = WAITS_FOR.get(job["status"], f"the end of {job['status']}")
    again = job.get("next_run_at")
    if again and moment(again) > now:
        what = f"{what}, not before {until(again, now)}"
    deadline = job.get("deadline_at")
    if not deadline:
        return f"{what}, without a deadline"
    return f"{what}, until {until(deadline, now)}"


def until(deadline: str | None, now: datetime) -> str:
    """A deadline and how far away it is, on either side; "" for none."""
    if not deadline:
        return ""
    left = (moment(deadline) - now).total_seconds()
    return f"{clock(deadline)} ({f'in {duration(left)}' if left >= 0 else f'due {duration(-left)} ago'})"


def standing(view: View, now: datetime) -> str:
    """The status of a job or an instance and since when it has it."""
    return f"{view['status']} since {clock(view.get('status_at'))} ({since(view.get('status_at'), now)})"


def attempts(job: View, *, words: bool = False) -> str:
    """`2/3`: the attempt's number and how many counted attempts there may be; in words, how many were counted."""
    attempt, most = job.get("attempt") or 0, job.get("attempts_max")
    if not words:
        return f"{attempt}/{most}" if most else str(attempt)
    counted = f"{job.get('attempts_counted') or 0} of {most} counted" if most else ""
    return f"{attempt} ({counted})" if counted else str(attempt)


def size(job: View, *, words: bool = False) -> str:
    """`2x8`: instances times GPUs of each."""
    nodes, gpus = job.get("nnodes"), job.get("n_gpus_per_node")
    if nodes is None or gpus is None:
        return "-"
    return f"{nodes} instance(s) with {gpus} GPU(s) each" if words else f"{nodes}x{gpus}"


def moved(entry: View) -> str:
    """`RUNNING -> STOPPING`, or one status where an entry begins a record or leaves it where it was."""
    before, after = entry.get("from") or "", entry["to"]
    return after if before in ("", after) else f"{before} -> {after}"


def failure_sentence(job: View) -> str:
    """The failure that stopped the last attempt, as one sentence; "" when there was none."""
    failure = job.get("failure")
    if not failure:
        return ""
    return f"rank {failure['rank']} on {failure['instance_id']} {failure['sentence']}"


def claims(view: View) -> str:
    """The attempts that own GPUs of the instance."""
    return ", ".join(attempt_id(job, attempt) for job, attempt in (view.get("claims") or {}).items())


def agent(view: View) -> str:
    """The word for the ECS agent's connection."""
    connected = view.get("agent_connected")
    return "-" if connected is None else "connected" if connected else "disconnected"


def health(view: View) -> list[str]:
    """What each watcher last said of the instance."""
    return [
        f"{kind} is {one['status']} since {clock(one['since'])}" + (f": {one['sentence']}" if one["sentence"] else "")
        for kind, one in (view.get("health") or {}).items()
    ]


def interruption(view: View, now: datetime) -> str:
    """When the instance will be taken away, and why; "" if nothing says so."""
    departure = view.get("departure")
    if not departure:
        return ""
    return f"{until(departure['leaves_at'], now)}: {departure['kind']}, {departure['sentence']}"


def lemon(view: View) -> str:
    """How much speaks against the instance, and what; "" if nothing does, or nobody says."""
    told = view.get("lemon") or {}
    return f"{told['score']} %: {told['made_of']}" if told.get("made_of") else ""


def needs(view: View) -> str:
    """The repair that the instance needs, and on what evidence; "" for none."""
    need = view.get("need")
    return f"{need['rung']}: {need['evidence']}" if need else ""


def held_back(view: View, now: datetime) -> str:
    """Why that repair may not begin yet; "" if it may."""
    held = view.get("held")
    return f"since {clock(held['since'])} ({since(held['since'], now)}): {held['because']}" if held else ""


def count(value: Any) -> str:
    """A number that may be missing."""
    return "-" if value is None else str(value)
