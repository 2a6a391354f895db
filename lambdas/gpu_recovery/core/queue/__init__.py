"""The queue: which waiting job gets which GPUs next, and which running jobs are preempted for it."""
