"""The life of runs in the DynamoDB store: created, planned, started, settled, and returned from dead nodes."""
