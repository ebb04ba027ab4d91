"""Writes, reads and judges recorded histories."""
