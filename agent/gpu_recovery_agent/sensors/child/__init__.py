"""Readings taken in a child process, so that a driver call that hangs blocks no heartbeat."""
