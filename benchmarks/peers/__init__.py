"""Other job queues for Python on the same work, each in an environment of its own under .bench/."""
