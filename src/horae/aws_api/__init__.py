"""A thin signed client for Amazon's services that speak JSON 1.0: DynamoDB and SQS."""
