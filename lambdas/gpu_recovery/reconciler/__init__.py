"""The reconciler: due records, resync with ECS and EC2, and heartbeat timeouts, every minute."""
