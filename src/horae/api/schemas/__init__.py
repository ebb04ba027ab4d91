"""The shapes of requests and responses, and how they become domain values."""
