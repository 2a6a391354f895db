"""EventBridge events of ECS tasks and of health sources, turned into events of the core.

The three EventBridge functions run this package, and the reconciler uses it for tasks that no event reported.
"""
