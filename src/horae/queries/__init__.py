"""Read-only queries about jobs, runs, slots and logs."""
