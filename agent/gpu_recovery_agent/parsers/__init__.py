"""Parsers of the kernel log. The modules are those of `health_check/`: links in the repository, files in the wheel.

The wheel of the agent therefore owns no package but `gpu_recovery_agent`.
"""
