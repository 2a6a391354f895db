"""The store port in memory. It passes the same contract tests as the DynamoDB store."""
