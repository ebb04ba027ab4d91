"""A node's place among the others: its lease, heartbeat and clock."""
