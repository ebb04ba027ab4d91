"""Queue adapters: tickets of what wakes soon, in front of a store."""
