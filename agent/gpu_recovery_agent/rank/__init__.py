"""The wrapper of a rank, `gpu-recovery-run`: PID 1 of the training container.

The wrapper is no part of the agent daemon. It is PID 1 unless ECS adds an init process (`initProcessEnabled`). It
starts the user's command, forwards signals, suspends the command, and records its exit in a file that the agent reads.
"""
