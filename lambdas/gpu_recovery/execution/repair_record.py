"""Tells a machine who ordered its repair, after the repair was ordered: the order to its agent, and the instance tag.

Nothing here may delay or prevent a repair. So it runs after the call that orders the repair, each part is tried once,
and a failure is a part of the result, which the history of the instance shows.
"""

from __future__ import annotations

from gpu_recovery.core import events
from gpu_recovery.core.heartbeat import AgentCommand, AgentCommandKind
from gpu_recovery.core.instance.record import Instance
from gpu_recovery.core.instance.repair_record import WRITTEN
from gpu_recovery.core.repair_record import ORDER_ID, TAG_KEY, repair_line, tag_value
from gpu_recovery.execution.context import DONE, CommandResult, ExecutionContext, FollowUp

REASON_MAX = 160
"""Characters of the reason why no tag was written."""


def announce(context: ExecutionContext, instance: Instance, epoch: int, action: str) -> CommandResult:
    """Tell the machine who ordered the repair and why. Return the result of the command that ordered the repair.

    Args:
        context: the context.
        instance: the instance.
        epoch: its epoch since the decision.
        action: what was ordered, such as "reboot".
    """
    if not (context.policy.record_repairs or context.policy.tag_repairs):
        return DONE
    evidence = instance.need.evidence if instance.need is not None else ""
    incident = _incident(context, instance)
    line = repair_line(instance.instance_id, action, epoch, incident, evidence, instance.reason, context.now)
    asked, error = (
        _ask_agent(context, instance.instance_id, epoch, line) if context.policy.record_repairs else (False, "")
    )
    tag = _tag(context, instance.instance_id, line) if context.policy.tag_repairs else ""
    event = events.RepairAnnounced(at=context.now, epoch=epoch, line=line, asked=asked, tag=tag, error=error)
    return CommandResult((FollowUp(instance.instance_id, event),))


def _incident(context: ExecutionContext, instance: Instance) -> str:
    """Return the incident that operators know: that of the instance, or of the job that waits for the repair."""
    need = instance.need
    job_id = "" if need is None else need.job_id or (need.ends.job_id if need.ends is not None else "")
    if instance.incident_id or not job_id:
        return instance.incident_id
    try:
        job = context.store.load_job(job_id)
    except Exception:  # noqa: BLE001 - the repair was ordered and goes on; the line then names the job alone
        return f"of job {job_id}"
    return (job.incident_id if job is not None else "") or f"of job {job_id}"


def _ask_agent(context: ExecutionContext, instance_id: str, epoch: int, line: str) -> tuple[bool, str]:
    """Have the agent write the line. Return whether an agent was asked, and why the order could not be saved."""
    order = AgentCommand(ORDER_ID, AgentCommandKind.RECORD, "", epoch, 0, text=line)
    try:
        return context.store.add_agent_command(instance_id, order), ""
    except Exception as error:  # noqa: BLE001 - the repair was ordered and goes on; the result says why
        return False, f"{type(error).__name__}: {error}"[:REASON_MAX]


def _tag(context: ExecutionContext, instance_id: str, line: str) -> str:
    """Write the instance tag. Return "written", or why it was not."""
    try:
        refusal = context.actions.tag(instance_id, TAG_KEY, tag_value(line))
    except Exception as error:  # noqa: BLE001 - the repair was ordered and goes on; the result says why
        return f"{type(error).__name__}: {error}"[:REASON_MAX]
    return WRITTEN if refusal is None else refusal.reason[:REASON_MAX]
