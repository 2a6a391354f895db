"""Training programs that the sandbox runs as ranks."""
