"""List prices that docs/costs.md uses."""

PRICES = {
    "Lambda requests": 0.20e-6,
    "Lambda GB-seconds, arm64": 0.0000133334,
    "DynamoDB write units": 0.625e-6,
    "DynamoDB read units": 0.125e-6,
    "SQS requests, FIFO": 0.50e-6,
    "events on a bus of our own": 1.00e-6,
    "S3 requests": 5.00e-6,
    "X-Ray traces": 5.00e-6,
    "CloudWatch Logs, GB": 0.50,
    "CloudWatch metrics": 0.30,
    "CloudWatch alarms, by metric": 0.10,
    "CloudWatch dashboard": 3.00,
    "KMS key": 1.00,
    "Secrets Manager secret": 0.40,
}
"""List prices of us-east-1 in USD, as known in November 2026. Check them before you rely on them.

Requests of SQS have the price of FIFO queues, because the queue of the scheduler is one.
"""
