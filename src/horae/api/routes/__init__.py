"""The routes of the REST API, by subject."""
