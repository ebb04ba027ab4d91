"""Changes in the DynamoDB store: guards and writes as conditional transactions."""
