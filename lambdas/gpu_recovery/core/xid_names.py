"""Names of XIDs in NVIDIA's catalogue, for e-mails: those that need a check, and the common errors of applications.

`health_check/xid_table.csv` has every name; a test compares both tables. The prefix `ROBUST_CHANNEL_` is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

XID_NAMES: Mapping[int, str] = {
    13: "GR_EXCEPTION",
    31: "FIFO_ERROR_MMU_ERR_FLT",
    43: "RESETCHANNEL_VERIF_ERROR",
    45: "PREEMPTIVE_REMOVAL",
    46: "GPU_TIMEOUT_ERROR",
    48: "GPU_ECC_DBE",
    54: "SILENT_RUNNING_PWR_REDUCED_CLOCKING",
    57: "FB_LINK_TRAINING_FAILURE_ERROR",
    58: "FB_MEMORY_ERROR",
    59: "PMU_ERROR",
    61: "PMU_BREAKPOINT",
    62: "PMU_HALT_ERROR",
    63: "INFOROM_DRAM_RETIREMENT_EVENT",
    64: "INFOROM_DRAM_RETIREMENT_FAILURE",
    65: "NVENC1_ERROR",
    73: "NVENC2_ERROR",
    74: "NVLINK_ERROR",
    78: "VGPU_START_ERROR",
    79: "GPU_HAS_FALLEN_OFF_THE_BUS",
    90: "LTC_ERROR",
    92: "EXCESSIVE_SBE_INTERRUPTS",
    94: "CONTAINED_ERROR",
    95: "UNCONTAINED_ERROR",
    109: "CTXSW_TIMEOUT_ERROR",
    110: "SEC_FAULT_ERROR",
    119: "GSP_RPC_TIMEOUT",
    120: "GSP_ERROR",
    122: "SPI_PMU_RPC_READ_FAIL",
    123: "SPI_PMU_RPC_WRITE_FAIL",
    124: "SPI_PMU_RPC_ERASE_FAIL",
    125: "INFOROM_FS_ERROR",
    136: "ALI_TRAINING_FAIL",
    138: "DLA_ERROR",
    140: "UNRECOVERABLE_ECC_ERROR_ESCAPE",
    143: "GPU_INIT_ERROR",
    144: "NVLINK_SAW_ERROR",
    145: "NVLINK_RLW_ERROR",
    146: "NVLINK_TLW_ERROR",
    147: "NVLINK_TREX_ERROR",
    148: "NVLINK_NVLPW_CTRL_ERROR",
    149: "NVLINK_NETIR_ERROR",
    150: "NVLINK_MSE_ERROR",
    151: "KEY_ROTATION_ERROR",
    154: "GPU_RECOVERY_ACTION_CHANGED",
    155: "NVLINK_SW_DEFINED_ERROR",
    156: "RESOURCE_RETIREMENT_EVENT",
    158: "GPU_FATAL_TIMEOUT",
    159: "CHI_NON_DATA_ERROR",
    166: "NVLINK_SECURE_CRYPTO_ERR",
    167: "PCIE_FATAL_TIMEOUT",
    168: "REDUCED_GPU_MEMORY_CAPACITY",
    169: "SEC2_HALT_ERROR",
    170: "NVLINK_SECURE_OTHER",
    173: "C2C_FATAL_LINK_FAILURE",
    174: "RESETCHANNEL_KILL_PROCESS_SILENT",
    175: "MEMORY_SUBSYSTEM_ERROR",
    176: "PCIE_CORRECTABLE_ERROR_FAULT",
    179: "GPU_CONTAINMENT_ERROR",
    185: "SPARING_EVENT",
}
"""Names by number."""
_XID = re.compile(r"\bXID (?P<xid>\d{1,3})\b(?: on (?:GPU )?[\w:.-]*\w)?")


def with_xid_names(text: str) -> str:
    """Return `text` with NVIDIA's name behind each XID: `XID 79 on 0000:10:00 (GPU_HAS_FALLEN_OFF_THE_BUS)`."""
    return _XID.sub(_named, text) if "XID" in text else text


def _named(match: re.Match[str]) -> str:
    name = XID_NAMES.get(int(match["xid"]))
    return f"{match[0]} ({name})" if name and name not in match.string else match[0]
