"""Adapters to AWS: event parsers, the store on DynamoDB, and actions. Only this package imports boto3."""
