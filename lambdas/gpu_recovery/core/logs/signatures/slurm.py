"""Log signatures of Slurm and of its container plugin pyxis.

Each begins with the program or with a field of its records, so the table precedes those of GPUs and hosts: a host name
such as `gpu-7` is no evidence about a GPU.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_add(
    "Slurm",
    LineKind.HOST_OOM,
    "out of memory|out_of_me|oom failure|memory limit|reason=outofmemory",
    r"\bsrun: error: \S{1,200}: tasks? [\d,\[\]-]{1,200}: out of memory|\bjobid=\S{1,60} oom failure"
    r"|\bjobstate=out_of_memory|\bout_of_me\w{0,4}\+?\s{1,12}\d{1,3}:\d{1,3}\b|\breason=outofmemory|\bslurm\w*: error:"
    r" .{0,80}exceeded (?:job |step )?memory limit",
    LineRole.CONFIRMATION,
)
_add(
    "Slurm",
    LineKind.SCHEDULER_TIME_LIMIT,
    "time limit|jobstate=timeout|exceeded deadline|wall clock limit|timeout  ",
    r"^\s{0,8}\d{1,9}[\w.+-]{0,24}\s.{0,160}\stimeout\s{2,12}\d{1,3}:\d{1,3}\b|\btime limit exhausted for jobid="
    r"|\binactivity time limit reached|\bjobstate=timeout\b|\bjob \d+ has exceeded its time limit"
    r"|\bjobid=\S{1,60} .{0,60}exceeded deadline \S{1,40} and cancelled|\bjob killed due"
    r" (?:to )?hitting max wall clock limit|cancelled at \S{1,40} due to time limit",
)
_add(
    "Slurm",
    LineKind.SCHEDULER_PREEMPT,
    "preempt|job requeue",
    r"\bpreempted\s{1,12}\d{1,3}:\d{1,3}\s{0,4}$|\bpreempted jobid=\S{1,60} (?:has been|had to be) (?:killed|requeued)"
    r"|\bjobstate=preempted\b|cancelled at \S{1,40} due to (?:preemption|job requeue)",
)
for _kind, _states, _role in (
    (LineKind.SCHEDULER_TIME_LIMIT, ("timeout", "deadline"), LineRole.ROOT),
    (LineKind.SCHEDULER_PREEMPT, ("preempted",), LineRole.ROOT),
    (LineKind.HOST_OOM, ("out_of_memory",), LineRole.CONFIRMATION),
    (LineKind.NODE_KERNEL, ("node_fail", "boot_fail"), LineRole.ROOT),
):
    _add(
        "tools around Slurm",
        _kind,
        "|".join(_states),
        rf"\b(?:slurm|sacct|squeue|scontrol|job_?state\b).{{0,160}}(?:[:=]|\bis) ?\[?[\"'](?:{'|'.join(_states)})[\"']"
        rf"|\bslurm \S{{0,12}} ?job_id=\d.{{0,200}}, (?:{'|'.join(_states)})(?:, exitcode|\s{{0,4}}$)",
        _role,
    )
_add(
    "Slurm",
    LineKind.NODE_KERNEL,
    "node failure|failed node|not responding|failure of node|node_fail|nodedown|unexpectedly rebooted",
    r"\bsrun: error: node failure on |\bjob killed due (?:to )?node failure|\bkilling jobid=\S{1,60} on failed node"
    r"|\berror: nodes? \S{1,400} not responding|\breason=(?:node unexpectedly rebooted|not responding)"
    r"|\brequeue job jobid=\S{1,60} due to failure of node|\brequeue jobid=\S{1,60} due to node failure"
    r"|\bjobid=\S{1,60} cancelled by node failure|\bjobstate=node_fail|\breason=nodedown"
    r"|cancelled at \S{1,40} due to node failure",
)
_add(
    "Slurm",
    LineKind.PROCESS_KILLED_UNKNOWN,
    "force terminated",
    r"\bforce terminated (?:stepid=|jobid=|job |step )",
    LineRole.CASCADE,
)
_add(
    "Slurm",
    LineKind.USER_ERROR_CONFIG,
    "invalid|specification|batch script|unable to open file|unrecognized option|dependency|does not look like"
    "|mutually exclusive|not permitted|no partition specified|execve(): ",
    r"\b(?:srun|sbatch|salloc): (?:error|fatal): (?:.{1,80}: )?(?:invalid (?:(?:parent )?account|partition|qos|wckey"
    r"|license|(?:preferred |cluster )?feature|generic resource|gres|trackable|job array|mcs_label|mpi type|node"
    r"|time-min|extra constraints|--?[\w-]{1,40}|numeric value|\w{1,20} count)\b|(?:cpu|node|task"
    r"|tasks) count specification invalid|time limit specification required|batch script (?:contains|is empty)"
    r"|unable to open file|circular job dependency|job dependency problem|this does not look like a batch script"
    r"|\S{1,80}, .{0,80}are mutually exclusive|user's group not permitted|no partition specified)"
    r"|\bslurmstepd: error: execve\(\): |\b(?:srun|sbatch|salloc): unrecognized option",
    stated=True,
)
_add(
    "Slurm",
    LineKind.INSUFFICIENT_RESOURCES,
    "requested|required|memory required|insufficient|fragmented|not available|unable to satisfy|asked for|licenses"
    "|powered up|processors|available|partition in down|violates accounting|start immediately|resource limit",
    r"\b(?:srun|sbatch|salloc|slurmstepd|slurmctld): (?:error|fatal): .{0,100}(?:requested (?:nodes are busy"
    r"|(?:node|topology) configuration is not available|reservation (?:is in use|not usable))|memory required by task"
    r" is not available|insufficient (?:gres|resources) |resources too fragmented|required (?:node|partition) not"
    r" available|required nodes (?:lack|do not fit)|unable to satisfy cpu bind|only allocated \d+ nodes asked for"
    r"|licenses currently unavailable|max powered up nodes|more processors requested than permitted|job cannot start"
    r" immediately|job can not start immediately|no available nodes in topology|partition in down state"
    r"|violates accounting/qos policy|burst buffer resource limit exceeded)",
)
_add(
    "Slurm",
    LineKind.INSUFFICIENT_RESOURCES,
    "down, drained or reserved|reqnodenotavail|(qosgrp|(qosmin|(max",
    r"\((?:qos(?:grp|min)|max)\w{3,40}\)\s{0,4}$|\(nodes required for job are down, drained or reserved"
    r"|\(reqnodenotavail",
    LineRole.WARNING,
)
_add(
    "pyxis",
    LineKind.USER_ERROR_CONFIG,
    "pyxis: ",
    r"\berror: pyxis: (?:--container-[\w-]{1,24}(?::| specified) |both --|mount (?:source|target) must"
    r"|unknown configuration option)",
    stated=True,
)
_add(
    "pyxis",
    LineKind.CONTAINER_IMAGE,
    "pyxis: |spank_pyxis",
    r"\bspank: required plugin spank_pyxis|\berror: pyxis: (?!received sigterm|ignoring |epilog"
    r"|if the image)(?!.{0,200}(?:no space left|not enough space|disk quota|too many open files|cannot allocate"
    r"|stale file|input/output error|nvidia-container-cli))",
)

SIGNATURES = tuple(_ALL.rows)
