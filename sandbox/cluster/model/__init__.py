"""State of the simulated ECS and EC2: instances, tasks, placement and events."""
