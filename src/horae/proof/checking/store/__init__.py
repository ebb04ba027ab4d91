"""Judges the rows of a store."""
