"""A store in DynamoDB; docs/internals/dynamodb.md has its tables, keys and costs."""
