"""A large cluster in virtual time on tables whose partitions throttle: what it asks of each, and how late it starts."""
