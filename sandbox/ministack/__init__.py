"""MiniStack with what it lacks: retries, dead letters, ECS events of our cluster."""
