"""Background duties of a node; each is a `tick()` that returns what it did."""
