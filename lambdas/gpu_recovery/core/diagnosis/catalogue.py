"""Every rule, family by family."""

from __future__ import annotations

from .families import (
    collectives,
    event_delivery,
    gpu_stages,
    locks,
    log_lines,
    nodes,
    patterns,
    rpc,
    stragglers,
    telemetry,
    weight_sync,
)
from .rule import Rule

FAMILIES = (
    gpu_stages, weight_sync, stragglers, patterns, rpc, telemetry, event_delivery, locks, log_lines, nodes,
    collectives,
)  # fmt: skip
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in family.RULES)
