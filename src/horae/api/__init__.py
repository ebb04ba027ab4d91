"""The REST API: a Starlette application over the use cases and queries."""
