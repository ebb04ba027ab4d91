"""A node among the others: its lease, its heartbeat, its shards, and the watch over its event loop and clock."""
