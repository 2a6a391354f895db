"""Log signatures of the kernel and the machine: lock-ups, panics, memory and PCIe errors, lost nodes."""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_WARNING = LineRole.WARNING

_K = LineKind.NODE_KERNEL
_add(
    "kernel",
    _K,
    "error records from previous boot|blocked in i/o wait|refcount_t: |link has been reset|giving up|amd-vi: "
    "|caught <|freezing execution|ierr",
    r"\bbert: error records from previous boot|blocked in i/o wait for more than|\brefcount_t: (?:underflow|addition"
    r"|saturated)|\baer: .{0,24}link has been reset|\bnot ready \d+ms after .{1,24}; giving up"
    r"|\bamd-vi: completion-wait loop timed out|\bsystemd\[1\]: (?:caught <\w{2,8}>|freezing execution)|\| ierr \|",
)
_add("IOMMU", _K, "fault addr|io_page_fault", r"dmar: .{0,60}fault addr|event logged \[io_page_fault", _WARNING)
_add("kernel", _K, "general protection fault, probably", r"general protection fault, probably", whole=True)
_add(
    "kernel",
    _K,
    "invalid context, skipping",
    r"detected invalid context, skipping",
    _WARNING,
)
_add(
    "kernel",
    _K,
    "lockup|blocked for more than|blocked on a|hung_task|stall|starved",
    r"(?:soft|hard) lockup|task \S{1,80} blocked for more than|hung_task|rcu.{0,40}(?:stall|starved)"
    r"|blocked for more than \d+ seconds|\btask \S{1,80} blocked on an? (?:semaphore|mutex|rw-?sem\w*)\b",
)
_add(
    "kernel",
    _K,
    "panic|kernel bug|bug:|oops|null pointer|paging request|protection fault|divide error|unable to handle",
    r"kernel panic|kernel bug at|\bbug: (?!.{0,20}report)(?:unable|kernel|scheduling|bad|workqueue|sleeping|kasan"
    r"|soft|hard)|\boops: |kernel null pointer|unable to handle (?:kernel )?(?:page fault|paging|null)"
    r"|divide error: 0000|general protection fault(?:,|: 0000| in kernel|.{0,30}\[#\d)",
)
_add(
    "kernel",
    _K,
    "hardware error|machine check|mce:|edac|memory read error|memory scrubbing|aer|pcie|pcieport|nmi|pciehp|dpc:"
    "|ue memory write error|memory failure",
    r"\[hardware error\]|machine check|\bmce: .{0,60}(?:error|exception|bank \d)|\bedac\b.{0,80}(?:ue|error)"
    r"|ue memory (?:read|scrubbing|write) error|\baer: .{0,60}(?:error|fatal|uncorrect|fail)|pcie (?:bus )?error"
    r"|pcie.{0,24}(?:link down|fatal error|uncorrectable)|dpc: containment event|memory failure: 0x"
    r"|pciehp: slot.{0,24}(?:link down|card not present|power fault)|\bnmi: .{0,40}(?:error|unknown|iock|pci)"
    r"|uhhuh\. nmi received|\bpcieport\b.{0,80}(?:error|fail|link down)",
)
_add(
    "kernel",
    _K,
    "warning: cpu: |unregister_netdevice|watchdog|netdev|bmc|ipmi|taint|rip: 0010|end kernel panic|list_del|list_add",
    r"\bwarning: cpu: \d+ pid: \d+ at |unregister_netdevice: waiting|netdev watchdog|\brip: 0010:|end kernel panic"
    r"|\blist_(?:del|add) corruption|comm: .{0,40} (?:not )?tainted|netdev watchdog|watchdog: (?:bug|watchdog detected"
    r"|cpu)|(?:bmc|ipmi).{0,40}(?:fail|error|critical)|watchdog did not stop",
)
_add(
    "Slurm",
    _K,
    "node fail|node_fail|not responding|not respond|ready|kubelet stopped posting",
    r"(?<!ing the )\bnode[ _]fail(?:ure|ed)?\b|(?:slurmctld|slurmd|srun|kubelet).{0,80}node\w* .{0,40}not respond"
    r"|kubelet stopped posting|nodenotready|node is not ready",
)

SIGNATURES = tuple(_ALL.rows)
