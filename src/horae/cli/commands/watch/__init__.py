"""Commands that show the state of a cluster: its queues, nodes, tasks and events."""
