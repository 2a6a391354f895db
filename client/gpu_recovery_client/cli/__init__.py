"""The command line, `gpu-recovery`: one module for each group of verbs, imported when a verb is called."""

from gpu_recovery_client.cli.app import main

__all__ = ["main"]
