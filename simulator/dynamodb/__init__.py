"""Double of DynamoDB in this process, which refuses what DynamoDB refuses."""
