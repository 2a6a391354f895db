"""Log signatures of NVIDIA's driver and its tools, by the program that prints a line.

Sources: the kernel module (NVRM, by the function or the status that it names), NVML and its bindings, DCGM, the fabric
manager, IMEX, the container toolkit, and NCCL's calls of the driver.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_WARNING = LineRole.WARNING
_LOST = LineKind.HARDWARE_GPU_LOST
_ECC = LineKind.HARDWARE_GPU_ECC
_NVLINK = LineKind.HARDWARE_NVLINK
_THERMAL = LineKind.HARDWARE_THERMAL
_RESET = LineKind.HARDWARE_GPU_RESET
_ENVIRONMENT = LineKind.DRIVER_ENVIRONMENT

# -- the kernel module -------------------------------------------------------------------------------------------------

_add(
    "driver",
    _LOST,
    "rminitadapter|cannot initialize the device|back on the bus|device inaccessible|present on the bus"
    "|inaccessible after assert",
    r"nvrm: .{0,80}(?:bailing out of rminitadapter|\*\*\* cannot initialize the device|gpu not back on the bus"
    r"|check whether gpu is present on the bus|\binaccessible after assert)"
    r"|\bnvidia [\da-f:.]{7,16}: .{0,80}\bdevice inaccessible",
)
_add(
    "driver",
    _LOST,
    "crash dump has been created",
    r"nvrm: a gpu crash dump has been created",
    LineRole.CONFIRMATION,
)
_add(
    "driver",
    _ENVIRONMENT,
    "version mismatch: got|devices were initiali|adapters were initiali|an irq for your nvidia"
    "|conflicting kernel module|obtained ownership|a driver such as|request_mem_region failed|re-allocate bar1"
    "|bar0 is 0m|bar1 is 0m|this kernel module|not supported by|gpu system processor|initialize imex"
    "|no nvidia devices|robust channel recovery|[nv_err_fabric_manager",
    r"nvrm: .{0,120}(?:version mismatch: got version|none of the nvidia (?:devices|graphics adapters) were initiali"
    r"|can't find an irq for your nvidia|unloading the conflicting kernel module|obtained ownership of the nvidia"
    r"|this can occur when a driver such as|request_mem_region failed|failed to re-allocate bar1|\bbar[01] is 0m"
    r"|this kernel module has (?:nvrm: )?the version|not supported by (?:nvrm: )?(?:open nvidia\.ko|the nvidia)"
    r"|required gpu system processor|failed to initialize imex channels|no nvidia devices probed"
    r"|daemon shutdown detected, robust channel recovery|\[nv_err_fabric_manager_not_present)",
    whole=True,
)
_add(
    "driver",
    _RESET,
    "nvrm: ",
    r"nvrm: (?:gpu\d{1,3} )?(?!.{0,200}(?:skipping|\bbios|vbios|\bunload))"
    r"\S{0,12}(?:kgsp|kfsp|gspmsgqueue|issuerpc|executebooter|prepareforfwsec|kflcn)\S{0,60} "
    r".{0,160}(?:timed ?out|timeout waiting|failed to (?:execute|boot|prepare|wait)|cannot proceed|non-zero error"
    r"|initialization failed|failed with status|crashcat report|in a bad state)",
    whole=True,
)
_add(
    "driver",
    _RESET,
    "timed out waiting|timedout waiting|fatal gsp-fmc|irqstat_fatal_error",
    r"nvrm: (?:gpu\d{1,3} )?(?!\S{0,60}disp)\S{1,80} .{0,80}(?:timed ?out waiting|fatal gsp-fmc error"
    r"|irqstat_fatal_error)",
    whole=True,
)
_add(
    "driver",
    _RESET,
    "[nv_err_",
    r"nvrm: .{0,80}(?:assertion|check) failed: .{0,80}\[nv_err_(?:timeout|gpu_in_fullchip_reset|reset_required)\]",
)
_add(
    "driver",
    _ECC,
    "[nv_err_ecc|ecc_status_uncorrected",
    r"nvrm: .{0,80}(?:assertion|check) failed: .{0,80}\[nv_err_ecc_error\]|nvrm: .{0,80}ecc_status_uncorrected_err",
)
_add(
    "driver",
    LineKind.CUDA_OOM,
    "[nv_err_no_memory",
    r"nvrm: .{0,80}(?:assertion|check) failed: .{0,80}\[nv_err_no_memory\]",
    _WARNING,
)
_add(
    "driver",
    _NVLINK,
    "marked degraded|links on gpu|[nv_err_nvlink_",
    r"nvrm: .{0,60}(?:gpu\d{1,3} marked degraded|failed to reset links on gpu)"
    r"|\[nv_err_nvlink_(?:\w{4,16}_error|fabric_failure)\]",
)
_add(
    "driver",
    _ENVIRONMENT,
    "nvrm: ",
    r"nvrm: .{0,120}(?:insufficient|not enough|cannot allocate|alloc\w{0,40} failed|failed to alloc)",
    _WARNING,
)
_add(
    "kernel",
    _ENVIRONMENT,
    "could not insert|unknown symbol|key was rejected|probe of",
    r"could not insert (?:module )?'?\S{0,120}nvidia|\bnvidia(?:_\w{2,12})?: unknown symbol"
    r"|\bnvidia: probe of \S{7,16} failed",
)
_add("kernel", _THERMAL, "critical temperature reached", r"\bcritical temperature reached")

# -- NVML and its callers ----------------------------------------------------------------------------------------------

_add(
    "NVML",
    _RESET,
    "device handle|nvmlerror_|requires restart|requires reset",
    r"device handle.{0,80}\brequires? (?:a )?(?:restart|reset)|nvmlerror_(?:resetrequired|irqissue)\b",
)
_add("NVML", _LOST, "nvmlerror_gpuislost", r"nvmlerror_gpuislost\b")
_add("nvidia-smi", _ECC, "dram uncorrectable", r"^\s{0,40}dram uncorrectable\s{1,40}: [1-9]", _WARNING)
_add("nvidia-smi", _THERMAL, "hw slowdown", r"^\s{0,40}hw slowdown\s{1,60}: active\b")
_add("NVML", _ECC, "inforom", r"inforom is corrupted|nvmlerror_corruptedinforom|corrupt inforom has been", _WARNING)
_add(
    "NVML",
    _ENVIRONMENT,
    "nvmlerror_|nvml|device handle|libnvidia-ml.so|error_library_not_found|error_driver_not_loaded"
    "|blocked by the operating system"
    "|error_lib_rm_version_mismatch",
    r"nvmlerror_(?:librarynotfound|drivernotloaded|librmversionmismatch|uninitialized|nopermission|operatingsystem"
    r"|unknown|functionnotfound)\b|\berror_(?:library_not_found|driver_not_loaded|lib_rm_version_mismatch)\b"
    r"|device handle.{0,80}insufficient permissions|\bgpu access blocked by the operating system"
    r"|\b(?:failed to|can't|cannot|could not|couldn't|unable to) .{0,40}\bnvml: (?!gpu is lost|gpu requires)\w"
    r"|\bnvml\w{2,60}\(.{0,40}\) failed: (?!gpu is lost|gpu requires|not supported)"
    r"|could not load the nvml shared|nvml.{0,60}(?:driver not loaded|shared library not found|version mismatch\b)"
    r"|couldn't find libnvidia-ml\.so|failed to open libnvidia-ml\.so|failed to get devices from nvml",
)

# -- DCGM --------------------------------------------------------------------------------------------------------------

_add(
    "DCGM",
    _RESET,
    "recovery action: ",
    r"recovery action: \d{1,2} \((?:gpu_reset|node_reboot|drain_p2p|drain_and_reset)\)",
    whole=True,
)
_add(
    "DCGM",
    _ECC,
    "retired pages|faulty memory elements|row remap limit|contained error|miscompare failure"
    "|memory mismatch was detected|threshold count exceeded",
    r"\b(?:[1-9]\d*|or more|excess of \d{1,6}) retired pages (?:due to dbes )?have been detected"
    r"|found [1-9]\d* faulty memory elements on gpu"
    r"|exceeded uncorrectable row remap limit|\bgpu (?:\d{1,3} )?had an? (?:un)?contained error"
    r"|a miscompare failure in the l1 cache|a memory mismatch was detected on gpu"
    r"|sram threshold count exceeded on gpu",
)
for _kind, _codes in (
    (_LOST, r"fallen_off_bus"),
    (_RESET, r"gpu_recovery_\w+"),
    (
        _ECC,
        r"volatile_dbe_\w+|(?:dbe_)?pending_page_\w+|retired_pages_\w+|row_remap_failure|pending_row_remap|cuda_dbe"
        r"|uncorrectable_row_\w+|(?:un)?contained_error|faulty_memory|sram_threshold|memory_mismatch|l1tag_miscompare",
    ),
    (
        _NVLINK,
        r"nvlink_\w+|nvswitch_(?:down|fatal\w+|nvlink_down|expected\w+)|gpu_expected_nvlinks_up|sxid_error"
        r"|broken_p2p_nvlink_\w+",
    ),
    (_THERMAL, r"clocks_event_thermal|clock_throttle_thermal|thermal_violations\w*|temp_violation"),
    (_ENVIRONMENT, r"imex_unhealthy|denylisted_driver|nvml_lib_bad|cuda_fm_not_initialized|fabric_manager_\w+"),
):
    _add("DCGM", _kind, "errorcode:dcgm_fr_", rf"\berrorcode:dcgm_fr_(?:{_codes})\b")
_add("DCGM", _ENVIRONMENT, "driver on the denylist", r"\bfound driver on the denylist")
_add(
    "DCGM",
    _NVLINK,
    "nvlinks are up|minimum threshold on gpu|peer-to-peer test",
    r"only \d{1,3} nvlinks are up out of the expected|\bber \S{1,16} exceeds minimum threshold on gpu"
    r"|\bover nvlink in a peer-to-peer test: ",
)
_add(
    "DCGM",
    _THERMAL,
    "user-specified maximum allowed temperature|clocks event",
    r"exceeded user-specified maximum allowed temperature|clocks event.{0,120}\bthermal",
)

# -- tools beside the driver -------------------------------------------------------------------------------------------

_add(
    "IMEX",
    _ENVIRONMENT,
    "imex",
    r"\bimex .{0,60}(?:status is (?:down|unavailable|degraded|invalid)|failed to start"
    r"|connection.{0,24}(?:failed|lost|refused))",
)
_add("persistenced", _ENVIRONMENT, "nvidia-persistenced", r"nvidia-persistenced\S{0,12} .{0,80}(?:failed to|failed\b)")
_add(
    "container toolkit",
    _ENVIRONMENT,
    "unsatisfied condition|executing hook|construct oci spec modifier",
    r"unsatisfied condition: cuda|error executing hook .{0,60}nvidia|failed to construct oci spec modifier",
    whole=True,
)
_add(
    "NCCL",
    _ENVIRONMENT,
    "cuda driver version found is|is available but not working",
    r"nccl warn .{0,24}(?:cuda driver version found is|mnnvl .{0,40}is available but not working)",
)
_add(
    "NCCL",
    _NVLINK,
    "p2p is disabled between nvlink",
    r"nccl warn p2p is disabled between nvlink connected gpus",
    whole=True,
)
_add(
    "MPS",
    _ENVIRONMENT,
    "mps server|mps client",
    r"\bmps client failed to connect|between the mps server and the mps client failed|\bmps server is not ready"
    r"|resources required to create mps client|\bmps client has been terminated by the server",
)

SIGNATURES = tuple(_ALL.rows)
