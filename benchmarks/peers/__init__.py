"""Other Python job queues with the same work, each in its own environment under .bench/."""
