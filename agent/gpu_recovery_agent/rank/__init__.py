"""The wrapper of a rank: starts the user's process, passes signals on and records how the process ended."""
