"""The queue: who of those that wait gets which GPUs next, and who has to make room."""
