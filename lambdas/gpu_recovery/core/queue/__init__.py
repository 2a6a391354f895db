"""The queue: which waiting job gets GPUs next, and which running jobs are preempted."""
