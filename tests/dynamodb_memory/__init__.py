"""Amazon's DynamoDB in memory: what the adapter asks of it, with its capacity, in virtual time if a test likes."""
