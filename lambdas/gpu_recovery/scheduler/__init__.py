"""The scheduler: a pass over the queue of the ECS cluster, and a pass over the Ray pool."""
