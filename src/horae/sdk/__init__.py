"""The Python SDK: submits tasks and returns handles to their results."""
