"""The worker: claims runs, holds them until they are due, releases, runs and settles them (start at `worker.py`)."""
