"""Chinese texts of the command line."""

from __future__ import annotations

from gpu_recovery_client.texts.zh_checks import CHECKS
from gpu_recovery_client.texts.zh_help import HELP
from gpu_recovery_client.texts.zh_output import OUTPUT
from gpu_recovery_client.texts.zh_recovery import RECOVERY
from gpu_recovery_client.texts.zh_simulator import SIMULATOR

TEXTS = CHECKS | HELP | OUTPUT | RECOVERY | SIMULATOR
"""Texts by their English form."""
