"""What a job may expect of its failures: how often, how long it is down, and what would meet its recovery contract."""
