"""Catalogue of all diagnosis rules, family by family."""

from __future__ import annotations

from gpu_recovery.core.diagnosis.rule import Rule
from gpu_recovery.core.diagnosis.rules import (
    collectives,
    event_delivery,
    failure_patterns,
    gpu_locks,
    gpu_stages,
    instances,
    log_lines,
    preflights,
    rpc,
    stragglers,
    telemetry,
    weight_sync,
)

FAMILIES = (
    gpu_stages,
    weight_sync,
    stragglers,
    failure_patterns,
    rpc,
    telemetry,
    event_delivery,
    gpu_locks,
    log_lines,
    instances,
    preflights,
    collectives,
)
RULES: tuple[Rule, ...] = tuple(rule for family in FAMILIES for rule in family.RULES)
