"""Handles EventBridge events of ECS tasks and health sources: each becomes an event of the core."""
