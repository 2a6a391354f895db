"""EventBridge events of ECS tasks, container instances and health sources, turned into events of the core."""
