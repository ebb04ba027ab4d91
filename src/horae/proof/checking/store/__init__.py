"""Checks a store by its own rows."""
