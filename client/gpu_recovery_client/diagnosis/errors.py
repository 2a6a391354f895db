"""The errors that diagnosis may raise into a training: only those that seed 002 names."""

from __future__ import annotations


class GPUHealthError(RuntimeError):
    """The GPU failed its check before a stage. `chinese` is the sentence of seed 002."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"GPU fault detected in stage {stage}")
        self.stage = stage
        self.chinese = f"GPU故障检测于{stage}阶段"
