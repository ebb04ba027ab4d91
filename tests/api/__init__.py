"""The REST API in process."""
