"""The wrapper of a rank: starts the user's process and records how it ended."""
