"""Authentication and authorization: tokens, their keys, and which settings are safe."""
