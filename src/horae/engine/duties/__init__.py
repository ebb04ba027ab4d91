"""Background duties of a node; each is a `tick()` that returns when it is due again."""
