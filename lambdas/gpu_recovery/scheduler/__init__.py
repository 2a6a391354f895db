"""The scheduler: one pass over the queue, and the places of Ray jobs."""
