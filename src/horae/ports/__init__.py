"""What the engine needs from outside; each port has a conformance suite."""
