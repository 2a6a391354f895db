"""Errors of memory checkpoints. Every process of the job raises the same error in the same call."""

from __future__ import annotations


class MemoryCheckpointError(RuntimeError):
    """A memory checkpoint could not be saved. The training can go on: the generation before it is still there."""


class NoRoom(MemoryCheckpointError):
    """The memory folder of an instance has no room for another generation."""


class PeerRefused(Exception):
    """A peer did not prove the token of the job, or refused or broke a transfer."""
