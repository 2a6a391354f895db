"""Errors that the instrumentation may raise into a training: a GPU that failed its check before a stage."""

from __future__ import annotations


class GPUHealthError(RuntimeError):
    """The GPU failed its check before a stage. `chinese` is the same sentence in Chinese."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"GPU fault detected in stage {stage}")
        self.stage = stage
        self.chinese = f"GPU故障检测于{stage}阶段"
