"""HTTP itself: bodies, query parameters, problems, limits; nothing here knows about jobs."""
