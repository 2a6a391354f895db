"""State of the modelled ECS and EC2: instances, tasks, placement and events."""
