"""The event feed: stored events of jobs and runs, and best-effort progress."""
