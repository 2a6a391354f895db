"""gpu-recovery: heals GPU faults of training jobs on Amazon ECS."""
