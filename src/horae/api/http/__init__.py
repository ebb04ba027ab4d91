"""HTTP itself: bodies, query parameters, problems, limits. It is independent of jobs."""
