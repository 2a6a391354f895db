"""The reconciler: each minute, due records, resync with ECS and EC2, heartbeat timeouts."""
