"""Chinese texts of preflights and idle checks, and of the notes of `gpu-recovery doctor`."""

from __future__ import annotations

CHECKS = {
    "note: {sentence}": "说明：{sentence}",
    "to change it: {command}": "如需改变：{command}",
    "preflight: {reported} of {ranks} ranks have reported": "启动前检查：{ranks} 个 rank 中已有 {reported} 个报告",
    "preflight, passed on ranks: {steps}": "启动前检查，通过的 rank 数：{steps}",
    "preflight, not run on ranks: {steps}": "启动前检查，未执行的 rank 数：{steps}",
    "preflight of rank {rank} on {instance}: {step} {result}: {sentence}": "rank {rank}（{instance}）的启动前检查：{step} {result}：{sentence}",
    "preflight: checked first after a failure: {instances}": "启动前检查：失败后先检查 {instances}",
    "preflight": "启动前检查",
    "idle check": "空闲检查",
}
"""Texts by their English form."""
