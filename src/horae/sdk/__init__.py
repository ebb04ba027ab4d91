"""The Python SDK: submitting tasks, and hearing what became of them."""
