"""Log signatures of the platforms that place, start and end tasks.

Sources: AWS, ECS, Docker, Kubernetes, the placement of Ray, Slurm.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add

_WARNING = LineRole.WARNING

_R = LineKind.INSUFFICIENT_RESOURCES
_add(
    "Ray",
    _R,
    "find a node type|waiting for resources|provide a placement group|pending tasks/actors|pending placement groups"
    "|scheduled right now|no_resources|pending the preemption",
    r"could not find a node type to satisfy|queued and waiting for resources|cannot provide a placement group"
    r"|\d\+? pending (?:tasks/actors|placement groups)|cannot be scheduled right now|scheduling_state: no_resources"
    r"|pending the preemption of",
    _WARNING,
)
_add(
    "verl",
    _R,
    "gpus|gpu|insufficient resources",
    r"total available gpus.{0,60}less than total desired|not enough (?:available |free )?gpus"
    r"|insufficient (?:gpus?|nvidia\.com/gpu|resources)|(?:only|just) \d+ (?:\w+ )?gpus? (?:are|is)? ?(?:available"
    r"|visible|found|left)|(?:required|requested|needed|desired) .{0,40}gpus?.{0,60}(?:exceed|than|but|available)"
    r"|gpus? (?:required|requested|needed).{0,60}(?:exceed|but only|available)|(?:more|fewer) gpus than|no (?:free"
    r"|available|idle) gpus?\b|requires? \d+ gpus?,? but|gpus?.{0,40}(?:insufficient|not enough)"
    r"|num_gpus.{0,40}(?:exceed|not available)",
)
_add(
    "EC2",
    _R,
    "capacity|resource_pool_exhausted|enough resources|stockout|overconstrained|allocationfailed|skunotavailable"
    "|acquire resources|resourcesunavailable|no gpu available|exceeding approved|no available node",
    r"insufficient\w*capacity|insufficient (?:reserved )?capacity|no available node, \d+ nodes do not meet"
    r"|do not have sufficient .{0,60}capacity|capacity (?:is )?(?:not available|unavailable|insufficient)"
    r"|no .{0,30}capacity (?:available|in)|capacityerror|capacity-not-available|capacity[- ]oversubscribed"
    r"|out of (?:host )?capacity|resource_pool_exhausted|enough resources available to fulfill|\bstockout\b"
    r"|overconstrained\w*allocation|resourcesunavailableerror|has no gpu available|exceeding approved .{0,60}quota"
    r"|\ballocationfailed\b|\bskunotavailable\b|failed to acquire resources in all",
)
_add(
    "cloud brokers",
    _R,
    "provisioning attempts|enough capacity|launchable resource|no longer any instances|no_capacity"
    "|no resource satisfying|no resources satisfying|any instances satisfying",
    r"all provisioning attempts failed|not having enough capacity|not enough capacity to fulfill"
    r"|failed to provision (?:on )?all (?:possible )?launchable resources|no launchable resource found"
    r"|no longer any instances available|failed_to_start_due_to_no_capacity|\bno resources? satisfying \S"
    r"|\bdoes not contain any instances satisfying",
)
_add(
    "AWS",
    _R,
    "limit|vcpu|quota|spot|instance|account",
    r"vcpulimitexceeded|(?:instance|spotinstancecount|resource|spot\w*)limitexceeded|maxspotinstancecountexceeded"
    r"|more vcpu capacity than your current|(?:service|account|gpu|gpus|instance"
    r"|resource)[- ]?(?:level )?(?:service )?(?:limit|quota).{0,60}(?:exceed|is 0 instances|reached)|quotaexceeded"
    r"|quota '\w+' exceeded|spotmaxpricetoolow|resource_exhausted.{0,30}quota",
)
_add(
    "ECS",
    _R,
    "container instance|container-instance|attribute required|resource:|unable to place|insufficient|disconnected",
    r"unable to place a task|no container instance\w* (?:met|were found)|is missing an attribute required"
    r"|resource:(?:gpu|memory|cpu|ports|eni|fargate)|has insufficient (?:cpu|memory|gpu)"
    r"|agent.{0,12}disconnected.{0,20}place",
)
_add(
    "Kubernetes",
    _R,
    "nodes are available|insufficient|failedscheduling|preemption is not helpful|unschedulable|flavors|outof"
    "|devices unavailable|trigger scale|nottriggerscaleup|pod group|overused|minavailable|amount of resource"
    "|reservation not satisfied",
    r"couldn'{1,2}t assign flavors|insufficient (?:unused )?quota|requested number of devices unavailable"
    r"|\boutof(?:cpu|nvidia\.com/gpu|pods|ephemeral-storage)\b|didn't trigger scale-?up|nottriggerscaleup"
    r"|in cluster is overused|pod group is not ready|insufficient amount of resource"
    r"|requirements? for (?:resource )?reservation not satisfied|\d+/\d+ nodes are available|failedscheduling"
    r"|insufficient (?:nvidia|cpu|memory|amd|aws|vpc|rdma|hugepages|ephemeral)\S{0,30}"
    r"|(?<!marked )(?<!is)(?<!node)unschedulable\b(?!: {1,20}(?:false|true))(?! node plugin)",
)
_add(
    "Ray",
    _R,
    "cannot be|can not be|can't be|scheduled|resource|placement group|node types|insufficient"
    "|exceeds the total number of available|not schedulable",
    r"failed to schedule because there are not enough resources|\b(?:actor|task) is not schedulable:"
    r"|cannot be scheduled|no available node types|(?:insufficient|infeasible) (?:cluster )?(?:resources?|tasks?"
    r"|actors?|requests?)|infeasible resource|placement group.{0,80}(?:infeasible|cannot|timed? ?out|not ready"
    r"|exceed|unable|failed)|could not (?:be )?(?:fulfilled|satisf\w+) .{0,40}resource"
    r"|resource(?:s)? request\w*.{0,60}(?:cannot|can not|can't) be|exceeds the total number of available"
    r"|(?:pending|waiting).{0,40}demands? cannot be|resource allocation failed",
    whole=True,
)
_add(
    "Slurm",
    _R,
    "sbatch|srun|salloc|slurm|node configuration|requested nodes|more processors requested than permitted"
    "|unable to allocate resources|job violates accounting/qos|batch job submission failed|assocgrp|reqnodenotavail"
    "|qosmax",
    r"requested node configuration is not available|requested nodes are busy|unable to allocate resources"
    r"|more processors requested than permitted|\breqnodenotavail\b|job violates accounting/qos"
    r"|\bqosmax\w{3,40}|\bassocgrp\w{3,40}|batch job submission failed(?!: (?:invalid (?:account"
    r"|partition|qos|generic resource)|requested time limit is invalid))",
)
_add(
    "PyTorch",
    _R,
    "devices available|devices are available|available devices|world size|world_size|only|larger",
    r"(?:world[_ ]size|num_?processes|nproc\w*).{0,60}(?:larger|greater|more|exceeds?"
    r"|>) .{0,24}(?:available )?(?:number of )?(?:available )?gpus?|requested \d+ (?:devices|gpus).{0,60}only \d+"
    r"|you requested gpu: \[.{0,60}but your machine only has",
)

_add(
    "Open MPI",
    _R,
    "sufficient slots|enough slots|unsatisfiable request|enough slots/processors",
    r"\bno agent has sufficient slots|\bnot enough slots (?:available )?in the system|\bunsatisfiable request\b|not"
    r" enough slots/processors",
)

_P = LineKind.SCHEDULER_PREEMPT
_add(
    "Kueue",
    _P,
    "preempt",
    r"\bpreempted (?:to accommodate|workload|by )|preempt scheduled:|instances\.preempted|due to preemption"
    r"|evicted due to preempt|preemptionbyscheduler|[\"']?eventtype[\"']?: ?[\"']?preempt|term_preempt"
    r"|state[\"' ]{0,2}[:=][\"' ]{0,2}preempted\b|\w_reason_preemption\b",
)
_add(
    "EC2",
    _P,
    "going to be interrupted|bidevicted|spot_interrupted|imminent|deletionbytaint|nodeshutdown"
    "|about to be preempted|about to be reclaimed|about to be terminated"
    "|requesting instance drain|exit status (50001)",
    r"instance is going to be interrupted|bidevictedevent|spot_interrupted"
    r"|\b(?:termination|preemption|eviction|reclamation|interruption|node shutdown|instance shutdown) is imminent"
    r"|(?<!for )(?<!no )\bimminent (?:(?:node|instance|vm|spot) )?(?:shutdown|termination|preemption|eviction"
    r"|reclamation|interruption)|\b(?:node|instance|vm|machine|worker|pod) (?:\S{1,80} )?is about to be (?:preempted"
    r"|reclaimed|terminated)"
    r"|deletionbytaintmanager|requesting instance drain .{0,200}\bkind=(?:sqs_terminate|spot_itn"
    r"|rebalance_recommendation|asg_lifecycle|scheduled_event)\b|error exit status \(50001\)",
)
_add(
    "Slurm",
    _P,
    "preempt",
    r"due to preempt|\b(?:was|were|been|be|got|is) preempted\b(?!/|, or )|\bpreempted\b(?!/|, or |.{0,12}(?:seq"
    r"|request|sequence|group))(?=.{0,60}(?:job|node|instance|task|pod|by |due|vm|worker|$))|(?:job|node|instance|pod"
    r"|vm|worker|step|task).{0,60}preempt(?:ed(?!/|, or )|ion (?:notice|signal|event))|preemption (?:notice|signal"
    r"|event)|preempting (?:job|pod|the)",
)
_add(
    "EC2",
    _P,
    "spot|instance-action|interruption|rebalance recommendation",
    r"spot ?(?:instance)?.{0,12}interrupt\w+\b(?! handler| monitor)|instance[- ]terminat\w+.{0,30}spot"
    r"|spot instance.{0,60}(?:interrupt|terminat|reclaim)|rebalance recommendation|interruption (?:notice|warning)"
    r"|instance-action.{0,30}(?:terminate|stop|hibernate)|spotinterruption|server\.spotinstance",
)
_add("Slurm", _P, "requeue", r"due to (?:job )?requeue|job (?:has been |was )?requeued|job requeue")
_add(
    "Kubernetes",
    _P,
    "evicted|taintmanagereviction|drain|reclaim",
    r"taintmanagereviction|\bpod .{0,80}(?:was |been )?evicted|evicted.{0,20}\b(?:pod|by)\b|(?:node|instance"
    r"|host).{0,40}(?:being drained|is draining|reclaimed)|job .{0,60}reclaimed",
)

_T = LineKind.SCHEDULER_TIME_LIMIT
_add(
    "schedulers",
    _T,
    "exceeded allowed|execution took longer|longer than|wall clock time|max_duration|maxduration|maxwallclock"
    "|build timed out|build has timed out|due to timeout|timed out after|has timed out|term_deadline|term_cpulimit"
    "|cput |kill_walltime|maxwaittime|its timeout|tasktimeout|activedeadlineseconds"
    "|states.timeout|exceeded|exceeds|job timeout|over the max|type=timeout",
    r"exceeded allowed (?:execute|job) duration|\bexecution took longer than \d|exceeded allowed_\w{3,8}_duration"
    r"|\b(?:ran|runs|running|run|executed|executing|active|took|alive) (?:for )?longer than (?:the |its |their )?"
    r"(?:maximum|max|allowed|configured|specified|permitted|allotted)\b|\bexceeded (?:its|the) (?:maximum|max)"
    r" wall[- ]?clock time|\bmax_?(?:duration|wall_?clock_?time|wait_?time|runtime)_?exceeded"
    r"|\bbuild (?:has )?timed out\b|\b(?:cancell?ing|aborting|terminating|stopping) .{0,40}\bdue to timeout"
    r"|\b(?:job|action|step|stage|workflow|notebook|build) \S{0,80} ?(?:has )?timed out after \d{1,6} (?:minutes"
    r"|hours)\b"
    r"|\bterm_(?:deadline|cpulimit)\b|\bjob killed: cput \d|\bkill_walltime\b"
    r"|\b(?:flow|task|pipeline|workflow|job) run exceeded (?:its )?timeout of|\b\w{0,20}tasktimeout: "
    r"|\b(?:task|job|function|input) hit its timeout of \d|\bactivedeadlineseconds exceeded|\bstates\.timeout\b"
    r"|\b(?:job|custom ?job|trial|pipeline|workflow|pod|notebook|run|step)\b.{0,80}\bexceed(?:ed|s) (?:its "
    r"|the |their )?(?:max(?:imum)? |configured |specified |allowed |total )?(?:job |run |task |execution )?(?:timeout"
    r"|timeout_seconds|duration|run ?time|execution time|activedeadlineseconds)(?: limit)?(?: of| \(|:|,|\.?\s{0,4}$)"
    r"|\bdue to (?:the |a )?job timeout|\bruns? over the max(?:imum)? (?:run ?time|duration)"
    r"|\bexception type=timeout\b",
)
_add(
    "Slurm",
    _T,
    "time limit|timelimit|walltime|wall time|wall-time|wall-clock|wallclock|reach|clock limit|allocation expired",
    r"due to (?:time|wall ?clock) ?limit|resource allocation expired|(?:time ?limit(?! is invalid| to be reached)"
    r"|wall[- ]?(?:clock )?(?:time)?(?: limit)?)\s.{0,30}(?:reach|exceed|expire|exhaust)|(?:reach|exceed|exhaust|hit"
    r"|past|kill|cancel|terminat)\w*.{0,60}(?:job time limit|time ?limit|wall[- ]?(?:clock|time))"
    r"|walltime.{0,40}exceeded",
)
_add(
    "schedulers",
    _T,
    "deadlineexceeded|runlimit|maxruntime|max run|max wall|maximum wall|maximum run|max_runtime|active longer"
    "|job timeout|execution timed out|job attempt duration|execution|duration|not requeued"
    "|exceeded the maximum run|allowed",
    r"(?<!code = )deadlineexceeded\b(?=.{0,80}(?:job|active|deadline))|was active longer than|term_runlimit"
    r"|max_?runtime.{0,24}(?:exceed|reach)|(?:exceed|reach)\w* .{0,24}max_?runtime|max(?:imum)? (?:run ?time|duration"
    r"|execution time).{0,40}(?:exceed|reach)|(?:exceed|reach)\w* .{0,30}max(?:imum)? (?:allowed )?(?:run ?time"
    r"|duration|execution time|wall ?time)|job attempt duration exceeded|not requeued.{0,40}timed[- ]out"
    r"|exceeded the maximum (?:execution|run)",
)

_K = LineKind.PROCESS_KILLED_UNKNOWN
_add("systemd", _K, "failed with result", r"\bfailed with result 'signal'", LineRole.CASCADE)
_add("Slurm", _K, "cancelled at", r"\*\*\* (?:job|step) .{0,80}cancelled at", LineRole.CASCADE)
_add(
    "ECS",
    _K,
    "essential container|scaling activity|task stopped|host ec2|taskfailedtostart",
    r"essential container in task exited|host ec2.{0,40}(?:terminated|stopped)|task stopped (?:by|at):?",
    LineRole.CASCADE,
)

SIGNATURES = tuple(_ALL.rows)
