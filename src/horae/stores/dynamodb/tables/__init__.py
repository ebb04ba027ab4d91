"""The tables of the DynamoDB store: how they look, and how they are made and checked."""
