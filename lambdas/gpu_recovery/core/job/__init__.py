"""The job machine: a job is launched in attempts until one succeeds or no other may follow."""
