"""Log signatures of heat: thermal limits, throttling, and shutdowns of GPUs and machines.

Sources: the kernel's thermal zones, NVIDIA's driver and DCGM, amdgpu, habanalabs, event logs of management controllers.
"""

from __future__ import annotations

from gpu_recovery.core.logs.kinds import LineKind, LineRole
from gpu_recovery.core.logs.signature import Signatures

_ALL = Signatures()
_add = _ALL.add
_WARNING = LineRole.WARNING

_T = LineKind.HARDWARE_THERMAL
_add(
    "amdgpu",
    _T,
    " ctf|(aka ctf)|over temperature range|temperature fault",
    r"\bgpu over temperature range|\bcritical temperature fault\b|\bshutdown due to gpu [sh]w ctf",
)
_add(
    "kernel",
    _T,
    "hardware protection",
    r"\bhardware protection (?:shutdown|reboot|emergency \w{1,20}) \([^)]{0,40}temperature",
)
_add(
    "kernel",
    LineKind.NODE_KERNEL,
    "hardware protection",
    r"\bhardware protection (?:shutdown|reboot|emergency \w{1,20}) \(",
)
_add(
    "management controllers",
    _T,
    "temp|thermal trip",
    r"\btemp(?:erature)?\b.{0,60}\b(?:upper )?(?:critical|non-?recoverable) (?:- )?going high"
    r"(?!.{0,24}\bde-?asserted)|\btemperature is (?:greater|higher) than the upper (?:critical|warning) threshold"
    r"|\b(?:has|had) a thermal trip|\bover-?temp(?:erature)? (?:event|condition|fault|alarm)",
)
_add(
    "nouveau",
    _T,
    "hit the '",
    r"\btemperature \(\d{1,3} c\) hit the '(?:downclock|critical|shutdown)' threshold",
)
_add(
    "habanalabs",
    _T,
    "throttl|thermal",
    r"\bclock throttling due to overheating|\bthermal throttling: (?!no\b|none\b|off\b|0\b|disabled)\w",
    _WARNING,
)
_add(
    "gpud",
    _T,
    "slowdown is engaged|slowdown (temperature",
    r"\bslowdown is engaged due to .{0,24}temperature|\bthermal slowdown \(temperature being too high\)",
)
_add(
    "programs on GPUs",
    _T,
    "temperature",
    r"\btemperature (?:abort |slowdown |shutdown )?(?:threshold|limit) (?:on .{1,40} )?(?:met|reached|exceeded|crossed)"
    r"|\b(?:met|reached|exceeded|crossed) (?:the |its )?(?:\w{1,12} )?temperature (?:threshold|limit)",
    _WARNING,
)
_add(
    "DCGM",
    _T,
    "slowdown_violation|thermal violation|thermal margin",
    r"gpu_temp_\w*slowdown_violation|thermal violations? totall?ing [\d.]+"
    r"|thermal margin .{0,40}below .{0,24}slowdown",
)
_add(
    "driver",
    _T,
    "thermal",
    r"\bthermal.{0,60}(?:shutdown|violation(?!s?: ?0\b)|fault|trip|emergency|limit (?:exceed|reach)"
    r"|slowdown.{0,12}(?<!not )(?:\bactive|engag|detect))(?!.{0,6}not)|(?:hw|hardware|sw"
    r"|software).{0,6}thermal slowdown(?:[^:]|: ?(?!not)active)",
)
_add(
    "driver",
    _T,
    "overheat|temperature|slowdown|temp|throttl",
    r"\bgpus?\b.{0,60}over-?heat|temperature (?:is )?above threshold|(?:gpu|memory|hbm) temp\w* .{0,60}(?:exceed|above"
    r"|too high|critical|over the|threshold (?:met|exceed|reach|cross))|\bhw slowdown.{0,20}(?:: active\b|detected"
    r"|engaged|due to)|throttl\w+ due to.{0,20}(?:temperature|thermal)|clock (?:is )?throttled",
)

SIGNATURES = tuple(_ALL.rows)
