"""MiniStack with patches for missing AWS behaviour: retries, dead letters, ECS events of our cluster."""
