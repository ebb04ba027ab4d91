"""Claims in the DynamoDB store: lanes, gates, limits, and tickets for a queue in front of it."""
