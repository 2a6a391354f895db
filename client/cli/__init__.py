"""The command line, `gpu-recovery`: one file for each group of verbs."""

from gpu_recovery_client.cli.app import main

__all__ = ["main"]
