"""The store port in memory, held to the same contract tests as DynamoDB."""
