"""Turns EventBridge events of ECS tasks and health sources into events of the core."""
