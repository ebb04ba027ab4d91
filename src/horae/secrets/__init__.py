"""Secrets: encrypted at rest, removed from whatever is shown."""
