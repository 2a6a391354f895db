"""The job state machine: attempts are launched until one succeeds or none may follow."""
